"""The Python door: datasets of one store as objects.

    lake = kubothek.open("file:///data/lake")
    flights = lake.create_dataset("flights", partition_on=["month"])
    flights.append(table)
    flights.replace(january, where="month = 1")
    flights.update({"carrier": "AA"}, where="carrier = 'US'", row_level=True)
    flights.delete("month < 3")
    flights.rollback(3)
    flights.compact()
    flights.scan(columns=["carrier"], where="month = 1", as_of=3).read_pandas()
    lake.dataset("planes").ledger.push(again(table))
    lake.sql("SELECT carrier, count(*) FROM flights GROUP BY 1").read_all()
    lake.cube("nyc").query(conditions="month = 1", payload_columns=["delay", "temp"]).to_pandas()

**Who may write.** A dataset that a Dataset resource has claimed is written through that resource only
(commit-protocol, "Ownership"): here it can be read, and a write is refused with OwnedByAnother. Datasets that
nobody has claimed are written by whoever has the store's credentials, any number at a time; this door never
claims one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.lake import operations
from kubothek.lake.collector import MAX_DELETES, Collection, Mode, Retention, collect
from kubothek.lake.commits import (
    AlreadyApplied,
    Change,
    Committed,
    DatasetLog,
    Operation,
    Record,
    Snapshot,
    Transaction,
    Version,
    keys,
)
from kubothek.lake.commits.compare import Comparison, compare
from kubothek.lake.commits.cubes.spec import CubeSpec
from kubothek.lake.commits.drafting import require_rows_open
from kubothek.lake.commits.reskip import Reskipped, reskip
from kubothek.lake.cube.discovery import cubes
from kubothek.lake.cube.handle import Cube
from kubothek.lake.cube.log import CubeLog
from kubothek.lake.errors import (
    DatasetExists,
    DatasetNotFound,
    IdReused,
    InputError,
    OwnedByAnother,
)
from kubothek.lake.indices import Dialect, IndexChange, IndexKind, check_indexable
from kubothek.lake.ledger import Level
from kubothek.lake.ledger.asking import BLOCK, happened_until, version_of
from kubothek.lake.ledger.events import DatasetSnapshot
from kubothek.lake.ledger.identity import OwnerKey
from kubothek.lake.ledger.root import Root, create
from kubothek.lake.ledger.root import Table as LedgerTable
from kubothek.lake.maintenance import (
    Compaction,
    CompactionPlan,
    Healed,
    Health,
    Wish,
    compact,
    heal,
    health,
    plan_compaction,
)
from kubothek.lake.operations import Rows
from kubothek.lake.predicates import Filter, Predicate, as_predicate
from kubothek.lake.schema import normalise, parse_type, require_distinct
from kubothek.lake.skipping.change import SkippingChange
from kubothek.lake.skipping.indexes import check as check_skipping
from kubothek.lake.skipping.model import IndexDefinition, SkippingState
from kubothek.lake.sql import Look, Query, TableScan, prepare
from kubothek.lake.store import Store
from kubothek.lake.table.clustering import Clustering
from kubothek.lake.table.layout import ROW_GROUP_ROWS, TARGET_FILE_BYTES, Layout
from kubothek.lake.table.partitioning import check_new_table
from kubothek.lake.table.plan import Plan, plan
from kubothek.lake.table.scan import arrow_dataset, scan
from kubothek.lake.verification import DatasetVerdict, verify_dataset

Where: TypeAlias = Filter
"""A filter: SQL text (``month = 3 AND carrier IN ('AA', 'UA')``), kartothek's lists of tuples, or a predicate."""
Done: TypeAlias = Committed | AlreadyApplied
OnConflict: TypeAlias = Literal["Fail", "Retry"]
Maker: TypeAlias = Callable[[Snapshot], Change]

_Choice = TypeVar("_Choice", bound=StrEnum)

_HEAD_ENDS: Final = (keys.head(""), keys.packed_head(""))
_BY: Final = "python"
_USUAL_VIEW: Final = LedgerTable()
_CREATE_ID: Final = "python:create"
"""One id for every creation of a dataset, so that of two at once one is refused."""


class Lake:
    """The datasets in one store. Cheap to make; contacts the store only when asked for something."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"Lake({self.store.url!r})"

    @cached_property
    def _conditional_writes(self) -> bool:
        return self.store.probe().conditional_writes

    def datasets(self) -> list[str]:
        """The names of the datasets, sorted; one listing of the store's root, whatever lies below it.

        A deleted dataset is named as long as its head is there; :meth:`dataset` tells.
        """
        names = self.store.list_names("")
        return sorted({name.removesuffix(end) for name in names for end in _HEAD_ENDS if name.endswith(end)})

    def dataset(self, name: str, *, table: str | None = None, raw: bool = False) -> Dataset:
        """A dataset that exists, whoever wrote it. Raises DatasetNotFound.

        Of a dataset of a cube, readers see the version that belongs to the cube now; ``raw`` asks for its own head.
        ``table`` names one of the tables that kartothek may have put into one dataset; in SQL and on the command
        line such a table is called ``"<name>/<table>"``. They can be read; see ``kubothek adopt --convert``.
        """
        dataset = Dataset(self, name, table, raw=raw)
        dataset.snapshot()
        return dataset

    def cubes(self) -> list[str]:
        """The prefixes of datasets whose names have one, sorted; whether they make a cube, :meth:`cube` tells."""
        return cubes(self.store)

    def cube(self, prefix: str) -> Cube:
        """A cube that exists, whoever wrote it. Raises DatasetNotFound, CubeInvalid."""
        cube = Cube(self.store, self._cube_log(prefix))
        cube.snapshot()
        return cube

    def create_cube(
        self,
        prefix: str,
        *,
        dimension_columns: Sequence[str] | str,
        partition_columns: Sequence[str] | str,
        seed_dataset: str = "seed",
        index_columns: Iterable[str] | str = (),
        suppress_index_on: Iterable[str] | str = (),
    ) -> Cube:
        """Say what a cube is to be; :meth:`Cube.build` makes it, and nothing is written before.

        ``dimension_columns``  columns that together name a cell, in the order in which rows are sorted
        ``partition_columns``  columns that partition the seed
        ``seed_dataset``       the dataset that says which cells there are
        ``index_columns``      further columns with an index, wherever they occur
        ``suppress_index_on``  dimensions without an index on the seed

        Raises CubeInvalid, which names the rule, and DatasetExists.
        """
        spec = CubeSpec.of(
            prefix,
            dimension_columns=dimension_columns,
            partition_columns=partition_columns,
            seed_dataset=seed_dataset,
            index_columns=index_columns,
            suppress_index_on=suppress_index_on,
        )
        cube = Cube(self.store, self._cube_log(prefix), spec)
        try:
            cube.snapshot()
        except DatasetNotFound:
            return cube
        raise DatasetExists(f"there is a cube {prefix!r} in {self.store.url} already; lake.cube({prefix!r}) opens it")

    def _cube_log(self, prefix: str) -> CubeLog:
        return CubeLog(self.store, prefix, unowned_only=True, by=_BY, before_writing=self._require_conditional_writes)

    def _require_conditional_writes(self) -> None:
        if not self._conditional_writes:
            raise OwnedByAnother(f"{self.store.url} has no conditional writes: only the owner of a cube may write it")

    def create_dataset(
        self,
        name: str,
        partition_on: Sequence[str] = (),
        schema: pa.Schema | Mapping[str, str] | None = None,
        *,
        sort_by: Sequence[str] = (),
        bucket_by: Sequence[str] = (),
        num_buckets: int = 0,
        target_file_size: int = TARGET_FILE_BYTES,
        row_group_rows: int = ROW_GROUP_ROWS,
        compression: str = "ZSTD",
        dictionary_columns: Sequence[str] | None = None,
        indices: Sequence[str] | Mapping[str, IndexKind | str] = (),
        dialect: Dialect | str = Dialect.KARTOTHEK,
        skipping: Sequence[IndexDefinition] = (),
    ) -> Dataset:
        """Commit an empty dataset, with the layout that all its writers will keep.

        ``partition_on``        columns whose values become directories; cannot be changed later
        ``schema``              types, or names of types (``{"day": "date32"}``); None = those of the first append
        ``sort_by``             columns by which the rows of each file ascend
        ``bucket_by``           columns whose values decide in which of ``num_buckets`` files a row is
        ``target_file_size``    bytes at which a data file is closed
        ``row_group_rows``      rows of a row group at most
        ``compression``         of the files: ZSTD, SNAPPY, GZIP, BROTLI, LZ4 or NONE
        ``dictionary_columns``  columns that are dictionary-encoded; None = all, as far as it pays
        ``indices``             columns with a secondary index: names, or the kind by name, Native (the default) or
                                Kartothek; see :class:`~kubothek.lake.indices.IndexKind`
        ``dialect``             which library besides Kubothek shall be able to write to a table with a Kartothek index
                                on strings: Kartothek or Plateau
        ``skipping``            what files are described by, so that queries open fewer: see :meth:`set_skipping`

        Raises DatasetExists; SchemaMismatch, PartitionInvalid, LayoutInvalid, IndexInvalid or SkippingInvalid for an
        impossible table.
        """
        require_distinct(partition_on)
        layout = Layout(
            partition_on=tuple(partition_on),
            sort_by=tuple(sort_by),
            bucket_by=tuple(bucket_by),
            num_buckets=num_buckets,
            target_file_bytes=target_file_size,
            row_group_rows=row_group_rows,
            compression=compression,
            dictionary_columns=None if dictionary_columns is None else tuple(dictionary_columns),
        )
        wanted = _index_kinds(indices)
        stored = None if schema is None else normalise(_arrow_schema(schema), partition_on)
        if stored is not None:
            check_new_table(stored, partition_on)
            layout.check(stored)
            check_indexable(stored, partition_on, wanted.items())
            check_skipping(skipping, stored, partition_on)
        dataset = Dataset(self, name)
        exists = DatasetExists(f"there is a dataset {name!r} in {self.store.url} already; append to it instead")
        try:
            started = dataset._log(writing=True).begin(_CREATE_ID, uuid4().hex)
            assert isinstance(started, Transaction), "the digest is new"
            if started.snapshot.exists:
                raise exists
            started.commit(
                Change(
                    operation=Operation.CREATE,
                    schema=stored,
                    partition_keys=tuple(partition_on),
                    layout=layout.to_json(),
                    index=IndexChange(wanted=wanted, dialect=_one_of(Dialect, "dialect", dialect)),
                    skipping=SkippingChange(wanted=SkippingState(tuple(skipping))),
                    by=_BY,
                )
            )
        except IdReused as error:
            raise exists from error
        return dataset

    def create_ledger(
        self, name: str, snapshot: DatasetSnapshot, owner: OwnerKey, *, table: LedgerTable | None = _USUAL_VIEW
    ) -> Dataset:
        """Commit a dataset with a chain that begins with the events of a snapshot, as Open Data Fabric has them.

        ``snapshot``  ``read_snapshot(text)`` reads one from YAML
        ``owner``     whose public half becomes the dataset's identity; keep it: ``owner_key_file(path)``
        ``table``     how its current state lies; None = there is to be no table

        Raises DatasetExists, EventInvalid.
        """
        dataset = Dataset(self, name)
        create(self.store, dataset._log(writing=True), snapshot, owner, table=table, by=_BY)
        return dataset

    def sql(
        self, statement: str, as_of: Version | None = None, *, as_at: datetime | None = None
    ) -> pa.RecordBatchReader:
        """The rows of one SELECT over the store's datasets, as a stream; ``.read_all()`` makes a table of it.

        A name that is no plain word is quoted: ``SELECT * FROM "sales-2"``. ``as_of`` is the version, time or tag at
        which every dataset is read that does not say so itself: ``FROM flights AS OF VERSION 3``, ``FROM flights AS OF
        TIMESTAMP '2026-11-21 14:00' f``, ``FROM flights AS OF TAG 'audit'``. The hash of a ledger's block is a version,
        too. ``as_at`` leaves of ledgers the rows whose event time is not after it. Raises QueryInvalid,
        VersionNotFound.
        """
        return self._prepare(statement, as_of, as_at).rows()

    def explain(self, statement: str, as_of: Version | None = None) -> tuple[TableScan, ...]:
        """What :meth:`sql` would read: of each dataset the version, and how many files each step of planning leaves.

        Reads metadata only.
        """
        return self._prepare(statement, as_of).scans

    def _prepare(self, statement: str, as_of: Version | None, as_at: datetime | None = None) -> Query:
        restrict = None if as_at is None else happened_until(self.store, as_at)
        return prepare(self.store, statement, self.look(as_of), self.datasets, restrict=restrict)

    def look(self, as_of: Version | None = None) -> Look:
        """How SQL finds datasets; those that say no version of their own are read at ``as_of``."""

        def look(name: str, own: Version | None) -> Snapshot:
            uuid, _, table = name.partition("/")
            wanted = as_of if own is None else own
            dataset = Dataset(self, uuid, table or None)
            if isinstance(wanted, str) and wanted.startswith(BLOCK):
                wanted = version_of(dataset._log(), wanted)
            return dataset.snapshot(wanted)

        return look


class Dataset:
    """One dataset. Every call sees its present version, unless ``as_of`` asks for another.

    ``as_of``  a version number, a time at which it was current (a ``datetime``; without time zone: UTC), or a tag of it
    """

    def __init__(self, lake: Lake, name: str, table: str | None = None, *, raw: bool = False) -> None:
        self.name = keys.check_uuid(name)
        self._table = table
        self._raw = raw
        self._lake = lake
        self._store = lake.store

    def __repr__(self) -> str:
        name = self.name if self._table is None else f"{self.name}/{self._table}"
        return f"Dataset({name!r} in {self._store.url!r})"

    # --- reading ---

    def snapshot(self, as_of: Version | None = None) -> Snapshot:
        """One version's head, schema and totals. Raises DatasetNotFound, VersionNotFound, VersionIncomplete."""
        return self._log().snapshot(as_of, table=self._table, raw=self._raw)

    @property
    def version(self) -> int:
        """The number of the present version."""
        return self.snapshot().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the present version, as stored; none if nothing has said what they are."""
        return _schema_of(self.snapshot())

    @property
    def layout(self) -> Layout:
        """How the next write lays out files. Raises LayoutInvalid if another program damaged what the head says."""
        return Layout.of(self.snapshot().head)

    @property
    def rows(self) -> int:
        """The number of rows of the present version; files are looked at only if another program wrote last."""
        totals = self.snapshot().totals
        return totals.rows if totals else self.arrow_dataset().count_rows()

    def history(self) -> Iterator[Record]:
        """The commits, newest first, read as they are asked for."""
        return self._log().history()

    def diff(self, before: Version, after: Version | None = None) -> Comparison:
        """What lies between two versions: rows and files by partition, columns, indices. ``after`` None = the present.

        Raises VersionNotFound, VersionIncomplete.
        """
        return compare(self._store, self._log(), self.snapshot(before), self.snapshot(after))

    def arrow_dataset(self, as_of: Version | None = None) -> ds.FileSystemDataset:
        """One version as a pyarrow dataset, for everything that reads those."""
        snapshot = self.snapshot(as_of)
        return arrow_dataset(self._store, snapshot.head, _schema_of(snapshot))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream, in bounded memory; ``.read_all()`` or ``.read_pandas()`` collect it.

        Files that cannot hold rows for which ``where`` is TRUE are not opened: see :meth:`plan`. Raises FilterInvalid
        for one that does not fit the schema, InputError for columns that are not there.
        """
        predicate = None if where is None else as_predicate(where)
        return scan(self._store, self.snapshot(as_of), columns, predicate)

    def plan(self, where: Where | None = None, as_of: Version | None = None) -> Plan:
        """Which files :meth:`scan` would open, and how many files each step of finding them left."""
        predicate = None if where is None else as_predicate(where)
        return plan(self._store, self.snapshot(as_of), predicate)

    # --- writing ---

    def append(self, data: Rows, *, evolve: bool = False, id: str | None = None) -> Done:  # noqa: A002
        """Add rows in one commit, streaming them to storage; returns the new version and its totals.

        ``data``    a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame (without its index), anything
                    with the Arrow stream interface, or an iterable of Tables or RecordBatches of one schema
        ``evolve``  the table takes new columns, which are null in older rows, and decimals with more digits; columns
                    that the data lacks are null in the new rows
        ``id``      names this append for ever: appending under it again does nothing and returns what the first one
                    did, so a program that may have crashed in between can just run again. It stands for the data,
                    which is not compared. None = every call appends

        Integers, floats and strings are widened, time zones become UTC. Raises SchemaMismatch, DataTypeMismatch,
        PartitionInvalid, SourceEmpty, OwnedByAnother with the dataset as before.
        """

        def start(now: Transaction) -> Maker:
            written = self._written(now, data, now.snapshot.schema, evolve=evolve)
            return lambda _: operations.append(written, by=_BY)

        return self._commit("append", id, (), start)

    def replace(
        self,
        data: Rows,
        *,
        where: Where | None = None,
        evolve: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Put rows in the place of whole partitions, in one commit.

        ``where``        on partition columns: which are replaced, and what every row must satisfy; None = those that
                         the rows touch. ``"TRUE"`` is all; any other that selects everything is refused
        ``evolve``       as for :meth:`append`
        ``id``           as for :meth:`append`; stands for the data, but not for ``where``
        ``on_conflict``  what to do if another commit changed these partitions meanwhile: fail with Conflict, or
                         replace what is there by then

        Raises what :meth:`append` raises; FilterInvalid, FilterMatchesAll, FilterNotMet, Conflict.
        """
        bound = None if where is None else as_predicate(where)

        def start(now: Transaction) -> Maker:
            def check(schema: pa.Schema) -> Predicate | None:
                partition_on = now.snapshot.head.partition_keys
                return operations.check_replace(self._store, now.snapshot, schema, partition_on, bound)

            written = self._written(now, data, now.snapshot.schema, check, evolve=evolve)
            return lambda snapshot: operations.replace(self._store, snapshot, written, bound, by=_BY)

        return self._commit("replace", id, (bound,), start, on_conflict)

    def overwrite(
        self,
        data: Rows,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Put rows in the place of all rows, in one commit; the old ones stay in the history.

        ``allow_schema_change``  columns that do not go with those of the table take their place. Foreign readers may
                                 see the new files and the old schema for a moment

        Raises what :meth:`append` raises, and Conflict if there was any other commit meanwhile.
        """

        def start(now: Transaction) -> Maker:
            with operations.fitting(now.snapshot, allow_schema_change=allow_schema_change) as table:
                written = self._written(now, data, table)
            return lambda snapshot: operations.overwrite(
                snapshot, written, allow_schema_change=allow_schema_change, by=_BY
            )

        return self._commit("overwrite", id, (allow_schema_change,), start, on_conflict)

    def delete(
        self,
        where: Where,
        *,
        row_level: bool = False,
        purge: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Take away the rows for which ``where`` is TRUE, in one commit; one that changes nothing if there are none.

        ``row_level``  rewrite the files that hold other rows as well; without it only whole files go, and a filter
                       that selects rows inside of files is refused with RowLevelNeeded
        ``purge``      all versions before it expire with it: they cannot be read or rolled back to, and the first
                       :meth:`collect` after the grace period deletes what holds such rows. Refused with VersionTagged
                       as long as versions have tags
        ``id``         as for :meth:`append`; what matches later is not deleted by running it again

        Raises FilterInvalid, RowLevelNeeded, FilterMatchesAll (``"TRUE"`` is all), Conflict, OwnedByAnother.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.delete(
                self._store, snapshot, bound, rewriter=rewriter, purge=purge, by=_BY
            )

        says = (bound, row_level, "purge") if purge else (bound, row_level)
        return self._commit("delete", id, says, start, on_conflict)

    def update(
        self,
        values: Mapping[str, Any],
        *,
        where: Where,
        row_level: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Give the rows for which ``where`` is TRUE other values, in one commit: ``{"carrier": "AA", "delay": None}``.

        ``row_level``  must say that files are rewritten: those that hold such rows

        Rows whose partition columns change move. Raises what :meth:`delete` raises; InputError, FilterInvalid or
        PartitionInvalid for values that do not fit.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.update(self._store, snapshot, bound, values, rewriter=rewriter, by=_BY)

        return self._commit("update", id, (bound, sorted(values.items()), row_level), start, on_conflict)

    def rollback(
        self,
        to: Version,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Bring back the files of a version, a time or a tag, as a new version.

        ``allow_schema_change``  also where that version's columns do not go with those of the table

        Raises VersionNotFound, VersionIncomplete, SchemaMismatch, and Conflict if there was any other commit meanwhile.
        """
        log = self._log(writing=True)

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.rollback(
                self._store, log, snapshot, to, allow_schema_change=allow_schema_change, by=_BY
            )

        return self._commit("rollback", id, (to, allow_schema_change), start, on_conflict)

    def set_layout(self, layout: Layout, *, id: str | None = None) -> Done:  # noqa: A002
        """Lay out files in another way from the next write on: ``replace(dataset.layout, sort_by=("carrier",))``.

        Files that are there stay as they are. Raises LayoutInvalid, and PartitionInvalid for other partition columns.
        """

        def start(_: Transaction) -> Maker:
            def make(snapshot: Snapshot) -> Change:
                wanted = Layout.of(snapshot.head, layout)
                if snapshot.schema is not None:
                    wanted.check(snapshot.schema)
                return Change(operation=Operation.LAYOUT, layout=wanted.to_json(), by=_BY)

            return make

        return self._commit("layout", id, (layout,), start)

    # --- the ledger ---

    @property
    def ledger(self) -> Root:
        """The chain behind the table, and what comes into it: ``dataset.ledger.push(again(rows))``. docs/ledger.md.

        Raises NotALedger, OwnedByAnother.
        """
        return Root(self._store, self._log(writing=True), by=_BY)

    # --- maintenance ---

    @property
    def skipping(self) -> tuple[IndexDefinition, ...]:
        """What the files are described by, so that queries open only those that may hold a match."""
        return self.snapshot().head.skipping.indices

    def set_skipping(self, indices: Sequence[IndexDefinition] | SkippingState, *, rebuild: bool = False) -> Reskipped:
        """Describe the files by these indices, ``[IndexDefinition("MinMax", ("delay",))]``, and no others.

        One commit. MinMax, ValueList and BloomFilter are Xskipper's, which reads them too. Files that are there are
        looked at: their footers, and columns of which these do not tell. ``rebuild``: also those that have been
        described.
        Raises SkippingInvalid for an index that a column cannot have, OwnedByAnother.
        """
        wanted = indices if isinstance(indices, SkippingState) else SkippingState(tuple(indices))
        return reskip(self._store, self._log(writing=True), wanted, rebuild=rebuild, by=_BY)

    def tags(self) -> dict[str, int]:
        """The versions that have a name, by name."""
        return self._log().tags()

    def tag(self, name: str, version: int | None = None) -> int:
        """Give a version a name, by which it can be read: it stays whole and readable, whatever else expires.

        ``name``     a letter, then letters, digits, ``-``, ``_`` or ``.``; another version that has it loses it
        ``version``  None = the present one

        Returns the version's number. Raises VersionNotFound, VersionIncomplete, InputError for a name, OwnedByAnother.
        """
        return self._log(writing=True).tag(name, version)

    def untag(self, name: str) -> None:
        """Take a tag away, if it is there. Raises OwnedByAnother."""
        self._log(writing=True).untag(name)

    def health(self) -> Health:
        """How the files are, and what only history holds; worked out from commit records."""
        return health(self._store, self._log(), self.snapshot())

    def heal(self) -> Healed:
        """Make anew what is derived from the data and is missing or lags; say which data files are lost.

        Lists the data files; works beside all readers and writers. Raises VersionIncomplete if the schema is lost,
        OwnedByAnother.
        """
        return heal(self._store, self._log(writing=True), by=_BY)

    def verify(self, version: Version | None = None, *, level: Level = Level.FULL) -> DatasetVerdict:
        """Whether chain, files and indices are what was committed, and the first thing that is not.

        Reads all of the version; changes nothing. Raises VersionNotFound.
        """
        return verify_dataset(self._store, self._log(), version=version, level=level)

    def collect(
        self,
        *,
        keep_versions: int | None = None,
        keep_for: timedelta | None = None,
        enforce: bool = False,
        max_deletes: int = MAX_DELETES,
        grace: timedelta | None = None,
    ) -> Collection:
        """Delete what no version needs any more; without ``enforce``, say what that would be.

        ``keep_versions``  so many of the newest versions stay, and can be read and rolled back to
        ``keep_for``       versions that were current within this time stay. With both, what either keeps; with neither,
                           every version: only what crashes left behind goes
        ``max_deletes``    with more objects than these to delete, none is (TooManyDeletes)
        ``grace``          how old everything must be that goes, if longer than the store's own period

        Works beside all readers and writers, and may be run again after any failure.
        """
        return collect(
            self._store,
            self._log(writing=True),
            [Retention(keep_versions, keep_for)],
            mode=Mode.ENFORCE if enforce else Mode.DRY_RUN,
            max_deletes=max_deletes,
            grace=grace,
        )

    def plan_compaction(
        self,
        *,
        where: Where | None = None,
        target_file_size: int | None = None,
        min_files: int = 2,
        min_small_share: float = 0.0,
        sort_by: Sequence[str] = (),
        z_order_by: Sequence[str] = (),
    ) -> CompactionPlan:
        """What :meth:`compact` would rewrite; reads metadata only."""
        wish = _wish(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        return plan_compaction(self._store, self._log(), self.snapshot(), wish)

    def compact(
        self,
        *,
        where: Where | None = None,
        target_file_size: int | None = None,
        min_files: int = 2,
        min_small_share: float = 0.0,
        sort_by: Sequence[str] = (),
        z_order_by: Sequence[str] = (),
        id: str | None = None,  # noqa: A002
    ) -> Compaction:
        """Write small files of each partition once more, as fewer larger ones, in one commit that changes no row.

        ``where``             on partition columns: which partitions; None = all
        ``target_file_size``  bytes of the new files; None = that of the table's layout. Files below half of it are
                              small; others are not touched
        ``min_files``         small files that a partition, or each bucket of it, must have
        ``min_small_share``   of its files, the share that must be small, 0 to 1
        ``sort_by``           put the rows of each partition in order by these columns, across its files, so that a
                              filter on the first one opens few of them. All files count that are not in this order
                              yet, in place of small ones; those that are stay as they are, mostly
        ``z_order_by``        the same along a curve, for filters on any of up to 8 columns; not with ``sort_by``
        ``id``                as for :meth:`append`

        Partitions that other commits change meanwhile are left as they are then. Raises FilterInvalid, LayoutInvalid,
        VersionIncomplete if a file is gone, RowsChanged if the new files were not the same rows, OwnedByAnother.
        """
        wish = _wish(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        digest = sha256("\0".join(["kubothek python compact", str(wish)]).encode()).hexdigest()
        return compact(
            self._store,
            self._log(writing=True),
            wish,
            commit_id=id or f"python:compact:{uuid4()}",
            digest=digest,
            by=_BY,
        )

    def _commit(
        self,
        verb: str,
        commit_id: str | None,
        says: Sequence[object],
        start: Callable[[Transaction], Maker],
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Make one change, once; ``says`` is what tells it from another one under the same id."""
        if on_conflict not in get_args(OnConflict):
            raise InputError(f"on_conflict is {on_conflict!r}; use one of {', '.join(get_args(OnConflict))}")
        digest = sha256("\0".join([f"kubothek python {verb}", *map(str, says)]).encode()).hexdigest()
        log = self._log(writing=True)
        started = log.begin_new(f"python:{verb}", digest) if commit_id is None else log.begin(commit_id, digest)
        if isinstance(started, AlreadyApplied):
            return started
        if not started.snapshot.exists:
            raise DatasetNotFound(f"there is no dataset {self.name!r} in {self._store.url}; create it first")
        make = start(started)
        again = make if on_conflict == "Retry" else None
        return started.commit(make(started.snapshot), on_conflict=again, on_compaction=make)

    def _written(
        self,
        now: Transaction,
        data: Rows,
        table: pa.Schema | None,
        check: operations.Check = lambda schema: None,
        *,
        evolve: bool = False,
    ) -> operations.Written:
        require_rows_open(now.snapshot.head)
        written = operations.write_rows(self._store, now.snapshot, data, table=table, evolve=evolve, check=check)
        now.note_written(written.files[0].key)
        return written

    def _log(self, *, writing: bool = False) -> DatasetLog:
        if not writing or self._lake._conditional_writes:
            return self._kept_log
        return DatasetLog(self._store, self.name, unowned_only=True, conditional_writes=False)

    @cached_property
    def _kept_log(self) -> DatasetLog:
        """One for all calls: it remembers the head, and asks the store only whether it is still there."""
        return DatasetLog(self._store, self.name, unowned_only=True)


def _wish(
    where: Where | None,
    target: int | None,
    min_files: int,
    min_small_share: float,
    sort_by: Sequence[str],
    z_order_by: Sequence[str],
) -> Wish:
    if sort_by and z_order_by:
        raise InputError("a compaction has one order: leave out sort_by or z_order_by")
    columns = tuple(sort_by or z_order_by)
    return Wish(
        where=None if where is None else as_predicate(where),
        target_bytes=target,
        min_files=min_files,
        min_small_share=min_small_share,
        clustering=Clustering(columns, curve=bool(z_order_by)) if columns else None,
    )


def _schema_of(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def _index_kinds(indices: Sequence[str] | Mapping[str, IndexKind | str]) -> dict[str, IndexKind]:
    if isinstance(indices, Mapping):
        return {column: _one_of(IndexKind, f"index on {column!r}", kind) for column, kind in indices.items()}
    require_distinct(indices)
    return dict.fromkeys(indices, IndexKind.NATIVE)


def _one_of(choices: type[_Choice], what: str, value: str) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        raise InputError(f"{what}: {value!r} is none of {', '.join(choices)}") from None


def _arrow_schema(schema: pa.Schema | Mapping[str, str]) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([pa.field(name, parse_type(type_name)) for name, type_name in schema.items()])
