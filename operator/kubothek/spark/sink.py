"""Writes of a DataFrame or a stream: tasks write data files, and the driver commits all of them once.

Spark calls a writer in several processes. The driver plans: every check that needs no row, then the schema and the
layout of the files. Each task writes files of its own rows, with hashes, index entries and skipping metadata, and
answers with their list. The driver then makes one commit, or deletes the files. Files that nothing deletes, for example
those of a lost executor, are garbage for the collector.

A stream commits under the id ``<query id>:<batch id>``. Spark keeps the query id in the checkpoint and passes it to
tasks only, as a local property; they answer with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from kubothek.catalog import Dataset
from kubothek.errors import (
    Conflict,
    DatasetExists,
    InputError,
    LakeError,
    RowsLost,
    SourceEmpty,
    StoreError,
    VersionNotFound,
)
from kubothek.spark.options import Mode, Place, WriteOptions
from kubothek.spark.tasks import RETRIES, Failure
from kubothek.storage import Store, open_store
from kubothek.storage.urls import create_directory
from kubothek.table import operations
from kubothek.table.expressions import Predicate
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import MIB, Layout
from kubothek.table.log import AlreadyApplied, Change, DatasetLog, Operation, PartitionFile, Snapshot, Transaction
from kubothek.table.log.model import keys
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations.rows import stored_after
from kubothek.table.operations.written import Gathered, Gathering, Written
from kubothek.table.partitioning import joined
from kubothek.table.schema import conform, with_nulls
from kubothek.table.time_zones import zones_after, zones_in, zones_of

_PIECE_BYTES: Final = 64 * MIB
"""Rows that a task divides by partition at once: Spark's batches are so small that each would cost as much."""

_HAS_VARIANT: Final = re.compile(r"(?:^|[:<,])variant(?:$|[>,])")

Messages: TypeAlias = "Sequence[spark.WriterCommitMessage | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A write, as tasks need it and the commit repeats it.

    ``given``    the schema of Spark's rows, with time zones
    ``stored``   the stored schema of the table with them
    ``where``    the bound filter that each row must satisfy
    ``version``  the version that was planned for; None if there is no dataset yet
    ``epoch``    of that version's head
    ``applied``  the commit id was applied before, so no rows are written
    """

    options: WriteOptions
    given: pa.Schema
    stored: pa.Schema
    table: str
    layout: Layout
    where: Predicate | None
    gathering: Gathering
    version: int | None
    epoch: int
    applied: bool = False

    def written(self, files: Sequence[PartitionFile], gathered: Gathered) -> Written:
        """Return the description of these files for a change."""
        return Written(
            tuple(files),
            self.stored,
            self.layout.partition_on,
            evolves=self.options.evolves,
            gathered=gathered,
            zones=zones_in(self.given),
        )


@dataclass(frozen=True, slots=True)
class Wrote(spark.WriterCommitMessage):
    """What one task wrote.

    ``failure``  why it wrote nothing: bad input, which a retry would not change
    ``batch``    ``<query id>:<batch id>`` of a stream
    """

    plan: WritePlan
    files: tuple[PartitionFile, ...] = ()
    gathered: Gathered = field(default_factory=Gathered)
    failure: Failure | None = None
    batch: str | None = None


# In the driver, before any task.


def plan_write(options: WriteOptions, rows: StructType) -> WritePlan:
    """Return the plan of a write after all checks that need no row. It writes nothing to the dataset.

    Raises OwnedByAnother, LedgerOnly, SchemaMismatch, PartitionInvalid, FilterInvalid, FilterMatchesAll, IdReused.
    """
    create_directory(options.place.store)
    store, dataset = options.place.open()
    log = dataset._log(options.mode.value)
    snapshot = log.begin_new("spark:plan", adopts=False).snapshot
    head = snapshot.head
    require_rows_open(head)
    given = arrow_schema(rows)
    layout = Layout.of(head, _new_layout(options, snapshot))
    stored = stored_after(given, snapshot.schema, layout, evolve=options.evolves)
    layout.check(stored)
    zones_after(snapshot.schema, zones_of(head.metadata), zones_in(given))
    where = None
    if options.mode is Mode.REPLACE:
        where = operations.check_replace(store, snapshot, stored, layout.partition_on, options.replace_where)
    return WritePlan(
        options=options,
        given=given,
        stored=stored,
        table=head.table,
        layout=layout,
        where=where,
        gathering=Gathering.of(snapshot, stored),
        version=snapshot.version if snapshot.exists else None,
        epoch=head.epoch,
        applied=options.commit_id is not None and _was_applied(log, options.commit_id, head.epoch),
    )


def _new_layout(options: WriteOptions, snapshot: Snapshot) -> Layout | None:
    """Return the layout of a new dataset; None for an existing one. Raises PartitionInvalid if it has another one."""
    if options.partition_on is None:
        return None
    wanted = Layout(partition_on=options.partition_on)
    found = Layout.of(snapshot.head, wanted)
    return found if not snapshot.exists else None


def _was_applied(log: DatasetLog, commit_id: str, epoch: int) -> bool:
    """Return whether a commit with this id was made, which spares its rows; the commit itself checks it again."""
    marker = log.journal.markers.get(keys.marker(log.uuid, keys.check_id(commit_id)))
    return marker is not None and marker.id == commit_id and marker.version > epoch


def arrow_schema(rows: StructType) -> pa.Schema:
    """Return the schema of Spark's rows; times with a zone are in UTC, in whatever zone the session shows them."""
    fields = []
    for column in rows.fields:
        try:
            if _HAS_VARIANT.search(column.dataType.simpleString()):  # whose Arrow form would be stored as a struct
                raise PySparkException("a variant is no column of a table")
            fields.append(pa.field(column.name, to_arrow_type(column.dataType, timezone="UTC")))
        except PySparkException as error:
            raise InputError(
                f"column {column.name!r} is {column.dataType.simpleString()}, which cannot be stored; cast or drop it"
            ) from error
    return pa.schema(fields)


# In tasks.


def write_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Wrote:
    """Write the rows of one task to files; report bad input in the answer, which Spark would try again in vain.

    Raises transient errors, which Spark retries. No file of an attempt that fails stays, as far as the store permits.
    """
    batch = _batch_of_stream()
    if plan.applied:
        return Wrote(plan)
    try:
        files, gathered = _write(plan, batches)
    except LakeError as error:
        task = TaskContext.get()
        if error.transient and task is not None and task.attemptNumber() < RETRIES:
            raise
        number = 0 if task is None else task.partitionId()
        return Wrote(plan, failure=Failure(number, type(error).__name__, str(error)), batch=batch)
    return Wrote(plan, tuple(files), gathered, batch=batch)


def _write(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> tuple[list[PartitionFile], Gathered]:
    store, uuid = open_store(plan.options.place.store), plan.options.place.uuid
    gatherer = plan.gathering.gatherer(store, uuid, plan.table, plan.stored, plan.layout.partition_on)
    with PartitionedWriter(store, uuid, plan.stored, plan.layout, table=plan.table, observer=gatherer) as writer:
        for piece in joined(batches, _PIECE_BYTES):
            if plan.where is not None:
                operations.require_met(plan.where, piece, "the DataFrame", None)
            rows = with_nulls(piece, plan.stored) if plan.options.evolves else piece
            writer.write(conform(rows, plan.stored))
        return writer.finish(), gatherer.finish()


def _batch_of_stream() -> str | None:
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty("sql.streaming.queryId")
    if task is None or query is None:
        return None
    return f"{query}:{task.getLocalProperty('streaming.sql.batchId')}"


# In the driver, after the tasks.


def commit_write(messages: Messages, commit_id: str | None, *, commits_nothing: bool) -> None:
    """Commit what the tasks wrote, once per id. After an error no head names the files.

    ``commits_nothing``  a write without rows is a commit as well, so that its id is used

    Raises what a task reported, and what commits raise: Conflict, SchemaMismatch, OwnedByAnother, TooSlow, IdReused.
    """
    wrote = [message for message in messages if isinstance(message, Wrote)]
    if len(wrote) < len(messages) or not wrote:
        raise RowsLost(f"{len(messages) - len(wrote)} of {len(messages)} tasks reported nothing; run the write again")
    plan = wrote[0].plan
    store, dataset = plan.options.place.open()
    files = [file for each in wrote for file in each.files]
    written = plan.written(files, Gathered.joined(each.gathered for each in wrote))
    if failures := [each.failure for each in wrote if each.failure is not None]:
        _delete(store, written.keys)
        raise min(failures, key=lambda failure: failure.bundle).error()
    if files or commits_nothing:
        _Commit(plan, store, dataset, written).run(commit_id)


def abort_write(place: Place, messages: Messages) -> None:
    """Delete the files of a write whose tasks did not all succeed.

    If all did, Spark calls this after a commit that failed. That one has deleted what it may: a commit whose answer was
    lost may have happened.
    """
    wrote = [message for message in messages if isinstance(message, Wrote)]
    if len(wrote) == len(messages):
        return
    files = [file for each in wrote for file in each.files]
    gathered = Gathered.joined(each.gathered for each in wrote)
    indices = [file.key for some in gathered.index.files.values() for file in some]
    _delete(open_store(place.store), [*(file.key for file in files), *indices])


class _Commit:
    """The commit of one write."""

    def __init__(self, plan: WritePlan, store: Store, dataset: Dataset, written: Written) -> None:
        self._plan = plan
        self._store = store
        self._dataset = dataset
        self._written = written
        self._started = False

    def run(self, commit_id: str | None) -> None:
        """Create the dataset if there is none, and commit."""
        options = self._plan.options
        # What the methods of the same names in Python say, so that an id means the same in both.
        says: tuple[object, ...] = {
            Mode.APPEND: (),
            Mode.OVERWRITE: (False,),
            Mode.REPLACE: (options.replace_where,),
        }[options.mode]
        try:
            if self._plan.version is None:
                self._create()
            done = self._dataset._commit(options.mode.value, commit_id, says, self._start)
        except BaseException:
            if not self._started:
                _delete(self._store, self._written.keys)
            raise
        if isinstance(done, AlreadyApplied):
            # An earlier run wrote the same rows to other files.
            kept = {file.key for file in self._dataset._log().journal.record(done.record_key).delta.added}
            if kept.isdisjoint(self._written.keys):
                _delete(self._store, self._written.keys)

    def _create(self) -> None:
        plan = self._plan
        try:
            plan.options.place.lake().create_dataset(self._dataset.name, plan.layout.partition_on, plan.given)
        except DatasetExists as error:
            if plan.options.mode is not Mode.APPEND:
                raise self._conflict("another program created it") from error

    def _start(self, now: Transaction) -> Callable[[Snapshot], Change]:
        self._started = True
        if self._plan.applied:
            raise self._conflict("the commit of this id is no longer there")
        mode, written, store, by = self._plan.options.mode, self._written, self._store, self._dataset._author
        where = self._plan.options.replace_where
        now.note_written(*written.keys)
        if mode is Mode.APPEND and not written.files:
            return lambda _: Change(operation=Operation.APPEND, by=by)
        if not written.files:
            raise SourceEmpty(f"there are no rows to {mode} {self._dataset.name!r} with; nothing was committed")
        if mode is Mode.APPEND:
            return lambda _: operations.append(written, by=by)
        if self._plan.version not in (None, now.snapshot.version):
            now.snapshot = self._planned(now.snapshot)
        if mode is Mode.REPLACE:
            return lambda snapshot: operations.replace(store, snapshot, written, where, by=by)
        return lambda snapshot: operations.overwrite(snapshot, written, by=by)

    def _planned(self, current: Snapshot) -> Snapshot:
        """Return the version that the write was planned for: what was committed since then may be a conflict."""
        if current.head.epoch != self._plan.epoch:
            raise self._conflict("it was deleted and made again")
        try:
            return self._dataset.snapshot(self._plan.version)
        except VersionNotFound as error:
            raise self._conflict(f"version {self._plan.version} has expired") from error

    def _conflict(self, what: str) -> Conflict:
        return Conflict(f"dataset {self._dataset.name!r} changed while this write ran: {what}; run it again")


def _delete(store: Store, written: Iterable[str]) -> None:
    with suppress(StoreError):
        store.delete(dict.fromkeys(written))


# What Spark calls.


class BatchWriter(spark.DataSourceArrowWriter):
    """``df.write``: the constructor plans, in the driver."""

    def __init__(self, options: WriteOptions, rows: StructType) -> None:
        self._plan = plan_write(options, rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        return write_task(self._plan, iterator)

    def commit(self, messages: Messages) -> None:
        commit_write(messages, self._plan.options.commit_id, commits_nothing=True)

    def abort(self, messages: Messages) -> None:
        abort_write(self._plan.options.place, messages)


class StreamWriter(spark.DataSourceStreamArrowWriter):
    """``df.writeStream``: Spark makes one for the tasks of each batch, and another for its commit."""

    def __init__(self, options: WriteOptions, rows: StructType) -> None:
        self._plan = plan_write(options, rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        return write_task(self._plan, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's
        batches = {message.batch for message in messages if isinstance(message, Wrote)}
        batch = batches.pop() if len(batches) == 1 else None
        if batch is None or not batch.endswith(f":{batchId}"):
            raise InputError(f"the tasks of batch {batchId} do not know the id of their query; Spark 4.3 passes it on")
        commit_write(messages, batch, commits_nothing=False)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's
        abort_write(self._plan.options.place, messages)
