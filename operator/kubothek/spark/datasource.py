"""``spark.read.format("kubothek")``: a dataset for SQL, Spark Connect and programs that only know formats.

    CREATE TEMPORARY VIEW flights USING kubothek OPTIONS (path 's3://lake/warehouse', uuid 'flights', versionAsOf 12)

This is the slower way. Spark does not let a Python data source use Spark's own reader, nor see which columns a query
needs. So Python workers read all columns, at about twice the CPU. Predicate pushdown is off: Spark 4.3 keeps a query's
filters for the next query over the same DataFrame or view, which then silently returns wrong rows. Options restrict
what is read, and Spark filters the result. :func:`kubothek.spark.frames.read` has none of these limits.

Options: ``path`` of the store and ``uuid`` of the dataset; ``versionAsOf``, ``timestampAsOf`` or ``tagAsOf``;
``columns``, separated by commas (or ``spark.read.schema(...)``); ``where``, a filter; ``endpoint``, ``region``,
``credentialsDir`` as for :func:`kubothek.open`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kubothek.catalog import Dataset, Lake
from kubothek.errors import InputError
from kubothek.spark.types import spark_schema
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import TRUE, Predicate, parse
from kubothek.table.log import Head, Snapshot, Version
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import scan

NAME: Final = "kubothek"

_MOST_TASKS: Final = 2000
_KNOWN: Final = (
    *("path", "uuid", "columns", "where", "versionAsOf", "timestampAsOf", "tagAsOf"),
    *("endpoint", "region", "credentialsDir"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The validated options; ``columns`` None = all."""

    store: StoreConfig
    uuid: str
    columns: tuple[str, ...] | None
    where: Predicate
    as_of: Version | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Validate options. Raises InputError for a missing, unknown or invalid one."""
        known = {name.lower() for name in _KNOWN}
        if unknown := [name for name in given if name.lower() not in known]:
            raise InputError(f"unknown option {unknown[0]!r}; there are {', '.join(_KNOWN)}")
        for name in ("path", "uuid"):
            if not given.get(name):
                raise InputError(f"the option {name!r} is missing: path of the store, uuid of the dataset")
        columns = given.get("columns")
        return cls(
            StoreConfig(given["path"], given.get("endpoint"), given.get("region"), given.get("credentialsDir")),
            given["uuid"],
            None if columns is None else tuple(name.strip() for name in columns.split(",")),
            parse(given["where"]) if "where" in given else TRUE,
            _as_of(given.get("versionAsOf"), given.get("timestampAsOf"), given.get("tagAsOf")),
        )

    def snapshot(self) -> tuple[Store, Snapshot]:
        """Return the store and the snapshot of the requested version."""
        store = open_store(self.store)
        return store, Dataset(Lake(store), self.uuid).snapshot(self.as_of)


class KubothekSource(spark.DataSource):
    """The format. Spark creates one per query, and calls it in a separate Python process."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = Options.of(self.options)
        schema = _schema(options.snapshot()[1])
        return spark_schema(schema if options.columns is None else _selected(schema, options.columns))

    def reader(self, schema: StructType) -> Reader:
        return Reader(Options.of(self.options), schema)


@dataclass(frozen=True)
class Files(spark.InputPartition):
    """Input of one task: a snapshot reduced to the task's files."""

    snapshot: Snapshot


class Reader(spark.DataSourceReader):
    """Reader that plans on the driver and reads in tasks; ``wanted`` are the columns that Spark asks for."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self._options = options
        self._wanted = to_arrow_schema(wanted)

    def partitions(self) -> Sequence[Files]:
        store, snapshot = self._options.snapshot()
        head = snapshot.head
        labels = [file.label for file in plan(store, snapshot, self._options.where).files]
        size = -(-len(labels) // _MOST_TASKS) or 1
        tasks = (labels[start : start + size] for start in range(0, len(labels), size))
        heads = (
            Head(head.uuid, {label: head.partitions[label] for label in task}, head.partition_keys) for task in tasks
        )
        return [Files(replace(snapshot, head=some)) for some in heads]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Files):
            return  # without partitions, Spark makes up an empty one
        store = open_store(self._options.store)
        for batch in scan(store, partition.snapshot, self._wanted.names, self._options.where):
            yield batch.cast(self._wanted)


def _schema(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    if unknown := [name for name in columns if name not in schema.names]:
        raise InputError(f"no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])


def _as_of(version: str | None, timestamp: str | None, tag: str | None) -> Version | None:
    if sum(each is not None for each in (version, timestamp, tag)) > 1:
        raise InputError("give versionAsOf, timestampAsOf or tagAsOf, not both")
    try:
        if version is not None:
            return int(version)
        return tag if timestamp is None else datetime.fromisoformat(timestamp)
    except ValueError:
        raise InputError(
            f"versionAsOf {version!r}, timestampAsOf {timestamp!r}: a version is a number, a time is in ISO 8601"
        ) from None
