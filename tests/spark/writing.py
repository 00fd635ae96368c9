"""A user's own PySpark program, which knows nothing of tests: it runs the writes that lines on its stdin name.

A line is ``{"kind": "batch", "options": {…}}``, or ``{"kind": "stream", "options": {…}, "landed": "/in", "checkpoint":
"/checkpoint"}``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

ROWS = 40


def batch(session: SparkSession, options: dict[str, str]) -> None:
    """Append rows 0 to 39, of two tasks. The option ``commitId`` says which write it is."""
    rows = session.range(0, ROWS, 1, 2)
    rows.write.format("kubothek").mode("append").options(**options).save()


def stream(session: SparkSession, options: dict[str, str], landed: str, checkpoint: str) -> None:
    """Append the rows of all files in a directory, a file a batch, of two tasks."""
    files = session.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(landed)
    query = (
        files.repartition(2)
        .writeStream.format("kubothek")
        .options(**options, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


KINDS: dict[str, Callable[..., None]] = {"batch": batch, "stream": stream}


def run(session: SparkSession, write: dict[str, Any]) -> None:
    """Run one write."""
    KINDS[write["kind"]](session, **{name: value for name, value in write.items() if name != "kind"})


def run_in_thread(session: SparkSession, write: dict[str, Any]) -> None:
    """Run one write in a thread of its own, which needs an active session to find a Python data source."""
    session.createDataFrame([], "id long")  # makes this one active here
    run(session, write)


def main() -> None:
    """Run each line's write beside those of the lines before; end with the input, when all have ended."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "1g").getOrCreate()
    threads = []
    for line in sys.stdin:
        threads.append(threading.Thread(target=run_in_thread, args=(session, json.loads(line))))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
