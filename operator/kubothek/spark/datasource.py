"""The format ``kubothek``: a dataset for SQL, Spark Connect, streams, and programs that only know formats.

    CREATE TEMPORARY VIEW flights USING kubothek OPTIONS (path 's3://lake/warehouse', uuid 'flights', versionAsOf 12)

Reads are slower than :func:`kubothek.spark.frames.read`. Spark does not let a Python data source use Spark's own
reader, nor see which columns a query needs. So Python workers read all columns, at about twice the CPU. Predicate
pushdown is off: Spark 4.3 keeps a query's filters for the next query over the same DataFrame or view, which then
silently returns wrong rows. Options restrict what is read, and Spark filters the result.

The options are in docs/spark.md. Spark calls these classes in separate Python processes, by the names of its arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kubothek.errors import InputError
from kubothek.spark.options import ReadOptions, WriteOptions
from kubothek.spark.sink import BatchWriter, StreamWriter
from kubothek.spark.stream import latest_version, new_files, require_no_loss
from kubothek.spark.types import spark_schema
from kubothek.storage import Store, open_store
from kubothek.table.log import Head, Snapshot
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import scan

NAME: Final = "kubothek"

_MOST_TASKS: Final = 2000


class KubothekSource(spark.DataSource):
    """The format. Spark creates one per query, and calls it in a separate Python process."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = ReadOptions.of(self.options, stream="startingVersion" in self.options)
        schema = _schema(options.snapshot()[1])
        return spark_schema(schema if options.columns is None else _selected(schema, options.columns))

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
        self._wanted = to_arrow_schema(wanted)

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Files):
            return  # without partitions, Spark makes up an empty one
        store = open_store(self._options.place.store)
        for batch in scan(store, partition.snapshot, self._wanted.names, self._options.where):
            yield batch.cast(self._wanted)

    def _planned(self, store: Store, snapshot: Snapshot) -> Sequence[Files]:
        labels = [file.label for file in plan(store, snapshot, self._options.where).files]
        return _tasks(snapshot, {label: snapshot.head.partitions[label] for label in labels})


class Reader(_Scan, spark.DataSourceReader):
    """Reader of one version, which plans on the driver and reads in tasks."""

    def partitions(self) -> Sequence[Files]:
        return self._planned(*self._options.snapshot())


class StreamReader(_Scan, spark.DataSourceStreamReader):
    """Reader of versions in micro-batches; an offset is the last version that was read, 0 before the first batch.

    The first batch has all rows of the version that is current then, unless ``startingVersion`` is set; later ones have
    the rows of the files that commits added.
    """

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        return {"version": (self._options.starting or 1) - 1}

    def latestOffset(self, start: Mapping[str, int], limit: object) -> dict[str, int]:  # noqa: N802 - Spark's
        _, dataset = self._options.place.open()
        return {"version": latest_version(dataset, start["version"])}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[Files]:
        first, last = start["version"], end["version"]
        if first == last:
            return []
        store, dataset = self._options.place.open()
        snapshot = dataset.snapshot(last)
        if first == 0 and self._options.starting is None:
            return self._planned(store, snapshot)
        added = new_files(dataset, first, last)
        require_no_loss(dataset, added)
        return _tasks(snapshot, {file.label: {"files": {snapshot.head.table: file.key}} for file in added})


def _tasks(snapshot: Snapshot, partitions: Mapping[str, Any]) -> list[Files]:
    """Divide these partitions of a head among tasks."""
    labels = list(partitions)
    size = -(-len(labels) // _MOST_TASKS) or 1
    pieces = (labels[start : start + size] for start in range(0, len(labels), size))
    uuid, partition_keys = snapshot.head.uuid, snapshot.head.partition_keys
    heads = (Head(uuid, {label: partitions[label] for label in piece}, partition_keys) for piece in pieces)
    return [Files(replace(snapshot, head=head)) for head in heads]


def _schema(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def _selected(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    if unknown := [name for name in columns if name not in schema.names]:
        raise InputError(f"no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])
