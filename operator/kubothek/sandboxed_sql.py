"""Untrusted SQL: parsed, planned and run in a worker process, under limits that the kernel enforces.

:mod:`kubothek.sql` checks a statement and isolates it from other data, but enforces no limits. DuckDB can be
interrupted only between two batches, not in a function call, in constant folding or in planning, and it counts only the
memory of its buffers. So the process that receives a text from a tenant or a client never gives it to DuckDB: a worker
does (:mod:`kubothek.sandbox.limited`), and sends the rows.

A worker may use :data:`HEADROOM` beyond the limit of the statement, for reads of files, which DuckDB does not count.
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
from kubothek.in_memory_database import in_memory_database
from kubothek.odf.time_axes import happened_until
from kubothek.sandbox import limited
from kubothek.sandbox.arrow import as_arrow, from_arrow
from kubothek.sandbox.limited import Ask, Cause, Work
from kubothek.sql import FindSnapshot, Limits, Query, Restrict, prepare
from kubothek.sql.query import memory_bytes, new_database
from kubothek.sql.read import Read
from kubothek.sql.statement import impure_functions
from kubothek.storage import Store
from kubothek.storage.file import FileStore
from kubothek.table.log import Snapshot, Version

HEADROOM: Final = 256 << 20
"""Bytes of a worker's address space beyond the limit of the statement."""
_MODULE: Final = __name__
_DATABASES: Final[list[duckdb.DuckDBPyConnection]] = []
"""In a waiting worker: the database for its statement."""
_NAMES: Final = "names"
_TABLES: Final = "tables"
_FORM: Final = "form"

Shape = Callable[[pa.RecordBatchReader], Iterator[bytes]]
"""Encodes the rows as bytes, in the worker."""


class Opened(NamedTuple):
    """Arguments of :func:`kubothek.sql.prepare` for a statement."""

    stores: Store | Callable[[str], Store]
    find: FindSnapshot
    names: Callable[[], Iterable[str]]
    restrict: Restrict | None = None
    plain: bool = True
    parsed: Callable[[int], None] | None = None


class Source(Protocol):
    """Provider of datasets in the worker; it is pickled."""

    def opened(self, ask: Ask) -> Opened: ...


@dataclass(frozen=True)
class OneStore:
    """All datasets of a store at ``as_of``; for ledgers, only events until ``as_at``."""

    store: Store
    as_of: Version | None = None
    as_at: datetime | None = None

    def opened(self, ask: Ask) -> Opened:
        """Return the arguments, without a question to the caller."""
        lake = Lake(self.store)
        restrict = None if self.as_at is None else happened_until(self.store, self.as_at)
        return Opened(self.store, lake.look(self.as_of), lake.datasets, restrict)


@dataclass(frozen=True)
class RemoteLookup:
    """Datasets that the caller finds and authorises by name."""

    def opened(self, ask: Ask) -> Opened:
        """Return the arguments, which ask the caller's :class:`Finder`."""
        stores: dict[str, Store] = {}

        def find(name: str, version: Version | None) -> Snapshot:
            dataset, slash, table = name.partition("/")
            stores[name], uuid = ask({"dataset": dataset})
            return Lake(stores[name]).look()(f"{uuid}{slash}{table}", version)

        return Opened(
            stores.__getitem__,
            find,
            partial(ask, {_NAMES: None}),
            plain=False,
            parsed=lambda tables: ask({_TABLES: tables}),
        )


def expect(store: Store) -> None:
    """Prepare workers for this store: creating an S3 client takes longer than a small query."""
    if not isinstance(store, FileStore):
        limited.ahead(type(store).connect, store)


class Finder(Protocol):
    """The caller's side of :class:`RemoteLookup`. Each method may raise a LakeError."""

    def begin(self, tables: int, /) -> None:
        """Handle the number of datasets that the statement names."""

    def find(self, name: str, /) -> tuple[Store, str]:
        """Return a dataset's store and name there. Raises DatasetNotFound, also if the caller must not see it."""

    def names(self) -> list[str]:
        """Return the names that a message may contain."""


class LimitedQuery:
    """A statement planned in a worker; ``reads`` is what it reads."""

    def __init__(self, source: Source, statement: str, limits: Limits) -> None:
        """Plan the statement in a worker. Raises LakeError."""
        self._form = ""
        if isinstance(source, OneStore):
            expect(source.store)
        self._work = run(_rows, source, statement, limits.memory, limits=limits, answer=lambda question: self._form)
        self.reads, rest = _header(self._work)
        assert not rest, "the worker waits for the form"

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, once. Raises LakeError, also from the stream."""
        return self._stream("rows")

    def lines(self) -> pa.RecordBatchReader:
        """Return lines as :meth:`kubothek.sql.Query.lines` does."""
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
    """The rows of a statement as bytes from a worker. ``reads`` is set with the first bytes."""

    def __init__(self, statement: str, shape: Shape, limits: Limits, finder: Finder, *, lines: bool) -> None:
        """Start the statement. Raises LakeError.

        ``shape``  a function of a module, as it is pickled
        ``lines``  whether ``shape`` gets rows as JSON, or as columns
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
        """Return the next bytes. Raises LakeError."""
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
    """Create a database in advance, which takes as long as a small query."""
    database = in_memory_database()
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
    query = _prepared(RemoteLookup().opened(ask), statement, memory)
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
        opened.find,
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
    """Run a function with :func:`kubothek.sandbox.limited.run`, under the limits of a query."""
    return limited.run(
        function,
        *arguments,
        memory=memory_bytes(limits.memory) + HEADROOM,
        seconds=limits.seconds,
        named=partial(ended, limits),
        answer=answer,
    )


def in_process(source: OneStore, statement: str, limits: Limits) -> Query:
    """Prepare a trusted statement, of this process's own user, without a worker. Only DuckDB enforces the limits.

    Raises QueryInvalid.
    """
    return _prepare(source.opened(_no_question), statement, limits)


def _no_question(question: Any) -> Any:
    raise AssertionError(f"one store is asked nothing: {question}")


def ended(limits: Limits, cause: Cause) -> LakeError:
    """Return the error of a query whose process ended early."""
    if cause is Cause.TIME:
        return QueryInvalid(f"the query took longer than {limits.seconds:g} s and was stopped")
    if cause is Cause.MEMORY:
        return QueryInvalid(f"the query needs more than {limits.memory} of memory; select less")
    return QueryInvalid(
        f"the query ended its process: it needs more than {limits.memory} of memory, or is nested too deeply"
    )


def _header(work: Work) -> tuple[tuple[Read, ...], bytes]:
    """Return what is read, and the bytes that follow. Raises LakeError."""
    data = b""
    while b"\n" not in data:
        data += next(work)
    head, _, rest = data.partition(b"\n")
    return tuple(Read(*read)._replace(filters=tuple(*read[5:])) for read in orjson.loads(head)), rest
