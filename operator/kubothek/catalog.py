"""The Python API: datasets of one store as objects.

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

**Ownership.** A dataset that a Dataset resource has claimed is written only through that resource, and by the writers
that its ``spec.writers`` names (commit-protocol, "Ownership"): others can read it, and a write is rejected with
OwnedByAnother. Any number of users with the store's credentials can concurrently write datasets without a claim; this
API never claims one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from kubothek.cube.discovery import cubes
from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeLog
from kubothek.dataset import CommitResult, Dataset, OnConflict, Where, moving
from kubothek.dataset.columns import arrow_schema
from kubothek.dataset.moving import CREATE_ID
from kubothek.dataset.upkeep import index_kinds, one_of
from kubothek.errors import DatasetExists, DatasetNotFound, IdReused, InputError, OwnedByAnother
from kubothek.identity import default_writer
from kubothek.odf.dataset import Table as LedgerTable
from kubothek.odf.dataset import create
from kubothek.odf.derived import create as create_derivative
from kubothek.odf.derived import inputs_of
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.versions import NEWEST, SpecVersion
from kubothek.odf.time_axes import BLOCK, happened_until, version_of
from kubothek.sql import FindSnapshot, Query, TableScan, prepare
from kubothek.sql.rows import QueryResult
from kubothek.storage import Store
from kubothek.storage.urls import create_directory
from kubothek.table.indexes import Dialect, IndexChange, IndexKind, check_indexable
from kubothek.table.layout import ROW_GROUP_ROWS, TARGET_FILE_BYTES, Layout
from kubothek.table.log import Change, Operation, Snapshot, Transaction, Version
from kubothek.table.log.history.listing import dataset_names
from kubothek.table.log.model.keys import DEFAULT_TABLE, check_table
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.name_lists import names_in
from kubothek.table.partitioning import check_new_table, check_without_time_zones
from kubothek.table.schema import normalise, require_distinct, without_time_zones
from kubothek.table.skipping.indexes import check as check_skipping
from kubothek.table.skipping.model import IndexDefinition, SkippingChange, SkippingState
from kubothek.table.skipping.prune.aggregate import Skipped
from kubothek.table.time_zones import zones_in

__all__ = ["CommitResult", "Dataset", "Lake", "OnConflict", "Where"]

_USUAL_VIEW: Final = LedgerTable()


class Lake:
    """The datasets in one store. The constructor does no I/O.

    ``writer``   the name under which it writes to datasets of manifests; None = see :func:`default_writer`
    ``program``  the author of its commits where it has no such name
    """

    def __init__(self, store: Store, writer: str | None = None, *, program: str = "python") -> None:
        if writer is not None and not writer.strip():
            raise InputError("writer is empty: name this client as spec.writers of a Dataset does, or leave it out")
        self.store = store
        self._writer = writer
        self._program = program

    def __repr__(self) -> str:
        return f"Lake({self.store.url!r})"

    @cached_property
    def writer(self) -> str | None:
        """The name under which this lake writes to datasets of manifests; None if it has none."""
        return self._writer or default_writer()

    @property
    def author(self) -> str:
        """The author of its commits, in commit records: the writer, or the program of a lake without one."""
        return self.writer or self._program

    @cached_property
    def _conditional_writes(self) -> bool:
        return self.store.probe().conditional_writes

    def datasets(self) -> list[str]:
        """Return the sorted names of the datasets, with one listing of the store's root, whatever is below it.

        A deleted dataset is included as long as its head exists; :meth:`dataset` raises for it.
        """
        return dataset_names(self.store)

    def dataset(self, name: str, *, table: str | None = None, raw: bool = False) -> Dataset:
        """Return an existing dataset, whatever program wrote it. Raises DatasetNotFound.

        For a dataset of a cube, readers see the version in the cube's current version; ``raw`` reads its own head.
        ``table`` names one of several tables that kartothek can keep in one dataset; in SQL and on the command line its
        name is ``"<name>/<table>"``. Such tables are read-only; see ``kubothek adopt --convert``.
        """
        dataset = Dataset(self, name, table, raw=raw)
        dataset.snapshot()
        return dataset

    def cubes(self) -> list[str]:
        """Return the sorted prefixes of dataset names; :meth:`cube` checks whether the datasets form a cube."""
        return cubes(self.store)

    def cube(self, prefix: str) -> Cube:
        """Return an existing cube, whatever program wrote it. Raises DatasetNotFound, CubeInvalid."""
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
        """Define a new cube; :meth:`Cube.build` creates it, and nothing is written before.

        ``dimension_columns``  columns that together identify a cell, in sort order
        ``partition_columns``  columns that partition the seed
        ``seed_dataset``       the dataset that defines which cells exist
        ``index_columns``      further columns with an index, in every dataset that has them
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
        create_directory(self.store.config)
        cube = Cube(self.store, self._cube_log(prefix), spec)
        try:
            cube.snapshot()
        except DatasetNotFound:
            return cube
        raise DatasetExists(f"there is a cube {prefix!r} in {self.store.url} already; lake.cube({prefix!r}) opens it")

    def _cube_log(self, prefix: str) -> CubeLog:
        return CubeLog(
            self.store, prefix, unowned_only=True, by=self.author, before_writing=self._require_conditional_writes
        )

    def _require_conditional_writes(self) -> None:
        if not self._conditional_writes:
            raise OwnedByAnother(f"{self.store.url} has no conditional writes: only the owner of a cube may write it")

    def create_dataset(
        self,
        name: str,
        partition_on: Sequence[str] | str = (),
        schema: pa.Schema | Mapping[str, str] | None = None,
        *,
        sort_by: Sequence[str] | str = (),
        bucket_by: Sequence[str] | str = (),
        num_buckets: int = 0,
        target_file_size: int = TARGET_FILE_BYTES,
        row_group_rows: int = ROW_GROUP_ROWS,
        compression: str = "ZSTD",
        dictionary_columns: Sequence[str] | str | None = None,
        indices: Sequence[str] | str | Mapping[str, IndexKind | str] = (),
        dialect: Dialect | str = Dialect.KARTOTHEK,
        skipping: Sequence[IndexDefinition] | IndexDefinition = (),
        metadata: Mapping[str, Any] | None = None,
        table: str = DEFAULT_TABLE,
    ) -> Dataset:
        """Commit an empty dataset with a layout for all its writers.

        ``partition_on``        columns whose values become directories; cannot be changed later
        ``schema``              types, or names of types (``{"day": "date32"}``); None = those of the first append
        ``sort_by``             columns by which the rows of each file are sorted, ascending
        ``bucket_by``           columns whose values decide in which of ``num_buckets`` files a row is
        ``target_file_size``    bytes at which a data file is closed
        ``row_group_rows``      most rows of a row group
        ``compression``         of the files: ZSTD, SNAPPY, GZIP, BROTLI, LZ4 or NONE
        ``dictionary_columns``  columns with dictionary encoding; None = all, where it saves space
        ``indices``             columns with a secondary index: names, or kinds by name, Native (the default) or
                                Kartothek; see :class:`~kubothek.table.indexes.IndexKind`
        ``dialect``             the other library that must be able to write to a table with a Kartothek index on
                                strings: Kartothek or Plateau
        ``skipping``            indices of the skipping metadata, with which queries open fewer files: see
                                :meth:`set_skipping`
        ``metadata``            user metadata, as kartothek and plateau show it: JSON values by name
        ``table``               name of the table in the dataset; plateau reads only the default

        Raises DatasetExists; SchemaMismatch, PartitionInvalid, LayoutInvalid, IndexInvalid or SkippingInvalid for an
        invalid table.
        """
        partition_on = names_in("partition_on", partition_on)
        require_distinct(partition_on)
        skipping = (skipping,) if isinstance(skipping, IndexDefinition) else tuple(skipping)
        layout = Layout(
            partition_on=partition_on,
            sort_by=names_in("sort_by", sort_by),
            bucket_by=names_in("bucket_by", bucket_by),
            num_buckets=num_buckets,
            target_file_bytes=target_file_size,
            row_group_rows=row_group_rows,
            compression=compression,
            dictionary_columns=None
            if dictionary_columns is None
            else names_in("dictionary_columns", dictionary_columns),
        )
        wanted = index_kinds(indices)
        declared = None if schema is None else arrow_schema(schema)
        if declared is not None:
            check_without_time_zones(declared, partition_on)
        stored = None if declared is None else normalise(without_time_zones(declared), partition_on)
        if stored is not None:
            check_new_table(stored, partition_on)
            layout.check(stored)
            check_indexable(stored, partition_on, wanted.items())
            check_skipping(skipping, stored, partition_on)
        check_indexable(pa.schema([]), partition_on, [each for each in wanted.items() if each[0] in partition_on])
        create_directory(self.store.config)
        dataset = Dataset(self, name)
        exists = DatasetExists(f"there is a dataset {name!r} in {self.store.url} already; append to it instead")
        try:
            started = dataset._log(writing=True).begin(CREATE_ID, uuid4().hex, revives=True)
            assert isinstance(started, Transaction), "the digest is new"
            if started.snapshot.exists:
                raise exists
            started.commit(
                Change(
                    operation=Operation.CREATE,
                    schema=stored,
                    partition_keys=partition_on,
                    layout=layout.to_json(),
                    metadata=metadata or {},
                    table=check_table(table),
                    zones={} if declared is None else zones_in(declared),
                    index=IndexChange(wanted=wanted, dialect=one_of(Dialect, "dialect", dialect)),
                    skipping=SkippingChange(wanted=SkippingState(skipping)),
                    by=self.author,
                )
            )
        except IdReused as error:
            raise exists from error
        return dataset

    def copy(
        self,
        name: str,
        new_name: str,
        *,
        to: Lake | None = None,
        as_of: Version | None = None,
        id: str | None = None,  # noqa: A002
    ) -> CommitResult:
        """Create a dataset with the rows of another, in one commit. Data files are copied, not decoded.

        ``to``     the lake of the copy; None = this one
        ``as_of``  the version to copy; None = the current one
        ``id``     permanent id of this copy: a repetition with the same id does nothing and returns the first result

        Columns, partitioning, layout, indices, skipping metadata and user metadata are copied; history, tags, the
        export of Iceberg metadata and the chain of a ledger are not. Raises DatasetNotFound, VersionNotFound,
        DatasetExists, OwnedByAnother.
        """
        target = self if to is None else to
        source, snapshot = self.store, self.dataset(name).snapshot(as_of)
        create_directory(target.store.config)
        log = Dataset(target, new_name)._log(writing=True)
        digest = moving.copy_digest(source, name, as_of, id)
        return moving.copy(source, snapshot, target.store, log, digest, by=self.author)

    def rename(self, name: str, new_name: str) -> CommitResult:
        """Give a dataset another name: copy its current version, then delete it as :meth:`drop` does.

        All keys of a Kartothek dataset contain its name, so the data files are copied. History stays with the old name,
        for the grace period. A repetition after a crash continues, or does nothing. Raises DatasetNotFound,
        DatasetExists, OwnedByAnother; Conflict if another commit came meanwhile; VersionTagged for a dataset with tags;
        InputError for a ledger and for a dataset of a cube.
        """
        if name == new_name:
            raise InputError(f"dataset {name!r} has this name already; choose another name")
        source = Dataset(self, name)
        with suppress(DatasetNotFound):
            source._require_no_member("renamed", "copy the cube under another prefix: kubothek cube copy")
        target = Dataset(self, new_name)
        return moving.rename(self.store, source._log(writing=True), target._log(writing=True), by=self.author)

    def drop(self, name: str) -> int:
        """Delete a dataset, in one commit, and return the version of its tombstone.

        Readers find no dataset. :meth:`restore` undoes it within the grace period of the store; the first
        ``kubothek gc --enforce`` after it deletes the data. The name can be used again at once, but then the old
        dataset cannot be restored. Raises DatasetNotFound, OwnedByAnother, InputError for a dataset of a cube.
        """
        dataset = Dataset(self, name)
        dataset._require_no_member("dropped", "delete it by its cube: kubothek cube delete")
        version = dataset._log(writing=True).delete(by=self.author)
        assert version is not None, "it was there, and its head stays"
        return version

    def restore(self, name: str) -> int:
        """Undo :meth:`drop`, in one commit, and return the new version. Does nothing to a dataset that is there.

        Raises RestoreExpired after the grace period, VersionIncomplete, DatasetNotFound, OwnedByAnother.
        """
        return Dataset(self, name)._log(writing=True).restore(by=self.author)

    def create_ledger(
        self,
        name: str,
        snapshot: DatasetSnapshot,
        owner: OwnerKey,
        *,
        table: LedgerTable | None = _USUAL_VIEW,
        spec_version: str = NEWEST,
    ) -> Dataset:
        """Commit a dataset with a chain that begins with the events of an Open Data Fabric snapshot.

        ``snapshot``  ``read_snapshot(text)`` reads one from YAML; the inputs of a derivative dataset are in this store
        ``owner``     private key whose public half becomes the dataset's identity; keep it: ``owner_key_file(path)``
        ``table``     layout of the table with the current state; None = no table
        ``spec_version``  of Open Data Fabric in which the chain is written, such as "0.34" for older readers

        Raises DatasetExists, EventInvalid; InputError for missing inputs, TransformInvalid.
        """
        version = one_of(SpecVersion, "spec_version", spec_version)
        create_directory(self.store.config)
        dataset = Dataset(self, name)
        log = dataset._log(writing=True)
        if snapshot.kind is DatasetKind.DERIVATIVE:
            create_derivative(
                self.store, log, snapshot, owner, inputs_of(self.store), table=table, version=version, by=self.author
            )
        else:
            create(self.store, log, snapshot, owner, table=table, version=version, by=self.author)
        return dataset

    def sql(self, statement: str, as_of: Version | None = None, *, as_at: datetime | None = None) -> QueryResult:
        """Return the rows of one SELECT over the store's datasets, as a stream; ``.to_arrow()`` makes a table of it.

        A name that is not a plain word is quoted: ``SELECT * FROM "sales-2"``. ``as_of`` is the version, time or tag of
        every dataset without its own: ``FROM flights AS OF VERSION 3``, ``FROM flights AS OF TAG 'audit'``,
        ``FROM flights AS OF TIMESTAMP '2026-11-21 14:00' f``. The hash of a ledger's block is a version, too. ``as_at``
        restricts ledgers to rows with event times up to it. Raises QueryInvalid, VersionNotFound.
        """
        return QueryResult(self._prepare(statement, as_of, as_at).rows())

    def explain(self, statement: str, as_of: Version | None = None) -> tuple[TableScan, ...]:
        """Return what :meth:`sql` would read: versions of datasets, and how many files each planning step leaves.

        Reads metadata only.
        """
        return self._prepare(statement, as_of).scans

    def skipped(self, statement: str, as_of: Version | None = None) -> dict[str, Skipped]:
        """Return the files and bytes that planning prunes, by dataset, as Xskipper's getLatestQueryStats does.

        :func:`kubothek.table.skipping.prune.aggregate.aggregated` sums them. Reads metadata, and lists files for
        their sizes.
        """
        return self._prepare(statement, as_of).skipped()

    def _prepare(self, statement: str, as_of: Version | None, as_at: datetime | None = None) -> Query:
        restrict = None if as_at is None else happened_until(self.store, as_at)
        return prepare(self.store, statement, self.look(as_of), self.datasets, restrict=restrict)

    def look(self, as_of: Version | None = None) -> FindSnapshot:
        """Return the function with which SQL finds datasets; ``as_of`` applies to those without their own version."""

        def find(name: str, own: Version | None) -> Snapshot:
            uuid, _, table = name.partition("/")
            wanted = as_of if own is None else own
            dataset = Dataset(self, uuid, table or None)
            if isinstance(wanted, str) and wanted.startswith(BLOCK):
                wanted = version_of(self.store, dataset._log(), wanted)
            return dataset.snapshot(wanted)

        return find
