"""The Python door: datasets of one store as objects.

    lake = kubothek.open("file:///data/lake")
    flights = lake.create_dataset("flights", partition_on=["month"])
    flights.append(table)
    flights.scan(columns=["carrier"], where=pc.field("month") == 1, as_of=3).read_pandas()
    lake.sql("SELECT carrier, count(*) FROM flights GROUP BY 1").read_all()

**Who may write.** A dataset that a Dataset resource has claimed is written through that resource only
(commit-protocol, "Ownership"): here it can be read, and a write is refused with OwnedByAnother. Datasets that
nobody has claimed are written by whoever has the store's credentials, any number at a time; this door never
claims one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.lake import sql
from kubothek.lake.commits import (
    AlreadyApplied,
    Change,
    Committed,
    DatasetLog,
    Operation,
    Record,
    Snapshot,
    Transaction,
    keys,
    owner_of,
)
from kubothek.lake.errors import (
    DatasetExists,
    DatasetNotFound,
    DataTypeMismatch,
    IdReused,
    InputError,
    OwnedByAnother,
    SchemaMismatch,
    SourceEmpty,
)
from kubothek.lake.schema import merge, normalise, parse_type, require_distinct, without_time_zones
from kubothek.lake.store import Store
from kubothek.lake.table.files import TARGET_FILE_BYTES, PartitionedWriter
from kubothek.lake.table.partitioning import check_new_table
from kubothek.lake.table.scan import arrow_dataset, scan

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pd.DataFrame | Iterable[pa.RecordBatch]"
Version: TypeAlias = int | datetime

_HEAD_ENDS: Final = (keys.head(""), keys.packed_head(""))
_TARGET_FILE_SIZE: Final = "target_file_size"
"""Key in the dataset's metadata."""
_APPEND_DIGEST: Final = sha256(b"kubothek python append").hexdigest()
_BY: Final = "python"
_CREATE_ID: Final = "python:create"
"""One id for every creation of a dataset, so that of two at once one is refused."""


class Lake:
    """The datasets in one store. Cheap to make; contacts the store only when asked for something."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @cached_property
    def _conditional_writes(self) -> bool:
        return self.store.probe().conditional_writes

    def datasets(self) -> list[str]:
        """The names of the datasets, sorted; one listing of the store's root, whatever lies below it.

        A deleted dataset is named as long as its head is there; :meth:`dataset` tells.
        """
        names = self.store.list_names("")
        return sorted({name.removesuffix(end) for name in names for end in _HEAD_ENDS if name.endswith(end)})

    def dataset(self, name: str) -> Dataset:
        """A dataset that exists, whoever wrote it. Raises DatasetNotFound."""
        dataset = Dataset(self, name)
        dataset.snapshot()
        return dataset

    def create_dataset(
        self,
        name: str,
        partition_on: Sequence[str] = (),
        schema: pa.Schema | Mapping[str, str] | None = None,
        *,
        target_file_size: int = TARGET_FILE_BYTES,
    ) -> Dataset:
        """Commit an empty dataset.

        ``partition_on``      columns whose values become directories; cannot be changed later ``schema``
        types, or names of types (``{"day": "date32"}``); None = those of the first append
        ``target_file_size``  bytes at which a data file is closed

        Raises DatasetExists; SchemaMismatch or PartitionInvalid for a table that Kartothek cannot hold.
        """
        require_distinct(partition_on)
        if target_file_size < 1:
            raise InputError(f"target_file_size is {target_file_size}; give a number of bytes, at least 1")
        stored = None if schema is None else normalise(_arrow_schema(schema), partition_on)
        if stored is not None:
            check_new_table(stored, partition_on)
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
                    metadata={_TARGET_FILE_SIZE: target_file_size},
                    by=_BY,
                )
            )
        except IdReused as error:
            raise exists from error
        return dataset

    def sql(self, statement: str, as_of: Version | None = None) -> pa.RecordBatchReader:
        """The rows of one SELECT over the store's datasets, as a stream; ``.read_all()`` makes a table of it.

        A name that is no plain word is quoted: ``SELECT * FROM "sales-2"``. ``as_of`` is the version, or the
        time, at which every dataset is read. Raises QueryInvalid, VersionNotFound.
        """

        def open_dataset(name: str) -> ds.FileSystemDataset:
            return Dataset(self, name).arrow_dataset(as_of)

        return sql.select(self.store, statement, open_dataset, self.datasets)


class Dataset:
    """One dataset. Every call sees its present version, unless ``as_of`` asks for another.

    ``as_of``  a version number, or the time at which a version was current (without time zone: UTC)
    """

    def __init__(self, lake: Lake, name: str) -> None:
        self.name = keys.check_uuid(name)
        self._lake = lake
        self._store = lake.store

    # --- reading ---

    def snapshot(self, as_of: Version | None = None) -> Snapshot:
        """One version's head, schema and totals. Raises DatasetNotFound, VersionNotFound, VersionIncomplete."""
        return self._log().snapshot(as_of)

    @property
    def version(self) -> int:
        """The number of the present version."""
        return self.snapshot().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the present version, as stored; none if nothing has said what they are."""
        return _schema_of(self.snapshot())

    @property
    def rows(self) -> int:
        """The number of rows of the present version; files are looked at only if another program wrote last."""
        totals = self.snapshot().totals
        return totals.rows if totals else self.arrow_dataset().count_rows()

    def history(self) -> Iterator[Record]:
        """The commits, newest first, read as they are asked for."""
        return self._log().history()

    def arrow_dataset(self, as_of: Version | None = None) -> ds.FileSystemDataset:
        """One version as a pyarrow dataset, for everything that reads those."""
        snapshot = self.snapshot(as_of)
        return arrow_dataset(self._store, snapshot.head, _schema_of(snapshot))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        as_of: Version | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream, in bounded memory; ``.read_all()`` or ``.read_pandas()`` collect it.

        ``where`` skips partitions and row groups without reading them where it can: ``pc.field("month") ==
        1``. Raises InputError for columns that are not there.
        """
        return scan(self._store, self.arrow_dataset(as_of), columns, where)

    # --- writing ---

    def append(self, data: Rows, *, id: str | None = None) -> Committed | AlreadyApplied:  # noqa: A002
        """Add rows in one commit, streaming them to storage; returns the new version and its totals.

        ``data``  a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame (without its index),
        anything
                  with the Arrow stream interface, or an iterable of Tables or RecordBatches of one schema
        ``id``    names this append for ever: appending under it again does nothing and returns what the first
        one did,
                  so a program that may have crashed in between can just run again. It stands for the data,
                  which is not compared. None = every call appends

        Integers, floats and strings are widened, time zones become UTC. Raises SchemaMismatch,
        DataTypeMismatch, PartitionInvalid, SourceEmpty, OwnedByAnother with the dataset as before.
        """
        started = self._log(writing=True).begin(id or f"python:append:{uuid4()}", _APPEND_DIGEST)
        if isinstance(started, AlreadyApplied):
            return started
        snapshot = started.snapshot
        if not snapshot.exists:
            raise DatasetNotFound(f"there is no dataset {self.name!r} in {self._store.url}; create it first")
        partition_keys = snapshot.head.partition_keys
        given, pieces = _pieces(data)
        schema = _appended(given, snapshot)
        with PartitionedWriter(
            self._store,
            self.name,
            schema,
            partition_keys,
            table=snapshot.head.table,
            target_file_bytes=_target_file_size(snapshot),
        ) as writer:
            for piece in pieces:
                _require_same(piece.schema, given)
                writer.write(piece)
            files = writer.finish()
        if not files:
            raise SourceEmpty(f"no rows to append to {self.name!r}; nothing was committed")
        started.note_written(files[0].key)
        return started.commit(
            Change(
                operation=Operation.APPEND,
                added=tuple(files),
                schema=schema,
                partition_keys=partition_keys,
                by=_BY,
            )
        )

    def _log(self, *, writing: bool = False) -> DatasetLog:
        if not writing:
            return DatasetLog(self._store, self.name)
        if (owner := owner_of(self._store, self.name)) is not None:
            raise OwnedByAnother(
                f"dataset {self.name!r} in {self._store.url} belongs to {owner} and is written through that resource "
                "only: apply a Commit manifest, or use another name"
            )
        return DatasetLog(self._store, self.name, conditional_writes=self._lake._conditional_writes)


def _schema_of(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def _target_file_size(snapshot: Snapshot) -> int:
    """What :meth:`Lake.create_dataset` noted, as far as nobody else uses the key for something else."""
    noted = snapshot.head.metadata.get(_TARGET_FILE_SIZE)
    return noted if isinstance(noted, int) and noted > 0 else TARGET_FILE_BYTES


def _arrow_schema(schema: pa.Schema | Mapping[str, str]) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([pa.field(name, parse_type(type_name)) for name, type_name in schema.items()])


def _appended(given: pa.Schema, snapshot: Snapshot) -> pa.Schema:
    """The stored schema of the table after rows of this schema; raises what forbids them."""
    partition_keys = snapshot.head.partition_keys
    new = normalise(without_time_zones(given), partition_keys)
    if snapshot.schema is None:
        check_new_table(new, partition_keys)
        return new
    return merge(snapshot.schema, new)


def _require_same(schema: pa.Schema, first: pa.Schema) -> None:
    if schema is not first and not schema.equals(first):
        raise SchemaMismatch(
            f"the pieces of one append must have one schema; the first has\n{first}\na later one\n{schema}"
        )


def _pieces(data: Rows) -> tuple[pa.Schema, Iterable[pa.Table | pa.RecordBatch]]:
    """The schema of what somebody hands in, and the rows piece by piece."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.schema, [data]
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        try:
            table = pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataTypeMismatch(f"a column of the DataFrame has values of different types: {error}") from error
        return table.schema, [table]
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(cast("Any", data))
        return reader.schema, reader
    pieces = iter(data)
    first = next(pieces, None)
    if first is None:
        raise SourceEmpty("nothing to append: the iterable gave no batch")
    if not isinstance(first, pa.Table | pa.RecordBatch):
        raise InputError(f"cannot append {type(first).__name__}; use pyarrow tables or batches, or a pandas DataFrame")
    return first.schema, chain([first], pieces)
