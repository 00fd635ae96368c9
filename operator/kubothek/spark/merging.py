"""Merges by key with Spark, of a DataFrame or of a source's files, for sources beyond one machine.

The rows of the source are read once and kept on the executors' disks. They are checked before the first file is
written: a key that occurs twice ends the merge. Keys meet by their hash, so neither rows nor keys pass the driver. The
tasks (:mod:`kubothek.spark.merge_tasks`) rewrite files with the function that a merge in one process uses,
:func:`kubothek.table.operations.merging.files.merge_files`, and the driver makes the one commit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import orjson
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import kubothek
from kubothek.catalog import Dataset
from kubothek.dataset import CommitResult
from kubothek.dataset.handle import Maker, OnConflict, require_on_conflict
from kubothek.errors import InputError, RowsLost
from kubothek.ingest import Source, SourcePlan, SourceReader, require_rows
from kubothek.spark import fatrows, merge_tasks, tasks
from kubothek.spark.collect import collect
from kubothek.spark.merge_tasks import Bundles, Keyed, Kind, Summary
from kubothek.spark.sink import arrow_schema
from kubothek.spark.tasks import Failure, Joined
from kubothek.storage import StoreConfig
from kubothek.table.layout import MIB
from kubothek.table.log import Transaction
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.merging import Clauses, Merge, Merger
from kubothek.table.operations.merging.files import MergedFiles
from kubothek.table.operations.merging.rows import Rules
from kubothek.table.operations.merging.search import KeyRange
from kubothek.table.operations.written import Gathered
from kubothek.table.scan.plan import PlannedFile

FILES_A_TASK: Final = 4
"""Enough to merge the rows of small files into larger files."""
_MOST_TASKS: Final = 2000
_READ_TASK_BYTES: Final = 32 * MIB
"""Stored source bytes that one task reads, if the source can be split."""
_KEYED_BYTES: Final = 32 * MIB
"""Stored source bytes for each task that joins keys."""
_PAYLOAD_PER_FILE_BYTE: Final = 1.9
"""As in :mod:`kubothek.spark.write`."""
_BY: Final = "spark"
"""The author of commits, in commit records."""
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "true",
    # Fat rows have some MiB each: how many of them Spark keeps or sends together.
    "spark.sql.inMemoryColumnarStorage.batchSize": "2",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * MIB),
}

ReportProgress = Callable[[str, int, int, int], None]
"""Takes the phase, and the numbers of tasks done, of all tasks, and of rows read so far."""


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def merge(
    frame: DataFrame,
    url: str,
    name: str,
    *,
    key: str | Sequence[str],
    when_matched: Clauses = None,
    when_not_matched: Clauses = None,
    when_not_matched_by_source: Clauses = None,
    evolve: bool = False,
    id: str | None = None,  # noqa: A002
    on_conflict: OnConflict = "Fail",
    endpoint: str | None = None,
    region: str | None = None,
    credentials_dir: str | None = None,
    writer: str | None = None,
) -> CommitResult:
    """Merge the rows of a DataFrame into a dataset by key, in one commit that Spark's tasks prepare.

    ``url``, ``endpoint``, ``region``, ``credentials_dir`` and ``writer`` are those of :func:`kubothek.open`, the others
    those of :meth:`kubothek.Dataset.merge`, also the meaning of an ``id``. The session must be a classic one.

    Raises what :meth:`kubothek.Dataset.merge` raises, and SparkFailed; the dataset is then unchanged.
    """
    clauses = Merge.of(key, when_matched, when_not_matched, when_not_matched_by_source)
    require_on_conflict(on_conflict)
    lake = kubothek.open(url, endpoint=endpoint, region=region, credentials_dir=credentials_dir, writer=writer)
    session = _classic(frame)
    given = arrow_schema(frame.schema)
    with spark_merges(session, lake.store.config, name) as spark:

        def start(now: Transaction) -> Maker:
            require_rows_open(now.snapshot.head)
            merger = Merger(
                lake.store, clauses, evolve=evolve, since=now.records_between, on_conflict=on_conflict, by=_BY
            )
            merger.read_with(now.snapshot, given, lambda schema: spark.rows_of_frame(frame, given, schema, clauses.key))
            return merger.change

        return Dataset(lake, name)._commit("merge", id, (clauses, evolve), start, "Retry")


def _classic(frame: DataFrame) -> SparkSession:
    session: SparkSession = frame.sparkSession
    try:
        session.sparkContext  # noqa: B018  # Spark Connect has none
    except PySparkException as error:
        raise InputError(
            "a merge needs a classic Spark session, and this one is of Spark Connect; start the session with "
            "spark.api.mode=classic"
        ) from error
    return session


@contextmanager
def spark_merges(
    session: SparkSession,
    store: StoreConfig,
    name: str,
    report: ReportProgress = lambda phase, done, total, rows: None,
) -> Iterator[SparkMerges]:
    """Yield what reads the rows of merges; they are released at the end, and the session's settings are as before."""
    before = {setting: session.conf.get(setting, None) for setting in (*_SETTINGS, _ADVISORY)}
    for setting, wanted in _SETTINGS.items():
        session.conf.set(setting, wanted)
    merges = SparkMerges(session, store, name, report)
    try:
        yield merges
    finally:
        merges.release()
        for setting, value in before.items():
            if value is None:
                session.conf.unset(setting)
            else:
                session.conf.set(setting, value)


_ADVISORY: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


class SparkMerges:
    """Reads of sources to merge into a dataset, in one session."""

    def __init__(self, session: SparkSession, store: StoreConfig, name: str, report: ReportProgress) -> None:
        self._session = session
        self._store = store
        self._name = name
        self._report = report
        self._kept: list[DataFrame] = []

    def release(self) -> None:
        """Release the rows that executors keep."""
        for frame in self._kept:
            frame.unpersist()

    def rows_of_frame(self, frame: DataFrame, given: pa.Schema, schema: pa.Schema, key: Sequence[str]) -> SparkSource:
        """Read the rows of a DataFrame. ``given`` is its schema, ``schema`` the one in which rows are merged.

        Raises DuplicateKeys, SchemaMismatch, DataTypeMismatch, MergeTooLarge, SparkFailed.
        """
        failures = self._failures()
        keyed = Keyed(schema, tuple(key), int(self._session.conf.get("spark.sql.shuffle.partitions") or 1))
        rows = frame.mapInArrow(merge_tasks.ReadFrame(failures, keyed, given), merge_tasks.ROWS)
        try:
            return self._checked(rows, keyed, failures, lambda: 0)
        except _FailedError as failed:
            raise failed.failure.error() from None

    def rows_of_files(
        self,
        source: Source,
        plan: SourcePlan,
        reader: SourceReader,
        reading: pa.Schema,
        schema: pa.Schema,
        key: Sequence[str],
    ) -> SparkSource:
        """Read the rows of a source's files in the schema ``reading``.

        Raises what :meth:`rows_of_frame` raises, and InputError for a file that cannot be read.
        """
        buckets = min(_MOST_TASKS, max(self._session.sparkContext.defaultParallelism, plan.total_bytes // _KEYED_BYTES))
        keyed = Keyed(schema, tuple(key), buckets)
        while True:
            failures, read = self._failures(), self._session.sparkContext.accumulator(0)
            bundles = plan.bundles(_READ_TASK_BYTES)
            task = merge_tasks.ReadSplits(failures, keyed, source, bundles, reading, read)
            numbers = self._session.range(0, len(bundles), 1, len(bundles))
            rows = numbers.mapInArrow(task, merge_tasks.ROWS)
            try:
                found = self._checked(rows, keyed, failures, lambda read=read: read.value)  # type: ignore[misc]
            except _FailedError as failed:
                error, split = failed.failure.error(), failed.failure.split
                if split is None or not split.is_range or not isinstance(error, InputError) or error.transient:
                    raise error from None
                # A range does not know the numbers of its rows, nor whether it was cut inside a quoted value.
                if (true_error := reader.diagnose(split.file, reading)) is not None:
                    raise true_error from None
                plan = plan.with_unsplit_files([split.file.name])
                continue
            require_rows(plan, found.count)
            return found

    def _failures(self) -> Accumulator[list[Failure]]:
        found: Accumulator[list[Failure]] = self._session.sparkContext.accumulator([], Joined())
        return found

    def _checked(
        self,
        rows: DataFrame,
        keyed: Keyed,
        failures: Accumulator[list[Failure]],
        rows_read: Callable[[], int],
    ) -> SparkSource:
        """Keep the rows, and check their keys. Raises _FailedError, SparkFailed, RowsLost."""
        rows = rows.persist(StorageLevel.DISK_ONLY)
        self._kept.append(rows)
        check = _together(rows, keyed.buckets).mapInArrow(merge_tasks.CheckKeys(failures, keyed), merge_tasks.SUMMARY)
        found = collect(
            self._session,
            check,
            f"read rows to merge into {self._name}",
            failures,
            lambda done, total: self._report("Reading", done, total, rows_read()),
        )
        if isinstance(found, Failure):
            raise _FailedError(found)
        parts: list[Summary] = [pickle.loads(each.as_py()) for each in found.column("payload")]  # noqa: S301  # our own
        read, there = sum(part.read for part in parts), sum(part.there for part in parts)
        if read != there:
            raise RowsLost(f"{read} rows were read to merge into {self._name!r}, but {there} are there; try again")
        values = KeyRange.joined([part.values for part in parts])
        return SparkSource(self._session, self._store, self._name, rows, keyed, there, values, self._report)


def _together(rows: DataFrame, tasks_: int) -> DataFrame:
    """Return the rows of each bucket in one task, source rows before places."""
    return rows.repartitionById(tasks_, sf.coalesce("bucket", sf.lit(0))).sortWithinPartitions("kind")


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A source whose rows executors keep, with distinct keys: see :class:`merging.merge.SourceRows`."""

    session: SparkSession
    store: StoreConfig
    name: str
    rows: DataFrame
    keyed: Keyed
    count: int
    key_range: KeyRange
    report: ReportProgress

    @property
    def schema(self) -> pa.Schema:
        """The schema in which rows are merged."""
        return self.keyed.schema

    def merge(
        self, copying: Copying, rules: Rules, files: Sequence[PlannedFile], others: Sequence[PlannedFile]
    ) -> MergedFiles:
        """Merge into the files with tasks. Raises what ``merge_files`` raises, and SparkFailed."""
        failures: Accumulator[list[Failure]] = self.session.sparkContext.accumulator([], Joined())
        bundles = _bundles([*files, *others])
        join = merge_tasks.JoinKeys(failures, self.keyed, copying, rules, bundles.size)
        joined = self._joined(files, bundles.size, copying.schema, join, failures)
        joined = joined.persist(StorageLevel.DISK_ONLY)
        rewrites = rules.changes_matches or rules.changes_others
        frames = [_received(joined)]
        if rewrites and len(bundles):
            rewrite = merge_tasks.RewriteBundles(failures, self.keyed, copying, replace(rules, inserts=()), bundles)
            frames.append(self._by_bundle(joined, len(bundles)).mapInArrow(rewrite, tasks.SCHEMA))
        if rules.inserts:
            advisory = int(copying.layout.target_file_bytes * _PAYLOAD_PER_FILE_BYTE)
            self.session.conf.set(_ADVISORY, str(advisory))
            inserts = joined.where(sf.col("kind").isin(int(Kind.INSERTED), int(Kind.INSERTS)))
            groups = inserts.hint("rebalance", self.keyed.buckets, *fatrows.GROUP)
            frames.append(groups.mapInArrow(merge_tasks.WriteInserts(failures, copying), tasks.SCHEMA))
        try:
            found = self._collect(reduce(DataFrame.union, frames), f"merge into {self.name}", failures)
        finally:
            joined.unpersist()
        return _result(found, len(bundles) if rewrites else 0, self.count, self.name)

    def matches_any(self, files: Sequence[PlannedFile], schema: pa.Schema) -> bool:
        """Return whether a row of these files has one of the keys. Raises VersionIncomplete, SparkFailed."""
        failures: Accumulator[list[Failure]] = self.session.sparkContext.accumulator([], Joined())
        count = merge_tasks.CountMatches(failures, self.keyed)
        size = _bundles(files).size
        frame = self._joined(files, size, schema, count, failures).select("kind", "rows")
        found = self._collect(frame, f"compare keys with {self.name}", failures).to_pylist()
        _require_all(sum(row["rows"] for row in found if row["kind"] == Kind.READ), self.count, self.name)
        return any(row["kind"] == Kind.MATCHED for row in found)

    def _joined(
        self,
        files: Sequence[PlannedFile],
        size: int,
        schema: pa.Schema,
        join: merge_tasks.JoinKeys | merge_tasks.CountMatches,
        failures: Accumulator[list[Failure]],
    ) -> DataFrame:
        rows = self.rows
        if files:
            bundles = Bundles(files, size)
            read = merge_tasks.ReadKeys(failures, self.keyed, self.store, bundles, schema)
            numbers = self.session.range(0, len(bundles), 1, len(bundles))
            rows = rows.union(numbers.mapInArrow(read, merge_tasks.ROWS))
        return _together(rows, self.keyed.buckets).mapInArrow(join, merge_tasks.ROWS)

    def _by_bundle(self, joined: DataFrame, bundles: int) -> DataFrame:
        """Return matched rows by bundle, with a row that says that there is this bundle."""
        there = self.session.range(0, bundles, 1, 1).select(
            sf.lit(int(Kind.BUNDLE)).alias("kind"),
            sf.lit("").alias("path"),
            sf.col("id").cast("int").alias("bucket"),
            sf.lit(0).cast("bigint").alias("rows"),
            sf.lit(None).cast("binary").alias("payload"),
        )
        rows = joined.where(sf.col("kind") == int(Kind.MATCHED)).union(there)
        return rows.repartitionById(bundles, "bucket").sortWithinPartitions("bucket", "kind")

    def _collect(self, frame: DataFrame, title: str, failures: Accumulator[list[Failure]]) -> pa.Table:
        found = collect(
            self.session, frame, title, failures, lambda done, total: self.report("Writing", done, total, self.count)
        )
        if isinstance(found, Failure):
            raise found.error()
        return found


def _bundles(files: Sequence[PlannedFile]) -> Bundles:
    return Bundles(files, max(FILES_A_TASK, -(-len(files) // _MOST_TASKS)))


_RECEIVED: Final = "received"


def _received(joined: DataFrame) -> DataFrame:
    """Return how many source rows the tasks joined, in lines of a manifest."""
    nothing = sf.lit(None).cast("string")
    return joined.where(sf.col("kind") == int(Kind.READ)).select(
        nothing.alias("label"),
        sf.lit(_RECEIVED).alias("key"),
        "rows",
        sf.lit(0).cast("bigint").alias("bytes"),
        nothing.alias("sha3"),
        nothing.alias("indexed"),
    )


def _require_all(received: int, count: int, name: str) -> None:
    """Raise RowsLost if source rows are missing: Spark reads lost ones again, which may fail or give others."""
    if received != count:
        raise RowsLost(f"{count} rows were read to merge into {name!r}, but {received} were joined; try again")


def _result(found: pa.Table, bundles: int, count: int, name: str) -> MergedFiles:
    """Join the results of all tasks. Raises RowsLost if one or a row is missing."""
    done = MergedFiles()
    gathered, reported, received = [], 0, 0
    for row in found.to_pylist():
        if row["key"] == _RECEIVED:
            received += row["rows"]
        elif row["label"] is None:
            gathered.append(Gathered.from_json(orjson.loads(row["indexed"])))
            done.expected, reported = done.expected + row["rows"], reported + row["bytes"]
        elif row["key"] is None:
            done.removed.append(row["label"])
        else:
            done.added.append(tasks.file_of(row))
    _require_all(received, count, name)
    if reported != bundles:
        raise RowsLost(f"{reported} of {bundles} tasks reported what they merged; try again")
    written = sum(file.rows for file in done.added)
    if written != done.expected:
        raise RowsLost(f"{done.expected} rows of {name!r} were to be written, but {written} were; try again")
    done.gathered = Gathered.joined(gathered)
    return done
