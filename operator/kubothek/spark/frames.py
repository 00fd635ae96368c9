"""A version of a dataset as a DataFrame that Spark's own Parquet reader serves.

    from kubothek.spark.frames import read
    delayed = read(spark, "s3://lake/warehouse", "flights", where="month = 3 AND delay > 60", as_of=12)

The driver plans which files to read, from partition keys, indices and statistics, and gives Spark the list of files.
See :mod:`kubothek.spark.datasource` for ``spark.read.format("kubothek")``, which needs no JVM behind the session and is
slower.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import kubothek
from kubothek.catalog import Dataset
from kubothek.spark.relation import Directory, relation
from kubothek.spark.types import column, condition, spark_schema
from kubothek.storage import StoreConfig
from kubothek.storage.credentials import MountedCredentials
from kubothek.storage.urls import S3Location, parse_url
from kubothek.table.expressions import TRUE
from kubothek.table.expressions.written import Filter, as_predicate
from kubothek.table.log import Version
from kubothek.table.log.model.paths import parse_path
from kubothek.table.scan.plan import plan


def read(
    session: SparkSession,
    url: str,
    dataset: str,
    *,
    columns: Sequence[str] | None = None,
    where: Filter | None = None,
    as_of: Version | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    credentials_dir: str | None = None,
) -> DataFrame:
    """Return the rows of one version of a dataset, lazily, in no order.

    ``session``  a classic session (not Spark Connect), with the S3A jars for a store in S3
    ``columns``  names, in the order wanted; None = all
    ``where``    only rows for which it is TRUE. It prunes files by partition columns, indexed columns and statistics.
                 Later filters on the DataFrame prune partitions and row groups, but do not use indices
    ``as_of``    a version, a time at which it was current, or a tag
    ``endpoint``, ``region``, ``credentials_dir``  as for :func:`kubothek.open`; also set in Spark, for this bucket.
                 If absent, the session's own S3A settings apply

    Raises DatasetNotFound, VersionNotFound, VersionIncomplete, FilterInvalid, InputError.
    """
    lake = kubothek.open(url, endpoint=endpoint, region=region, credentials_dir=credentials_dir)
    snapshot = Dataset(lake, dataset).snapshot(as_of)
    schema = snapshot.schema or pa.schema([])
    predicate = (as_predicate(where) if where is not None else TRUE).bind(schema)
    planned = plan(lake.store, snapshot, predicate).files
    lake.store.check_no_links(file.key for file in planned)
    found = _frame(
        session,
        configure(session, lake.store.config),
        [file.key for file in planned],
        schema,
        snapshot.head.partition_keys,
        set(schema.names) if columns is None else {*columns, *predicate.fields},
    )
    if not all(file.all_rows for file in planned):
        found = found.where(condition(predicate))
    return found.select(*(column(name) for name in (schema.names if columns is None else columns)))


def configure(session: SparkSession, config: StoreConfig) -> str:
    """Set Hadoop's configuration of the store's bucket; return the store's root as a Hadoop path."""
    location = parse_url(config.url)
    if not isinstance(location, S3Location):
        return f"file:{location.root}"  # a Hadoop Path is not percent-encoded
    context = session.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in s3a_settings(config).items():
        hadoop.set(f"fs.s3a.bucket.{location.bucket}.{name}", value)
    return f"s3a://{location.bucket}/{location.prefix}".rstrip("/")


def s3a_settings(config: StoreConfig) -> dict[str, str]:
    """Return the S3A settings of a bucket that the configuration names."""
    settings: dict[str, str | None] = {}
    if config.endpoint:
        settings |= {"endpoint": config.endpoint, "path.style.access": "true"}
    if config.region:
        settings["endpoint.region"] = config.region
    if config.credentials_dir:
        mounted = MountedCredentials(Path(config.credentials_dir)).get_frozen_credentials()
        settings |= {"access.key": mounted.access_key, "secret.key": mounted.secret_key}
        settings["session.token"] = mounted.token
    return {name: value for name, value in settings.items() if value}


def _frame(
    session: SparkSession,
    root: str,
    keys: Sequence[str],
    schema: pa.Schema,
    partition_keys: Sequence[str],
    needed: Collection[str],
) -> DataFrame:
    """Return all rows of these files, with at least the needed columns."""
    files: dict[str, list[str]] = {}
    for key in keys:
        files.setdefault(key.rpartition("/")[0], []).append(f"{root}/{key}")
    in_path = pa.schema([schema.field(name) for name in partition_keys if name in needed])
    values = [parse_path("/".join(path.split("/")[2:]), schema) for path in files]
    in_files = [field for field in schema if field.name in needed and field.name not in partition_keys]
    empty = [field.name for field in in_files if pa.types.is_null(field.type)]
    stored = [field for field in in_files if field.name not in empty]
    found = relation(
        session,
        [Directory(f"{root}/{path}", names) for path, names in files.items()],
        stored=spark_schema(pa.schema(stored)),
        partition_values=pa.table(
            [pa.array([row.get(name) for row in values], in_path.field(name).type) for name in in_path.names],
            schema=in_path,
        ),
    )
    return found.withColumns({name: sf.lit(None) for name in empty})
