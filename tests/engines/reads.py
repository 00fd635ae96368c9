"""What tests ask of an engine, and how each engine answers.

The functions run in a process of their own (:mod:`tests.engines.engine`), where an engine is imported when it is first
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import files
from math import isfinite
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tests.engines.packages import SPARK_JARS, ivy


class Filter(NamedTuple):
    """A comparison that engines push down; ``value`` is None for ``is null``."""

    column: str
    operator: Literal["=", ">=", "is null"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a table.

    ``table``     location of the table
    ``metadata``  location of its metadata: of the last export, or of the one at ``version``
    ``version``   None: the current one
    ``tag``       instead of a version
    ``where``     filter
    ``count``     number of rows instead of rows, in a table of one value
    """

    table: str
    metadata: str
    version: int | None = None
    tag: str | None = None
    where: Filter | None = None
    count: bool = False


def pyiceberg(read: Read) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThanOrEqual, IsNull
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(read.table)
    chosen: Any = AlwaysTrue()
    if read.where is not None:
        column, operator, value = read.where
        literal = value.isoformat() if isinstance(value, date) else value
        made: dict[str, Callable[..., Any]] = {"=": EqualTo, ">=": GreaterThanOrEqual, "is null": IsNull}
        chosen = made[operator](column) if operator == "is null" else made[operator](column, literal)
    scan = table.scan(row_filter=chosen, snapshot_id=read.version)
    if read.tag is not None:
        scan = scan.use_ref(read.tag)
    return _number(scan.count()) if read.count else scan.to_arrow()


def polars(read: Read) -> Any:
    import polars as pl

    frame = pl.scan_iceberg(read.metadata, snapshot_id=read.version)
    if read.where is not None:
        column, operator, value = read.where
        found = pl.col(column)
        frame = frame.filter(
            {"=": lambda: found == value, ">=": lambda: found >= value, "is null": found.is_null}[operator]()
        )
    return _number(frame.select(pl.len()).collect().item()) if read.count else frame.collect().to_arrow()


def duckdb(read: Read) -> Any:
    at = "" if read.version is None else f", snapshot_from_id => {read.version}"
    chosen = "count(*)" if read.count else "*"
    statement = f"SELECT {chosen} FROM iceberg_scan({_text(read.table)}{at}){_sql(read.where)}"
    return _duckdb().execute(statement).to_arrow_table()


@cache
def _duckdb() -> Any:
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for name in ("avro", "httpfs", "iceberg"):
        (extension,) = [each for each in files(f"duckdb-extension-{name}") or () if each.suffix == ".duckdb_extension"]
        connection.execute(f"LOAD {_text(str(extension.locate()))}")
    connection.execute("SET threads = 1")
    return connection


def rust(read: Read) -> Any:
    from datafusion import SessionConfig, SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    context = SessionContext(SessionConfig().with_target_partitions(1))
    table = IcebergDataFusionTable(identifier=["n", "t"], metadata_location=read.metadata, file_io_properties={})
    context.register_table("t", table)
    chosen = "count(*)" if read.count else "*"
    return context.sql(f"SELECT {chosen} FROM t{_sql(read.where)}").to_arrow_table()


def spark(read: Read) -> Any:
    from pyspark.sql import functions

    reader = _spark().read.format("iceberg")
    if (version := read.tag or read.version) is not None:
        reader = reader.option("versionAsOf", version)
    frame = reader.load(read.table)
    if read.where is not None:
        column, operator, value = read.where
        found = functions.col(f"`{column}`")
        frame = frame.filter(
            {
                "=": lambda: found == functions.lit(value),
                ">=": lambda: found >= functions.lit(value),
                "is null": found.isNull,
            }[operator]()
        )
    return _number(frame.count()) if read.count else frame.toArrow()


@cache
def _spark() -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[1]",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.jars.packages": ",".join(SPARK_JARS),
        "spark.jars.ivy": str(ivy()),
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


READERS: dict[str, Callable[[Read], Any]] = {
    "pyiceberg": pyiceberg,
    "polars": polars,
    "duckdb": duckdb,
    "rust": rust,
    "spark": spark,
}


def _number(found: int) -> pa.Table:
    return pa.table({"rows": [found]})


def _sql(where: Filter | None) -> str:
    if where is None:
        return ""
    column = '"' + where.column.replace('"', '""') + '"'
    return f" WHERE {column} {where.operator}" + ("" if where.value is None else f" {literal(where.value)}")


def literal(value: Any) -> str:
    """Return the value in SQL of DuckDB, DataFusion and Kubothek."""
    match value:
        case datetime():
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value}'"
        case float():
            return f"{value!r}e0" if isfinite(value) else f"DOUBLE '{'-' if value < 0 else ''}Infinity'"
        case int() | Decimal():
            return str(value)
        case _:
            return _text(value)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
