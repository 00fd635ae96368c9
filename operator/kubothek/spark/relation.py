"""Parquet files with their partition values as a relation of Spark's own.

Spark's Parquet reader can be given files and their partition values, but not from Python: ``spark.read.parquet``
would list directories and guess the values from their names, which it decodes byte by byte (``ü`` comes out as two
characters), with types and NULLs of its own. So the relation is put together from the classes that ``spark.read``
itself uses, in the JVM. What comes out is an ordinary scan: columns and filters are pushed into it, and filters on
partition columns drop files.
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
"""No key has it, so that one call takes all paths to the JVM."""


@dataclass(frozen=True)
class Directory:
    """A directory of data files that share their partition values; ``paths`` of the files are absolute."""

    path: str
    files: Sequence[str]


def relation(
    session: SparkSession, directories: Sequence[Directory], *, stored: StructType, partition_values: pa.Table
) -> DataFrame:
    """The rows of these files, and no others that lie beside them; reads no data yet, but looks for each file.

    ``stored``            columns that are in the files; one that a file lacks is NULL
    ``partition_values``  a row a directory, a column a partition column

    Raises VersionIncomplete if a file is not there. Takes some 0.3 ms a directory.
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
    """The directories with their values, in Spark's own form of rows."""
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
    """An ``object`` of Scala's."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _require_all(found: int, wanted: int) -> None:
    if found != wanted:
        raise VersionIncomplete(
            f"{wanted - found} of {wanted} files that the version needs are gone; read a newer version, or restore them"
        )
