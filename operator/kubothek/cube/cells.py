"""Checks of rows for a cube: no NULL in columns that identify a cell or a partition, and no duplicate cells.

These are Kartothek's rules for writes (``kartothek.io_components.cube.write``), with vectorised kernels. Rows that can
be read only once are spooled to the local disk, so that nothing reaches the store before all rows are checked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.errors import CubeInvalid, SchemaMismatch, SourceEmpty
from kubothek.in_memory_database import in_memory_database, quoted
from kubothek.table.operations import Rows
from kubothek.table.operations.rows import pieces_of

_MEMORY: Final = "1GB"
"""Memory for the search for duplicates, before it spills to disk."""


@dataclass(frozen=True, slots=True)
class Named:
    """Columns that must not be NULL, by kind: ``dimension``, ``partition``, ``index``."""

    dimension: tuple[str, ...]
    partition: tuple[str, ...]
    index: tuple[str, ...]

    @property
    def cell(self) -> tuple[str, ...]:
        """The columns that identify a cell: no two rows may have the same values in them."""
        return tuple(dict.fromkeys((*self.partition, *self.dimension)))

    def by_kind(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return kind, for messages, and names of the columns."""
        return ("partition", self.partition), ("dimension", self.dimension), ("index", self.index)


@dataclass(frozen=True, slots=True)
class Given:
    """The caller's rows for one dataset, which may be readable only once, and their schema."""

    dataset: str
    schema: pa.Schema
    pieces: Iterable[pa.Table | pa.RecordBatch]

    @classmethod
    def of(cls, dataset: str, data: Rows) -> Self:
        """Wrap the rows. Raises CubeInvalid for their columns, SourceEmpty, InputError, DataTypeMismatch."""
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(data, pandas.DataFrame):
            _check_frame(dataset, data, pandas)
        schema, pieces = pieces_of(data)
        if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
            raise CubeInvalid(f"duplicate columns found in dataset {dataset!r}: {', '.join(map(repr, twice))}")
        return cls(dataset, schema, pieces)


@contextmanager
def checked(given: Given, named: Named) -> Iterator[pa.Table | pa.RecordBatchReader]:
    """Yield the rows after a check of all of them. Raises CubeInvalid, SourceEmpty, and what invalid input raises."""
    with TemporaryDirectory(prefix="kubothek-cube-") as directory:
        if isinstance(given.pieces, list):
            table = pa.concat_tables([_as_table(piece) for piece in given.pieces])
            _require_rows(given.dataset, table.num_rows)
            _require_no_nulls(given.dataset, table, named)
            _require_distinct(given.dataset, table.select(list(named.cell)), named.cell, directory)
            yield table
        else:
            path = Path(directory) / "rows.arrow"
            _put_aside(given, named, path)
            aside = ds.dataset(path, format="ipc")
            _require_distinct(given.dataset, aside, named.cell, directory)
            yield pa.RecordBatchReader.from_batches(given.schema, aside.to_batches())


def check_files(dataset: str, files: ds.Dataset, named: Named) -> None:
    """Check rows in files that no commit references yet; read only the columns in ``named``. Raises CubeInvalid."""
    for what, columns in named.by_kind():
        for column in columns:
            if column not in files.schema.names:
                continue
            missing = pc.field(column).is_null(nan_is_null=pa.types.is_floating(files.schema.field(column).type))
            if files.head(1, columns=[column], filter=missing).num_rows:
                raise _nulls(what, column, dataset)
    with TemporaryDirectory(prefix="kubothek-cube-") as directory:
        _require_distinct(dataset, files, named.cell, directory)


def _check_frame(dataset: str, frame: Any, pandas: Any) -> None:
    if strange := [name for name in frame.columns if not isinstance(name, str)]:
        kind = type(strange[0]).__name__
        raise CubeInvalid(f"column {strange[0]!r} of dataset {dataset!r} is named by a {kind}; use a string")
    if sparse := [name for name, kind in frame.dtypes.items() if isinstance(kind, pandas.SparseDtype)]:
        raise CubeInvalid(
            f"column {sparse[0]!r} of dataset {dataset!r} is sparse, which is not supported; make it dense"
        )


def _put_aside(given: Given, named: Named, path: Path) -> None:
    dataset, schema, rows = given.dataset, given.schema, 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        for piece in given.pieces:
            table = _as_table(piece)
            if not table.schema.equals(schema):
                raise SchemaMismatch(
                    f"all pieces of dataset {dataset!r} must have one schema; the first has\n{schema}\na later one\n"
                    f"{table.schema}"
                )
            _require_no_nulls(dataset, table, named)
            writer.write_table(table)
            rows += table.num_rows
    _require_rows(dataset, rows)


def _require_rows(dataset: str, rows: int) -> None:
    if not rows:
        raise SourceEmpty(f"there are no rows to write to dataset {dataset!r}; nothing was committed")


def _require_no_nulls(dataset: str, table: pa.Table, named: Named) -> None:
    for what, columns in named.by_kind():
        for column in columns:
            values = table.column(column)
            if pc.any(pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))).as_py():
                raise _nulls(what, column, dataset)


def _nulls(what: str, column: str, dataset: str) -> CubeInvalid:
    return CubeInvalid(f"found NULL-values in {what} column {column!r} of dataset {dataset!r}; fill or filter them")


def _require_distinct(dataset: str, rows: pa.Table | ds.Dataset, columns: Sequence[str], directory: str) -> None:
    """Raise CubeInvalid, with an example, if two rows have the same cell.

    Rows in memory are grouped by Arrow, others by DuckDB, which can spill to disk.
    """
    found = _twice(rows, columns) if isinstance(rows, pa.Table) else _twice_on_disk(rows, columns, directory)
    if found is not None:
        example = ", ".join(f"{column} = {value!r}" for column, value in zip(columns, found, strict=True))
        raise CubeInvalid(
            f"found duplicate cells by [{', '.join(columns)}] in dataset {dataset!r}, example: {example}; a cell is "
            "written once in one commit"
        )


def _twice(rows: pa.Table, columns: Sequence[str]) -> tuple[Any, ...] | None:
    counted = rows.unify_dictionaries().group_by(list(columns)).aggregate([([], "count_all")])
    if counted.num_rows == rows.num_rows:
        return None
    example = counted.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist()[0]
    return tuple(example[column] for column in columns)


def _twice_on_disk(rows: ds.Dataset, columns: Sequence[str], directory: str) -> tuple[Any, ...] | None:
    names = ", ".join(map(quoted, columns))
    with in_memory_database(memory_limit=_MEMORY, temp_directory=directory) as connection:
        connection.register("cells", rows)
        found: tuple[Any, ...] | None = connection.execute(
            f"SELECT {names} FROM cells GROUP BY {names} HAVING count(*) > 1 LIMIT 1"  # noqa: S608  # quoted names
        ).fetchone()
    return found


def _as_table(piece: pa.Table | pa.RecordBatch) -> pa.Table:
    return piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
