"""A user's PySpark program that writes into a Dataset of a manifest: ``python spark_writer.py batch|stream JSON``.

The JSON has ``options`` of the format ``kubothek`` and ``rows`` of each write. A batch makes one write per entry of
``firsts``, with an id of its own. A stream makes one batch per file in ``landing``, and keeps its progress in
``checkpoint``. Each prints a line when it is done.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def batch(session: SparkSession, job: dict[str, Any]) -> None:
    """Append ranges of rows, each under a permanent id."""
    for first in job["firsts"]:
        x = session.range(first, first + job["rows"], 1, 2).withColumnRenamed("id", "x")
        rows = x.select("x", (sf.col("x") % 2).alias("p"), sf.concat(sf.lit("row "), "x").alias("text"))
        rows.write.format("kubothek").mode("append").options(**job["options"], commitId=f"load-{first}").save()


def stream(session: SparkSession, job: dict[str, Any]) -> None:
    """Append the rows of all CSV files, a file in each batch."""
    files = session.readStream.schema("x BIGINT, p BIGINT, text STRING").option("maxFilesPerTrigger", 1)
    query = (
        files.csv(job["landing"])
        .writeStream.format("kubothek")
        .options(**job["options"], checkpointLocation=job["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Run one program."""
    kind, job = sys.argv[1], json.loads(sys.argv[2])
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    {"batch": batch, "stream": stream}[kind](builder.getOrCreate(), job)
    print("done", flush=True)


if __name__ == "__main__":
    main()
