"""A Spark session in a process of its own: one JSON array in a line in, one line out.

A process has one JVM and one version of PySpark, so sessions with other JVM settings or another PySpark run this file.
Its arguments are the session's settings as JSON; lines in are ``[verb, argument, ...]`` with a verb of :data:`VERBS`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession


def write_parquet(session: SparkSession, source: str, target: str, partition_on: Sequence[str]) -> None:
    """Write Spark's own Parquet files: no transaction, no index, no hash."""
    writer = session.read.parquet(source).write.partitionBy(*partition_on)
    writer.option("compression", "zstd").parquet(target)


def write_kubothek(session: SparkSession, source: str, url: str, uuid: str, settings: Mapping[str, str]) -> None:
    """Append to an existing dataset, with these settings of the session."""
    for name, value in settings.items():
        session.conf.set(name, value)
    frame = session.read.parquet(source)
    frame.write.format("kubothek").mode("append").options(path=url, uuid=uuid).save()
    for name in settings:
        session.conf.unset(name)


def write_delta(session: SparkSession, source: str, target: str, partition_on: Sequence[str]) -> None:
    """Write a new Delta table, with the statistics that Delta collects by default."""
    session.conf.set("spark.sql.parquet.compression.codec", "zstd")
    session.read.parquet(source).write.format("delta").partitionBy(*partition_on).save(target)


def keep(session: SparkSession, source: str, name: str) -> None:
    """Keep the rows of Parquet files in memory, as a view."""
    frame = session.read.parquet(source).cache()
    frame.count()
    frame.createOrReplaceTempView(name)


def merge_delta(session: SparkSession, view: str, target: str, key: str) -> None:
    """Update the rows with the keys of the view, and insert the others."""
    session.sql(
        f"MERGE INTO delta.`{target}` AS target USING {view} AS source ON target.{key} = source.{key} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def restore_delta(session: SparkSession, target: str, version: int) -> None:
    """Make an earlier version the current one."""
    session.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {version}")


VERBS: Final[Mapping[str, Callable[..., None]]] = {
    verb.__name__: verb for verb in (write_parquet, write_kubothek, write_delta, keep, merge_delta, restore_delta)
}


def main(conf: Mapping[str, Any]) -> None:
    """Answer until there are no more lines."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java prints is no answer
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    print("started", file=answers, flush=True)
    for line in sys.stdin:
        verb, *given = json.loads(line)
        VERBS[verb](session, *given)
        print("done", file=answers, flush=True)
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
