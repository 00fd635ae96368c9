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
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from tests.engines.packages import SPARK_JARS, ivy

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Table

NAMESPACE: Final = "default"
_NUMBERS: Final = count()


class Filter(NamedTuple):
    """A comparison that engines push down; ``value`` is None for ``is null``."""

    column: str
    operator: Literal["=", ">=", "is null"]
    value: Any = None


class Bucket(NamedTuple):
    """What an engine with credentials of the bucket has."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str


class Catalog(NamedTuple):
    """A REST catalogue; without a bucket, it signs the requests of engines for objects."""

    uri: str
    token: str
    bucket: Bucket | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a table.

    ``table``     location of the table; its name in a catalogue
    ``metadata``  location of its metadata: of the last export, or of the one at ``version``; unused with a catalogue
    ``version``   None: the current one
    ``tag``       instead of a version
    ``where``     filter
    ``count``     number of rows instead of rows, in a table of one value
    ``catalog``   None: from files alone
    """

    table: str
    metadata: str
    version: int | None = None
    tag: str | None = None
    where: Filter | None = None
    count: bool = False
    catalog: Catalog | None = None


def pyiceberg(read: Read) -> Any:
    from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThanOrEqual, IsNull

    table = _pyiceberg_table(read)
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


def _pyiceberg_table(read: Read) -> Table:
    from pyiceberg.table import StaticTable

    if read.catalog is None:
        return StaticTable.from_metadata(read.table)
    found: Table = _pyiceberg_catalog(read.catalog).load_table((NAMESPACE, read.table))
    return found


@cache
def _pyiceberg_catalog(catalog: Catalog) -> RestCatalog:
    from pyiceberg.catalog.rest import RestCatalog

    properties = {"uri": catalog.uri, "token": catalog.token}
    if (bucket := catalog.bucket) is not None:
        properties |= {"s3.access-key-id": bucket.access_key, "s3.secret-access-key": bucket.secret_key}
    return RestCatalog("kubothek", **properties)


def polars(read: Read) -> Any:
    import polars as pl

    source = read.metadata if read.catalog is None else _pyiceberg_table(read)
    frame = pl.scan_iceberg(source, snapshot_id=read.version)
    if read.where is not None:
        column, operator, value = read.where
        found = pl.col(column)
        frame = frame.filter(
            {"=": lambda: found == value, ">=": lambda: found >= value, "is null": found.is_null}[operator]()
        )
    return _number(frame.select(pl.len()).collect().item()) if read.count else frame.collect().to_arrow()


def duckdb(read: Read) -> Any:
    if read.catalog is None:
        at = "" if read.version is None else f", snapshot_from_id => {read.version}"
        table = f"iceberg_scan({_text(read.table)}{at})"
    else:
        at = "" if read.version is None else f" AT (VERSION => {read.version})"
        table = f'{_duckdb_catalog(read.catalog)}."{NAMESPACE}"."{read.table}"{at}'
    chosen = "count(*)" if read.count else "*"
    return _duckdb().execute(f"SELECT {chosen} FROM {table}{_sql(read.where)}").to_arrow_table()


@cache
def _duckdb_catalog(catalog: Catalog) -> str:
    connection = _duckdb()
    name = f"catalog{next(_NUMBERS)}"
    if (bucket := catalog.bucket) is not None:
        connection.execute(
            f"CREATE OR REPLACE SECRET bucket (TYPE s3, KEY_ID '{bucket.access_key}', SECRET '{bucket.secret_key}', "
            f"ENDPOINT '{bucket.endpoint.removeprefix('http://')}', REGION '{bucket.region}', "
            "URL_STYLE 'path', USE_SSL false)"
        )
    connection.execute(
        f"ATTACH 'lake' AS {name} (TYPE iceberg, ENDPOINT '{catalog.uri}', TOKEN '{catalog.token}', "
        "ACCESS_DELEGATION_MODE 'none')"
    )
    return name


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
    if read.catalog is None:
        frame = reader.load(read.table)
    else:
        frame = reader.table(f"{_spark_catalog(read.catalog)}.{NAMESPACE}.`{read.table}`")
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


@cache
def _spark_catalog(catalog: Catalog) -> str:
    name = f"catalog{next(_NUMBERS)}"
    properties = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": catalog.uri,
        ".token": catalog.token,
        ".cache-enabled": "false",
        ".header.X-Iceberg-Access-Delegation": "remote-signing",
    }
    if (bucket := catalog.bucket) is not None:
        del properties[".header.X-Iceberg-Access-Delegation"]
        properties |= {".s3.access-key-id": bucket.access_key, ".s3.secret-access-key": bucket.secret_key}
    for key, value in properties.items():
        _spark().conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


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
