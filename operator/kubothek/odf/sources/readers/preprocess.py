"""SQL between read and merge (PP-01): untrusted, so it runs in a locked-down database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa

from kubothek.errors import InputError, LakeError, QueryInvalid
from kubothek.in_memory_database import StreamErrors, quoted
from kubothek.odf.duckdb_rows import ENGINES, cast, database_of, for_duckdb
from kubothek.odf.sources.readers.coerce import uuids_of
from kubothek.odf.spec.sources import SqlQueryStep, Transform, TransformSql
from kubothek.sql import Limits
from kubothek.sql.statement import Statement, base_tables, parse

INPUT: Final = "input"
LIMITS: Final = Limits()
_BATCH_ROWS: Final = 65_536
_ROW_WISE: Final = frozenset({"PROJECTION", "FILTER", "UNNEST", "PYTHON_ARROW_SCAN", "ARROW_SCAN"})
"""Operators that handle each row alone and keep their order."""
_INTERRUPTED: Final = "INTERRUPT Error"


def preprocess(
    transform: Transform | None, rows: pa.RecordBatchReader, limits: Limits = LIMITS
) -> pa.RecordBatchReader:
    """Return the rows of the last query; the input rows if there is no transformation.

    Queries see the rows as ``input``, and those of earlier queries under their aliases. DuckDB runs them, whatever the
    named engine: SQL unknown to DuckDB is an error. Timestamps are UTC. Raises QueryInvalid, and so does the stream.
    """
    if transform is None:
        return rows
    if not isinstance(transform, TransformSql):
        raise InputError("preprocess is of a later version of Open Data Fabric: it cannot be run here")
    steps = _steps(transform)
    return _Run(transform.engine.lower(), limits).start(steps, rows)


def _steps(transform: TransformSql) -> Sequence[SqlQueryStep]:
    if transform.engine.lower() not in ENGINES:
        known = ", ".join(ENGINES)
        raise QueryInvalid(f"preprocess: there is no engine {transform.engine!r} here; write SQL for one of {known}")
    steps = transform.queries or ((SqlQueryStep(query=transform.query),) if transform.query else ())
    if not steps:
        raise QueryInvalid("preprocess has no query")
    if any(step.alias is None for step in steps[:-1]):
        raise QueryInvalid("preprocess: a query before the last is a view and needs an alias")
    return steps


def is_row_wise(transform: Transform | None, schema: pa.Schema) -> bool:
    """Return whether the result is the same if rows of this schema are transformed in consecutive parts.

    True if DuckDB's plan has only projections, filters and UNNEST. Raises QueryInvalid.
    """
    if transform is None:
        return True
    if not isinstance(transform, TransformSql):
        return False
    return _Run(transform.engine.lower(), LIMITS).operators(_steps(transform), schema) <= _ROW_WISE


class _Run:
    """One database, open until its rows are read."""

    def __init__(self, engine: str, limits: Limits) -> None:
        self._limits = limits
        self._stack = ExitStack()
        self._errors = StreamErrors()
        spill = TemporaryDirectory(prefix="kubothek-preprocess-", ignore_cleanup_errors=True)
        self._spill = Path(self._stack.enter_context(spill))
        self._database = self._stack.enter_context(database_of(engine, limits.memory, self._spill))

    def start(self, steps: Sequence[SqlQueryStep], rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Check all queries, then run them. Raises QueryInvalid, what the rows raise, and OSError on a full disk."""
        try:
            _require_distinct(rows.schema.names)
            parsed = self._parsed(steps)
            self._database.register(INPUT, self._errors.watch(self._given(parsed, rows)))
            if self._limits.seconds is not None:
                timer = Timer(self._limits.seconds, self._database.interrupt)
                timer.daemon = True
                timer.start()
                self._stack.callback(timer.cancel)
            self._define(steps, parsed)
            relation = self._database.sql(parsed[-1].text)
            uuids = [kind == "UUID" for kind in map(str, relation.types)]
            reader = _plain_integers(relation).to_arrow_reader(_BATCH_ROWS)
        except duckdb.Error as error:
            self._stack.close()
            raise self._failure(error) from error
        except BaseException:
            self._stack.close()
            raise
        fields = [f.with_type(pa.binary(16)) if one else f for f, one in zip(reader.schema, uuids, strict=True)]
        schema = pa.schema(fields)
        return pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema, uuids))

    def operators(self, steps: Sequence[SqlQueryStep], schema: pa.Schema) -> set[str]:
        """Return the operators of the plan for rows of this schema. Raises QueryInvalid."""
        with self._stack:
            try:
                parsed = self._parsed(steps)
                empty = pa.schema([pa.field(f.name, for_duckdb(f.type)) for f in schema]).empty_table()
                self._database.register(INPUT, pa.RecordBatchReader.from_batches(empty.schema, ()))
                self._define(steps, parsed)
                found = self._database.sql(f"EXPLAIN (FORMAT json) {parsed[-1].text}").fetchall()
            except duckdb.Error as error:
                raise self._failure(error) from error
            return set(_operators(orjson.loads(found[0][1])))

    def _define(self, steps: Sequence[SqlQueryStep], parsed: Sequence[Statement]) -> None:
        for step, statement in zip(steps[:-1], parsed, strict=False):
            name = quoted(step.alias or "")
            self._database.execute(f"CREATE TEMP VIEW {name} AS {statement.text}")

    def _parsed(self, steps: Sequence[SqlQueryStep]) -> list[Statement]:
        known = {INPUT}
        found = []
        for number, step in enumerate(steps, 1):
            try:
                statement = parse(self._database, step.query)
            except (duckdb.Error, QueryInvalid) as error:
                raise QueryInvalid(f"preprocess, query {number}: {_message(error)}") from error
            for name, reference in statement.tables.items():
                if reference.as_of is not None:
                    raise QueryInvalid(
                        f"preprocess, query {number}: {name!r}: there are no earlier versions of {INPUT}"
                    )
                if name.casefold() not in known and name in statement.outer:
                    there = ", ".join(sorted(known))
                    raise QueryInvalid(f"preprocess, query {number}: there is no table {name!r}; there is {there}")
            if step.alias is not None:
                if step.alias.casefold() in known:
                    raise QueryInvalid(f"preprocess, query {number}: the alias {step.alias!r} exists already")
                known.add(step.alias.casefold())
            found.append(statement)
        return found

    def _given(self, parsed: Sequence[Statement], rows: pa.RecordBatchReader) -> pa.RecordBatchReader | pa.Table:
        """Return the rows for DuckDB: as a stream if they are used once, else from a file."""
        schema = pa.schema([pa.field(f.name, for_duckdb(f.type)) for f in rows.schema])
        batches = (cast(batch, schema) for batch in rows)
        tables = Counter(node["table_name"].casefold() for one in parsed for node in base_tables(one.tree))
        if len(parsed) == 1 and tables[INPUT] == 1 and not parsed[0].local:
            return pa.RecordBatchReader.from_batches(schema, batches)
        path = str(self._spill / "input.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return pa.ipc.open_file(pa.memory_map(path)).read_all()  # memory-mapped, not copied

    def _batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema, uuids: Sequence[bool]
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                columns = [uuids_of(c) if one else c for c, one in zip(batch.columns, uuids, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error
        finally:
            self._stack.close()

    def _failure(self, error: Exception) -> LakeError:
        text = str(error)
        if isinstance(original := self._errors.take(), LakeError):
            return original
        if isinstance(error, duckdb.OutOfMemoryException):
            return QueryInvalid(f"preprocess needs more than {self._limits.memory} of memory")
        if _INTERRUPTED in text:
            return QueryInvalid(f"preprocess took longer than {self._limits.seconds:g} s and was stopped")
        return QueryInvalid(f"preprocess: {_message(error)}")


def _operators(nodes: Sequence[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield node["name"].strip()
        yield from _operators(node["children"])


def _require_distinct(names: Sequence[str]) -> None:
    """Reject names that differ only in case: DuckDB would rename one of them."""
    folded = [name.casefold() for name in names]
    if alike := [name for name in names if folded.count(name.casefold()) > 1]:
        raise QueryInvalid(
            f"preprocess: columns {' and '.join(map(repr, alike))} are one to SQL, which sees no case; "
            "name them otherwise in read.schema"
        )


def _message(error: Exception) -> str:
    return str(error).partition("\n\nLINE ")[0]


def _plain_integers(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return sums of integers as BIGINT: no file format has DuckDB's HUGEINT. Overflow is an error."""
    kinds = [str(kind) for kind in relation.types]
    if "HUGEINT" not in kinds or len(set(relation.columns)) < len(kinds):
        return relation
    columns = []
    for name, kind in zip(relation.columns, kinds, strict=True):
        column = quoted(name)
        columns.append(f"CAST({column} AS BIGINT) AS {column}" if kind == "HUGEINT" else column)
    return relation.project(", ".join(columns))
