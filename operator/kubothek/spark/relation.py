"""Parquet files with their partition values, as a native relation of Spark.

Spark's Parquet reader accepts files with their partition values, but not from Python. ``spark.read.parquet`` would list
directories and guess the values from their names. It decodes names byte by byte (``ü`` becomes two characters), and has
its own types and NULLs. So this module builds the relation in the JVM, from the classes that ``spark.read`` uses. The
result is a normal scan: Spark pushes columns and filters into it, and prunes files by partition columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kubothek.errors import VersionIncomplete
from kubothek.spark.errors import SparkFailed, last_words
from kubothek.spark.types import spark_schema, storable

_SEPARATOR = "\0"
"""No key contains it, so one call can pass all paths to the JVM."""


@dataclass(frozen=True)
class Directory:
    """A directory of data files with the same partition values; the paths in ``files`` are absolute."""

    path: str
    files: Sequence[str]


def relation(
    session: SparkSession, directories: Sequence[Directory], *, stored: StructType, partition_values: pa.Table
) -> DataFrame:
    """Return the rows of exactly these files. It reads no data, but checks that each file exists.

    ``stored``            columns in the files; a column that a file lacks is NULL
    ``partition_values``  one row per directory, one column per partition column

    Raises VersionIncomplete if a file is missing. Takes about 0.3 ms per directory.
    """
    try:
        return _relation(session, directories, stored, partition_values)
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(last_words(error)) from error


def _relation(
    session: SparkSession, directories: Sequence[Directory], stored: StructType, partition_values: pa.Table
) -> DataFrame:
    jvm: Any = session._jvm
    classic = session._jsparkSession
    sources = jvm.org.apache.spark.sql.execution.datasources
    options = _singleton(jvm.scala.collection.immutable, "Map").empty()
    types = spark_schema(partition_values.schema)
    values = session.createDataFrame(storable(partition_values), types) if partition_values.num_columns else None
    partition_schema = jvm.org.apache.spark.sql.types.StructType() if values is None else values._jdf.schema()
    files = _paths(jvm, [file for directory in directories for file in directory.files])
    spec = sources.PartitionSpec(partition_schema, _partitions(jvm, sources, directories, values))
    index = sources.InMemoryFileIndex(
        classic,
        jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(files),
        options,
        jvm.scala.Option.empty(),
        _singleton(sources, "NoopCache"),
        jvm.scala.Option.apply(spec),
        jvm.scala.Option.empty(),
    )
    _require_all(index.allFiles().size(), len(files))
    stored_schema = jvm.org.apache.spark.sql.types.DataType.fromJson(stored.json())
    found = sources.HadoopFsRelation(
        index,
        partition_schema,
        stored_schema,
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        options,
        classic,
    )
    return DataFrame(classic.baseRelationToDataFrame(found), session)


def _partitions(jvm: Any, sources: Any, directories: Sequence[Directory], values: DataFrame | None) -> Any:
    """Return the directories with their values, as Spark's internal rows."""
    partitions = jvm.java.util.ArrayList()
    if values is not None and directories:
        paths = _paths(jvm, [directory.path for directory in directories])
        rows = values._jdf.queryExecution().executedPlan().executeCollect()
        for row, path in zip(rows, paths, strict=True):
            partitions.add(sources.PartitionPath(row, path))
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(partitions).toSeq()


def _paths(jvm: Any, texts: Sequence[str]) -> Any:
    split = jvm.org.apache.commons.lang3.StringUtils.split(_SEPARATOR.join(texts), _SEPARATOR)
    return jvm.org.apache.hadoop.util.StringUtils.stringToPath(split)


def _singleton(package: Any, name: str) -> Any:
    """Return a Scala ``object``."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _require_all(found: int, wanted: int) -> None:
    if found != wanted:
        raise VersionIncomplete(
            f"{wanted - found} of {wanted} files that the version needs no longer exist; read a newer version, or "
            "restore them"
        )
