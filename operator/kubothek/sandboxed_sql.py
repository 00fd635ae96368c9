"""SQL that a stranger wrote: parsed, planned and run in a worker process, under limits that the kernel keeps.

:mod:`kubothek.sql` checks a statement and runs it where it can reach nothing. That keeps data apart; it keeps no
limit. DuckDB can be interrupted between two batches, not in one call of a function, in constant folding or in planning,
and it counts the memory of its buffers only. So the process that reads a text of a tenant or of a client never gives it
to DuckDB: a worker does (:mod:`kubothek.sandbox.limited`), and sends the rows.

A worker may use :data:`HEADROOM` beyond the limit of the statement: for reading files, which DuckDB does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import orjson
import pyarrow as pa

from kubothek.catalog import Lake
from kubothek.errors import LakeError, QueryInvalid
from kubothek.odf.time_axes import happened_until
from kubothek.sandbox import limited
from kubothek.sandbox.arrow_stream import as_arrow, from_arrow
from kubothek.sandbox.limited import Ask, Cause, Work
from kubothek.sql import Limits, Look, Query, Restrict, prepare
from kubothek.sql.query import UNLOCKED, memory_bytes, new_database
from kubothek.sql.read import Read
from kubothek.sql.statement import impure_functions
from kubothek.storage import Store
from kubothek.storage.file import FileStore
from kubothek.table.log import Snapshot, Version

HEADROOM: Final = 256 << 20
"""Bytes of address space of a worker beyond what the statement may use."""
_MODULE: Final = __name__
_DATABASES: Final[list[duckdb.DuckDBPyConnection]] = []
"""In a worker that waits: the one that its statement will have."""
_NAMES: Final = "names"
_TABLES: Final = "tables"
_FORM: Final = "form"

Shape = Callable[[pa.RecordBatchReader], Iterator[bytes]]
"""Makes bytes of the rows, in the worker."""


class Opened(NamedTuple):
    """What a statement is prepared with; see :func:`kubothek.sql.prepare`."""

    stores: Store | Callable[[str], Store]
    look: Look
    names: Callable[[], Iterable[str]]
    restrict: Restrict | None = None
    plain: bool = True
    parsed: Callable[[int], None] | None = None


class Source(Protocol):
    """Says, in the worker, which datasets there are. It is pickled."""

    def opened(self, ask: Ask) -> Opened: ...


@dataclass(frozen=True)
class OneStore:
    """All that is in a store, as it was at ``as_of``; of ledgers, what had happened until ``as_at``."""

    store: Store
    as_of: Version | None = None
    as_at: datetime | None = None

    def opened(self, ask: Ask) -> Opened:
        """Asks nothing."""
        lake = Lake(self.store)
        restrict = None if self.as_at is None else happened_until(self.store, self.as_at)
        return Opened(self.store, lake.look(self.as_of), lake.datasets, restrict)


@dataclass(frozen=True)
class Places:
    """Datasets that the caller finds, and lets read, each by its name."""

    def opened(self, ask: Ask) -> Opened:
        """Asks for what :class:`Finder` answers."""
        places: dict[str, Store] = {}

        def look(name: str, version: Version | None) -> Snapshot:
            dataset, slash, table = name.partition("/")
            places[name], uuid = ask({"dataset": dataset})
            return Lake(places[name]).look()(f"{uuid}{slash}{table}", version)

        return Opened(
            places.__getitem__,
            look,
            partial(ask, {_NAMES: None}),
            plain=False,
            parsed=lambda tables: ask({_TABLES: tables}),
        )


def expect(store: Store) -> None:
    """Have workers ready for this store: to make a client of S3 takes longer than a small query."""
    if not isinstance(store, FileStore):
        limited.ahead(type(store).connect, store)


class Finder(Protocol):
    """The caller's side of :class:`Places`. Each may raise a LakeError."""

    def begin(self, tables: int, /) -> None:
        """The statement names so many datasets."""

    def find(self, name: str, /) -> tuple[Store, str]:
        """Where a dataset is, and its name there. Raises DatasetNotFound, also for what the caller must not see."""

    def names(self) -> list[str]:
        """Those that a message may name."""


class LimitedQuery:
    """A statement that a worker has planned. ``reads`` is what it reads."""

    def __init__(self, source: Source, statement: str, limits: Limits) -> None:
        """Raises LakeError."""
        self._form = ""
        if isinstance(source, OneStore):
            expect(source.store)
        self._work = run(_rows, source, statement, limits.memory, limits=limits, answer=lambda question: self._form)
        self.reads, rest = _header(self._work)
        assert not rest, "the worker waits for the form"

    def rows(self) -> pa.RecordBatchReader:
        """The rows as a stream, once. Raises LakeError, also from the stream."""
        return self._stream("rows")

    def lines(self) -> pa.RecordBatchReader:
        """As :meth:`kubothek.sql.Query.lines`."""
        return self._stream("lines")

    def _stream(self, form: str) -> pa.RecordBatchReader:
        self._form = form
        try:
            reader = from_arrow(self._work)
        except BaseException:
            self._work.close()
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        finally:
            self._work.close()


class Pieces:
    """The rows of a statement as bytes that a worker made of them. ``reads`` is there with the first."""

    def __init__(self, statement: str, shape: Shape, limits: Limits, finder: Finder, *, lines: bool) -> None:
        """Raises LakeError.

        ``shape``  of a module, as it is pickled
        ``lines``  whether it gets rows as JSON, or columns
        """

        def answer(question: Any) -> Any:
            if _TABLES in question:
                return finder.begin(question[_TABLES])
            return finder.names() if _NAMES in question else finder.find(question["dataset"])

        self._work = run(_shaped, statement, limits.memory, shape, lines, limits=limits, answer=answer)
        self._rest: bytes | None = None
        self.reads: tuple[Read, ...] = ()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Raises LakeError."""
        if self._rest is None:
            self.reads, self._rest = _header(self._work)
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        return next(self._work)

    def close(self) -> None:
        """End the worker, from any thread."""
        self._work.close()


def warm() -> None:
    """Have a database ready: to make one takes as long as a small query."""
    database = duckdb.connect(":memory:", config=UNLOCKED)
    database.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()
    _DATABASES.append(database)


def load() -> None:
    """Read DuckDB's list of functions once for all workers."""
    impure_functions()


limited.preload(_MODULE, once=load.__name__, warm=warm.__name__)
limited.preload("kubothek.storage.s3", if_loaded=True)


# --- in the worker ---------------------------------------------------------------------------------------------------


def _rows(ask: Ask, source: Source, statement: str, memory: str) -> Iterator[bytes]:
    query = _prepared(source.opened(ask), statement, memory)
    yield _head(query)
    yield from as_arrow(query.lines() if ask({_FORM: None}) == "lines" else query.rows())


def _shaped(ask: Ask, statement: str, memory: str, shape: Shape, lines: bool) -> Iterator[bytes]:
    query = _prepared(Places().opened(ask), statement, memory)
    yield _head(query)
    yield from shape(query.lines() if lines else query.rows())


def _prepared(opened: Opened, statement: str, memory: str) -> Query:
    database = new_database(memory, _DATABASES.pop() if _DATABASES else None)
    return _prepare(opened, statement, Limits(memory), database)


def _prepare(
    opened: Opened, statement: str, limits: Limits, database: duckdb.DuckDBPyConnection | None = None
) -> Query:
    return prepare(
        opened.stores,
        statement,
        opened.look,
        opened.names,
        limits,
        opened.restrict,
        plain=opened.plain,
        database=database,
        parsed=opened.parsed,
    )


def _head(query: Query) -> bytes:
    return orjson.dumps(query.reads, default=tuple) + b"\n"


# --- in the caller ---------------------------------------------------------------------------------------------------


def run(function: Any, *arguments: Any, limits: Limits, answer: Callable[[Any], Any] | None = None) -> Work:
    """As :func:`kubothek.sandbox.limited.run`, under the limits of a query."""
    return limited.run(
        function,
        *arguments,
        memory=memory_bytes(limits.memory) + HEADROOM,
        seconds=limits.seconds,
        named=partial(ended, limits),
        answer=answer,
    )


def in_process(source: OneStore, statement: str, limits: Limits) -> Query:
    """A statement that the user of this process wrote, where there are no workers. DuckDB keeps the limits as it can.

    Raises QueryInvalid.
    """
    return _prepare(source.opened(_no_question), statement, limits)


def _no_question(question: Any) -> Any:
    raise AssertionError(f"one store is asked nothing: {question}")


def ended(limits: Limits, cause: Cause) -> LakeError:
    """The error of a query whose process ended before it did."""
    if cause is Cause.TIME:
        return QueryInvalid(f"the query took longer than {limits.seconds:g} s and was stopped")
    if cause is Cause.MEMORY:
        return QueryInvalid(f"the query needs more than {limits.memory} of memory; select less")
    return QueryInvalid(
        f"the query ended its process: it needs more than {limits.memory} of memory, or is nested too deeply"
    )


def _header(work: Work) -> tuple[tuple[Read, ...], bytes]:
    """What is read, and bytes that follow. Raises LakeError."""
    data = b""
    while b"\n" not in data:
        data += next(work)
    head, _, rest = data.partition(b"\n")
    return tuple(Read(*read)._replace(filters=tuple(*read[5:])) for read in orjson.loads(head)), rest
