"""The format ``kubothek``: a dataset for SQL, Spark Connect, streams, and programs that only know formats.

    CREATE TEMPORARY VIEW flights USING kubothek OPTIONS (path 's3://lake/warehouse', uuid 'flights', versionAsOf 12)

Reads are slower than :func:`kubothek.spark.frames.read`. Spark does not let a Python data source use Spark's own
reader, nor see which columns a query needs. So Python workers read all columns, at about twice the CPU. Predicate
pushdown is off: Spark 4.3 keeps a query's filters for the next query over the same DataFrame or view, which then
silently returns wrong rows. Options restrict what is read, and Spark filters the result.

The options are in docs/spark.md. Spark calls these classes in separate Python processes, by the names of its arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kubothek.errors import InputError
from kubothek.spark.change_feed import MOST_TASKS, Items, all_rows, feed, tasks, version_before
from kubothek.spark.options import ReadOptions, WriteOptions
from kubothek.spark.sink import BatchWriter, StreamWriter
from kubothek.spark.stream import latest_version, new_files, require_no_loss, restarted_if_expired
from kubothek.spark.types import spark_schema
from kubothek.storage import Store, open_store
from kubothek.table.changes import Changes, changed_rows
from kubothek.table.changes.plan import with_feed_columns
from kubothek.table.log import Head, Snapshot
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import scan

NAME: Final = "kubothek"


class KubothekSource(spark.DataSource):
    """The format. Spark creates one per query, and calls it in a separate Python process."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = ReadOptions.of_either(self.options)
        if not options.feed:
            return spark_schema(_selected(_schema(options.snapshot()[1]), options.columns))
        _, dataset = options.place.open()
        end = dataset.version if options.as_of is None else options.as_of
        stored = feed(dataset, end, end, options.key).stored
        return spark_schema(with_feed_columns(_selected(stored, options.columns)))

    def reader(self, schema: StructType) -> Reader:
        return Reader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's
        return StreamReader(ReadOptions.of(self.options, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(WriteOptions.of(self.options, overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's
        return StreamWriter(WriteOptions.of(self.options, overwrite=overwrite, stream=True), schema)


@dataclass(frozen=True)
class Files(spark.InputPartition):
    """Input of one task: a snapshot reduced to the task's files."""

    snapshot: Snapshot


class _Scan:
    """Reads of tasks; ``wanted`` are the columns that Spark asks for."""

    def __init__(self, options: ReadOptions, wanted: StructType) -> None:
        self._options = options
        self._wanted = to_arrow_schema(wanted, timezone="UTC")

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        store, names = open_store(self._options.place.store), self._wanted.names
        if isinstance(partition, Files):
            batches: Iterable[pa.RecordBatch] = scan(store, partition.snapshot, names, self._options.where)
        elif isinstance(partition, Items):
            batches = (batch.select(names) for batch in changed_rows(store, partition.changes))
        else:
            return  # without partitions, Spark makes up an empty one
        for batch in batches:
            yield batch.cast(self._wanted)

    def _planned(self, store: Store, snapshot: Snapshot) -> Sequence[Files]:
        labels = [file.label for file in plan(store, snapshot, self._options.where).files]
        return _tasks(snapshot, {label: snapshot.head.partitions[label] for label in labels})

    def _planned_feed(self, changes: Changes) -> Sequence[Items]:
        _selected(changes.schema, self._wanted.names)
        return tasks(changes)


class Reader(_Scan, spark.DataSourceReader):
    """Reader of one version or of a change feed, which plans on the driver and reads in tasks."""

    def partitions(self) -> Sequence[spark.InputPartition]:
        options = self._options
        if options.starting is None:
            return self._planned(*options.snapshot())
        _, dataset = options.place.open()
        before = version_before(dataset, options.starting)
        return self._planned_feed(feed(dataset, before, options.as_of, options.key))


class StreamReader(_Scan, spark.DataSourceStreamReader):
    """Reader of versions in micro-batches; an offset is the last version that was read, 0 before the first batch.

    The first batch has all rows of the version that is current then, unless a start is set; later ones have the rows of
    the files that commits added, or their changes.
    """

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        if self._options.starting is None:
            return {"version": 0}
        return {"version": version_before(self._options.place.open()[1], self._options.starting)}

    def latestOffset(self, start: Mapping[str, int], limit: object) -> dict[str, int]:  # noqa: N802 - Spark's
        _, dataset = self._options.place.open()
        return {"version": latest_version(dataset, start["version"])}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[spark.InputPartition]:
        first, last = start["version"], end["version"]
        if first == last:
            return []
        options = self._options
        store, dataset = options.place.open()
        everything = first == 0 and options.starting is None
        if options.feed and everything:
            return self._planned_feed(all_rows(dataset, last, options.key))
        if options.feed:
            with restarted_if_expired():
                return self._planned_feed(feed(dataset, first, last, options.key))
        snapshot = dataset.snapshot(last)
        if everything:
            return self._planned(store, snapshot)
        with restarted_if_expired():
            added = new_files(dataset, first, last)
        require_no_loss(dataset, added)
        return _tasks(snapshot, {key: {"files": {snapshot.head.table: key}} for key in added})


def _tasks(snapshot: Snapshot, partitions: Mapping[str, Any]) -> list[Files]:
    """Divide these partitions of a head among tasks."""
    labels = list(partitions)
    size = -(-len(labels) // MOST_TASKS) or 1
    pieces = (labels[start : start + size] for start in range(0, len(labels), size))
    uuid, partition_keys = snapshot.head.uuid, snapshot.head.partition_keys
    heads = (Head(uuid, {label: partitions[label] for label in piece}, partition_keys) for piece in pieces)
    return [Files(replace(snapshot, head=head)) for head in heads]


def _schema(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def _selected(schema: pa.Schema, columns: Collection[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if unknown := [name for name in columns if name not in schema.names]:
        raise InputError(f"no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])
