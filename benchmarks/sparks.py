"""Spark's sessions in comparisons: what their start takes is not part of the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Series
from kubothek.spark.session import running
from tests.engines.packages import SPARK, installed, ivy

_SCRIPT: Final = Path(__file__).parent / "systems" / "spark_process.py"
_PLAIN: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
"""Else Spark as it comes: our jobs' sessions start fast instead, without Java's second compiler."""

# No runtime of Delta is for Spark 4.3; 4.4.1 for Spark 4.1 is on PyPI, but its jar is not in Maven.
_DELTA: Final[Mapping[str, str]] = {
    "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.3.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkProcess:
    """A session in a process of its own, started on entry; a context manager.

    ``conf``     settings besides the plain ones
    ``modules``  a directory of packages that go before those of this process
    """

    def __init__(self, conf: Mapping[str, str], modules: Path | None = None) -> None:
        self._conf = {**_PLAIN, **conf}
        self._path = [str(modules)] if modules else []

    def __enter__(self) -> Self:
        path = os.pathsep.join([*self._path, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(  # noqa: S603 - a file of this package
            [sys.executable, "-W", "ignore", str(_SCRIPT), json.dumps(self._conf)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=60)

    def ask(self, verb: str, *given: object) -> None:
        """Run one of ``spark_process.VERBS``. Raises RuntimeError if it fails; its error is on standard error."""
        assert self._process.stdin is not None
        print(json.dumps([verb, *given]), file=self._process.stdin, flush=True)
        self._answer(verb)

    def _answer(self, verb: str = "start") -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"Spark process: {verb} failed; its error is above")


def plain_spark() -> SparkProcess:
    """Return a process with Spark as a user starts it."""
    return SparkProcess({})


def delta_spark() -> SparkProcess:
    """Return a process with Delta Lake and the newest Spark that it runs in. Maven and pip install both once."""
    return SparkProcess({**_DELTA, "spark.jars.ivy": str(ivy())}, installed(SPARK))


@contextmanager
def started() -> Iterator[tuple[SparkSession, Series]]:
    """A session that has run its first job, and what it took until then."""
    start = Series("Spark's session: start")
    with ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(running({"spark.master": "local[*]"})).range(1).count()

        start.time(begin, cpu_of_all)
        session = SparkSession.getActiveSession()
        assert session is not None, "it has run a job"
        yield session, start
