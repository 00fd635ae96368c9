"""``spark.read.format("kubothek")``: a dataset for SQL, Spark Connect and anything that knows formats only.

    CREATE TEMPORARY VIEW flights USING kubothek OPTIONS (path 's3://lake/warehouse', uuid 'flights', versionAsOf 12)

This is the slower way: Spark lets a data source in Python neither hand its files to Spark's own reader nor see which
columns a query needs, so Python workers read, at about twice the CPU, all columns there are. Filters are not taken
from Spark either: Spark 4.3 keeps those of one query for the next one over the same DataFrame or view, which then
gives wrong rows without a word. What shall not be read is said in options, and Spark filters what comes.
:func:`kubothek.spark.frames.read` has none of these limits.

Options: ``path`` of the store and ``uuid`` of the dataset; ``versionAsOf``, ``timestampAsOf`` or ``tagAsOf``;
``columns``, with commas between them (or ``spark.read.schema(...)``); ``where``, a filter; ``endpoint``, ``region``,
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
    """The options, checked; ``columns`` None = all."""

    store: StoreConfig
    uuid: str
    columns: tuple[str, ...] | None
    where: Predicate
    as_of: Version | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Raises InputError for an option that is missing, unknown or not what it should be."""
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
        """The version that is asked for."""
        store = open_store(self.store)
        return store, Dataset(Lake(store), self.uuid).snapshot(self.as_of)


class KubothekSource(spark.DataSource):
    """The format; Spark makes one for each query, and calls it in a Python process of its own."""

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
    """What one task reads: a version as if it had no other files."""

    snapshot: Snapshot


class Reader(spark.DataSourceReader):
    """Plans on the driver, reads in tasks; ``wanted`` are the columns that Spark asks for."""

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
            return  # Spark makes up an empty partition where there is none
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
