"""Run a checked statement, in a database that could do no harm even if the check missed something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from threading import Timer
from typing import Final, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.errors import DatasetNotFound, InputError, LakeError, QueryInvalid
from kubothek.external.location import PlainLocation, PlainPlan, open_location
from kubothek.in_memory_database import StreamErrors, in_memory_database, quoted
from kubothek.sql.changes import FUNCTION, Feed, FeedTable
from kubothek.sql.filters import needed_rows
from kubothek.sql.read import Read, as_json
from kubothek.sql.statement import Reference, Statement, parse
from kubothek.storage.base import Store
from kubothek.table.changes import plan_changes
from kubothek.table.expressions import TRUE, Predicate
from kubothek.table.log import DatasetLog, Snapshot, Version
from kubothek.table.log.multi.spec import SEPARATOR
from kubothek.table.scan.plan import Plan, Step, plan, skipped
from kubothek.table.scan.read import arrow_dataset, read_failure
from kubothek.table.skipping.prune.aggregate import Skipped
from kubothek.table.time_zones import zones_of

FindSnapshot: TypeAlias = Callable[[str, Version | None], Snapshot]
"""Function from a dataset's name and version (None = present) to its snapshot; raises DatasetNotFound,
VersionNotFound."""

Restrict: TypeAlias = Callable[[Snapshot], Predicate]
"""Function from a snapshot to the rows that a query may see, in columns of its stored schema; raises QueryInvalid."""

_BATCH_ROWS: Final = 65_536
_MOST_NAMES: Final = 10
_READ_FAILED: Final = "reading the stream registered as"
_INTERRUPTED: Final = "INTERRUPT Error"
_MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b", re.IGNORECASE)
_POWERS: Final = "kmgt"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a query. Nothing is spilled to disk.

    ``memory``   in DuckDB's notation
    ``seconds``  until its last row; None = unlimited
    """

    memory: str = "2GB"
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TableScan:
    """A query's scan of one dataset.

    ``version``  the version that is read; 0 for plain files
    ``where``    the rows that can affect the answer, by which files are selected
    ``steps``    the number of files after each step of planning; the first is the whole table
    """

    name: str
    version: int
    where: Predicate
    steps: tuple[Step, ...]

    @property
    def files(self) -> int:
        """The number of files that are opened."""
        return self.steps[-1].files_left

    @property
    def read(self) -> Read:
        """The record of the scan in the query's result."""
        return Read.of(self.name, self.version, self.steps, self.where)


class Query:
    """An allowed statement over existing datasets. Planning reads no rows."""

    def __init__(
        self,
        stores: Callable[[str], Store],
        database: duckdb.DuckDBPyConnection,
        statement: Statement,
        limits: Limits,
    ) -> None:
        self._stores = stores
        self._database = database
        self._statement = statement
        self._limits = limits
        self._datasets: dict[str, ds.FileSystemDataset] = {}
        self._errors = StreamErrors()
        self._skipped: dict[str, Callable[[], Skipped]] = {}
        self.scans: tuple[TableScan, ...] = ()

    def plan(
        self,
        find: FindSnapshot,
        names: Callable[[], Iterable[str]],
        restrict: Restrict | None = None,
        *,
        plain: bool = True,
    ) -> None:
        """Find the datasets, and their files that can affect the answer."""
        found: dict[str, Snapshot | PlainLocation | FeedTable] = {}
        for table in sorted(self._statement.outer):
            reference = self._statement.tables[table]
            if reference.feed is None:
                found[table] = _found(self._stores if plain else None, reference, find, names)
            elif restrict is None:
                found[table] = self._feed(reference.feed, find, names)
            else:
                raise QueryInvalid(f"{FUNCTION} cannot be restricted to event times; leave out --as-at (asAt)")
        schemas = {table: each.schema if each.schema is not None else pa.schema([]) for table, each in found.items()}
        needed = needed_rows(self._statement, schemas)
        self.scans = tuple(self._open(table, each, needed[table], restrict) for table, each in found.items())

    def _feed(self, feed: Feed, find: FindSnapshot, names: Callable[[], Iterable[str]]) -> FeedTable:
        """Find the dataset as any other, which also authorises its user; then plan its changes."""

        def found(version: Version | None) -> Snapshot:
            snapshot = _found(None, Reference(feed.name, version), find, names)
            assert isinstance(snapshot, Snapshot), "no plain files without a store"
            return snapshot

        # A number is left to the plan: a snapshot of it would look for all files of the version.
        last = found(None if isinstance(feed.after, int) else feed.after)
        before = feed.before if isinstance(feed.before, int) else found(feed.before).version
        after = feed.after if isinstance(feed.after, int) else last.version
        store = self._stores(feed.name)
        changes = plan_changes(DatasetLog(store, last.head.uuid), before, after, key=feed.key)
        if not len(changes.stored):
            raise QueryInvalid(f"version {changes.after} of dataset {feed.name!r} has no columns yet")
        return FeedTable(changes, store)

    def _open(
        self, table: str, found: Snapshot | PlainLocation | FeedTable, where: Predicate, restrict: Restrict | None
    ) -> TableScan:
        name = self._statement.tables[table].name
        if isinstance(found, FeedTable):
            self._datasets[table] = found.create(self._database, table, self._errors)
            return TableScan(name, found.changes.after, TRUE, (Step("files that differ", found.changes.files),))
        store = self._stores(name)
        planned: Plan | PlainPlan
        only: Predicate | None = None
        if isinstance(found, PlainLocation):
            planned, version = found.plan(where), 0
            dataset = found.dataset(planned)
            self._skipped[table] = partial(found.skipped, where, planned)
        else:
            if not len(_schema(found)):
                raise QueryInvalid(f"version {found.version} of dataset {name!r} has no columns yet")
            if restrict is not None:
                only = restrict(found)
                where = where & only
            planned, version, head = plan(store, found, where), found.version, found.head
            wanted = {file.label: head.partitions[file.label] for file in planned.files}
            dataset = arrow_dataset(store, replace(head, partitions=wanted), _schema(found))
            self._skipped[table] = partial(skipped, store, found, where, planned)
        self._datasets[table] = dataset
        zones = {} if isinstance(found, PlainLocation) else zones_of(found.head.metadata)
        zoned = [name for name in dataset.schema.names if zones.get(name)]
        stored = f"{table} as stored" if zoned else table
        self._database.register(stored, dataset if only is None else dataset.filter(only.expression()))
        if zoned:
            self._show_moments(table, stored, zoned)
        return TableScan(name, version, where, planned.steps)

    def _show_moments(self, table: str, stored: str, columns: Sequence[str]) -> None:
        """Make a view with these columns, naive UTC in files, as TIMESTAMPTZ."""
        moments = ", ".join(f"{column} AT TIME ZONE 'UTC' AS {column}" for column in map(quoted, columns))
        self._database.table(quoted(stored)).project(f"* REPLACE ({moments})").create_view(table)

    @property
    def reads(self) -> tuple[Read, ...]:
        """The records of the scans in the query's result."""
        return tuple(scan.read for scan in self.scans)

    def skipped(self) -> dict[str, Skipped]:
        """Return the savings of planning, by the dataset's name in the statement; lists files for their sizes."""
        return {table: told() for table, told in self._skipped.items()}

    def rows(self) -> pa.RecordBatchReader:
        """Run it, once; return the rows as a stream. Raises QueryInvalid, also from the stream."""
        return self._run(lambda relation: relation)

    def lines(self) -> pa.RecordBatchReader:
        """Run it, once; return each row as a JSON object in the one column of the stream. NaN and infinities are null.

        Raises SchemaMismatch if two columns have one name.
        """
        return self._run(as_json)

    def _run(self, shaped: Callable[[duckdb.DuckDBPyRelation], duckdb.DuckDBPyRelation]) -> pa.RecordBatchReader:
        timer = None
        if self._limits.seconds is not None:
            timer = Timer(self._limits.seconds, self._database.interrupt)
            timer.daemon = True
            timer.start()
        try:
            relation = self._database.sql(self._statement.text)
            reader = shaped(relation).to_arrow_reader(_BATCH_ROWS)
        except duckdb.Error as error:
            self._close(timer)
            raise self._failure(error) from error
        except LakeError:
            self._close(timer)
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader, timer))

    def _batches(self, reader: pa.RecordBatchReader, timer: Timer | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise self._failure(error) from error
        finally:
            self._close(timer)

    def _close(self, timer: Timer | None) -> None:
        if timer is not None:
            timer.cancel()
        self._database.close()

    def _failure(self, error: Exception) -> LakeError:
        if isinstance(original := self._errors.take(), LakeError):
            return original
        text = str(error)
        if _READ_FAILED in text and (not_empty := [each for each in self._datasets.items() if each[1].files]):
            table, dataset = not_empty[0]
            return read_failure(self._stores(self._statement.tables[table].name), dataset, error)
        if _INTERRUPTED in text:
            return QueryInvalid(f"the query took longer than {self._limits.seconds:g} s and was stopped")
        return QueryInvalid(_message(error, self._limits))


def prepare(
    store: Store | Callable[[str], Store],
    statement: str,
    find: FindSnapshot,
    names: Callable[[], Iterable[str]],
    limits: Limits = Limits(),
    restrict: Restrict | None = None,
    *,
    plain: bool = True,
    database: duckdb.DuckDBPyConnection | None = None,
    parsed: Callable[[int], None] | None = None,
) -> Query:
    """Parse, check and plan a SELECT.

    ``store``     the store of the datasets, or a function to it from a dataset's name, called after ``find``
    ``find``      finds the datasets that it names
    ``names``     all names, for the message about an unknown one
    ``restrict``  the rows of each dataset that it may see; None = all
    ``plain``     whether it may also name plain files
    ``database``  from :func:`new_database`; None: a new one with these limits
    ``parsed``    gets the number of datasets that it names, before anything is planned

    Raises QueryInvalid for anything but one SELECT over these datasets that DuckDB can answer within the limits.
    """
    database = new_database(limits.memory) if database is None else database
    try:
        found = parse(database, statement, feeds=True)
        if parsed is not None:
            parsed(len(found.outer))
        query = Query(store if callable(store) else lambda _: store, database, found, limits)
        query.plan(find, names, restrict, plain=plain)
    except duckdb.Error as error:
        database.close()
        raise QueryInvalid(_message(error, limits)) from error
    except BaseException:
        database.close()
        raise
    return query


def _message(error: Exception, limits: Limits) -> str:
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"the query needs more than {limits.memory} of memory; select less"
    return str(error)


def new_database(memory: str, database: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
    """Return an isolated in-memory database with this memory limit.

    ``database``  an unlocked one, which is locked and returned
    """
    if database is None:
        database = in_memory_database()
    # A fixed time zone instead of the machine's: answers are the same everywhere.
    database.execute("SET TimeZone = 'UTC'")
    database.execute(f"SET memory_limit = '{memory_bytes(memory)}B'")
    database.execute("SET lock_configuration = true")
    return database


def memory_bytes(text: str) -> int:
    """Return the bytes of a memory size in DuckDB's notation: 1GB, 512MiB. Raises InputError."""
    if (found := _MEMORY.fullmatch(text.strip())) is None:
        raise InputError(f"{text!r} is no amount of memory; write 512MB or 1GiB")
    number, unit, binary = found.groups()
    power = _POWERS.index(unit.lower()) + 1 if unit else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def _found(
    stores: Callable[[str], Store] | None,
    reference: Reference,
    find: FindSnapshot,
    names: Callable[[], Iterable[str]],
) -> Snapshot | PlainLocation:
    """Return the dataset of this name, else the plain location of this name in its store. Raises QueryInvalid."""
    try:
        return find(reference.name, reference.as_of)
    except (DatasetNotFound, InputError) as error:
        if stores is not None and reference.as_of is None and (place := _location(stores, reference.name)) is not None:
            return place
        known = list(names())
        if parts := [each for each in known if each.startswith(f"{reference.name}{SEPARATOR}")]:
            raise QueryInvalid(
                f"{reference.name!r} is a cube, not a dataset; select from its datasets "
                f"{', '.join(map(quoted, parts[:_MOST_NAMES]))}, or ask it with `kubothek cube query`"
            ) from error
        if reference.name in known:  # it exists, and cannot be read as one table
            raise QueryInvalid(str(error)) from error
        near = get_close_matches(reference.name, known, n=_MOST_NAMES) or known[:_MOST_NAMES]
        hint = f"there is {', '.join(map(repr, near))}" if near else "the store has none yet"
        raise QueryInvalid(f"no dataset {reference.name!r}; {hint}") from error


def _location(stores: Callable[[str], Store], name: str) -> PlainLocation | None:
    """Return the plain location of this name, if there is one."""
    try:
        return open_location(stores(name), name)
    except DatasetNotFound:
        return None


def _schema(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema
