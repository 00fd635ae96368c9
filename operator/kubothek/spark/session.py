"""The Spark session of a job, with the driver in this process's JVM and executors in it, beside it or in pods."""

from __future__ import annotations

import base64
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kubothek.spark.beside import beside
from kubothek.spark.errors import ExecutorsUnavailable, SparkUnavailable, last_words
from kubothek.spark.pod import api_server

log = logging.getLogger(__name__)

_ARROW_BATCH_BYTES: Final = 32 << 20

DEFAULTS: Final[Mapping[str, str]] = {
    # For a fast start, without what a job with one write does not need.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.log.level": "WARN",
    # Compiling a query costs more than it saves, as one fat row holds thousands of rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Rows are fat rows: pieces of partitions, compressed, of up to some MiB each.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_ARROW_BATCH_BYTES),
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
"""Settings that a job may override."""

_TASK_FAILURES: Final = "4"

FIXED: Final[Mapping[str, str]] = {
    # A task that lost its executor or its store is retried; bad input never raises an exception in a task.
    "spark.task.maxFailures": _TASK_FAILURES,
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
    "spark.submit.deployMode": "client",
    # The driver's JVM lives for minutes and does little: neither a parallel collector nor the second
    # compiler pays off (as measured with Spark 4.3). Executors keep Java's defaults.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Driver and executors prove to each other that they know the secret of the session, and encrypt what they send:
    # https://spark.apache.org/docs/latest/security.html#spark-rpc-communication-protocol-between-spark-processes
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Settings that the write and its security rely on."""


_POD_ENVIRONMENT: Final = (
    *("POD_IP", "POD_NAME", "POD_NAMESPACE", "KUBOTHEK_IMAGE"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
)

_PRIVATE: Final = "KUBOTHEK_PRIVATE"
"""Environment variable with the directory of the Secret that a driver pod shares with its executors."""
_RPC_SECRET: Final = "rpc-secret"  # noqa: S105 - the name of a file

DEADLINE: Final = "spark.kubothek.executorsDeadline"
"""Not a setting of Spark: seconds with work and without an executor after which a job fails."""

_NO_EXECUTORS: Final = (
    "Spark had work and not one executor for {} s: see why their pods do not start (kubectl get pods -l "
    "app.kubernetes.io/component=executor), whether a quota is used up, or give the Engine smaller executors"
)

_HOW_TO_START: Final = (
    "install Java 17 or newer and set JAVA_HOME, and see whether the Engine's settings are what Spark accepts; "
    "sources below the Engine's sparkFrom are written without Spark"
)


def settings(conf: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return all settings of a job's session: ours, the job's, and those that only this process knows.

    ``conf`` is the job's. Without a ``spark.master`` in it, this process is a driver pod, whose address and name are in
    ``environ`` (Spark, "Running Spark on Kubernetes").
    """
    place = on_this_machine(conf["spark.master"]) if "spark.master" in conf else in_pod(environ)
    return {**DEFAULTS, **conf, **FIXED, **place}


def on_this_machine(master: str) -> dict[str, str]:
    """Return the settings of a driver on the same machine as its executors; only they need to reach it.

    A local master runs each task once, whatever the settings say, unless the master itself names the number of tries.
    """
    named = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    found = {
        "spark.master": f"local[{named[1] or 1},{_TASK_FAILURES}]" if named else master,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if not re.fullmatch(r"local(\[.*\])?", master):  # with a local master Spark makes the secret
        found["spark.authenticate.secret"] = secrets.token_hex(32)
    return found


def in_pod(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a driver pod takes from its environment. Raises SparkUnavailable outside of a pod."""
    if missing := [name for name in _POD_ENVIRONMENT if name not in environ]:
        raise SparkUnavailable(
            f"the job names no spark.master, and this is no driver pod: {', '.join(missing)} is not set; "
            "start it through the operator, or set spark.master"
        )
    address = environ["POD_IP"]
    host = f"[{address}]" if ":" in address else address
    found = {
        "spark.master": f"k8s://{api_server(environ)}",
        "spark.kubernetes.namespace": environ["POD_NAMESPACE"],
        "spark.kubernetes.driver.pod.name": environ["POD_NAME"],
        "spark.kubernetes.container.image": environ["KUBOTHEK_IMAGE"],
        # The pod's address, not 0.0.0.0: executors would take that for the address of the driver's broadcasts.
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
    }
    if template := environ.get("KUBOTHEK_EXECUTOR_TEMPLATE"):
        found["spark.kubernetes.executor.podTemplateFile"] = template
    if scratch := environ.get("KUBOTHEK_SCRATCH"):
        found["spark.local.dir"] = scratch
    if private := environ.get(_PRIVATE):  # else Spark makes a secret, and shows it in the specs of executors' pods
        found["spark.authenticate.secret.file"] = f"{private}/{_RPC_SECRET}"
    return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """A local session of this process, for work of up to ``up_to`` bytes."""

    session: SparkSession
    up_to: int


_kept: list[_Kept] = []
"""Holds one session at most."""


def keep(conf: Mapping[str, str], up_to: int) -> None:
    """Start a local session in this process, for all work of up to ``up_to`` bytes. ``conf`` is that of a driver pod.

    Raises SparkUnavailable.
    """
    cores = conf.get("spark.driver.cores", "1")
    scratch = {"spark.local.dir": os.environ["KUBOTHEK_SCRATCH"]} if "KUBOTHEK_SCRATCH" in os.environ else {}
    _kept.append(_Kept(_start({**conf, **scratch, "spark.master": f"local[{cores}]"}), up_to))


@contextmanager
def running(conf: Mapping[str, str], size: int | None = None) -> Iterator[SparkSession]:
    """Yield a session; a new one takes 4 to 20 s to start, and is stopped afterwards. ``conf`` as for :func:`settings`.

    ``size`` is the number of bytes of the work, if known: a session from :func:`keep` is then used if it suffices.
    Raises SparkUnavailable, and ExecutorsUnavailable instead of any error after the executor timeout.
    """
    kept = _kept.pop() if _kept else None
    if kept is not None and size is not None and size <= kept.up_to:
        try:
            yield kept.session
        finally:
            _kept.append(kept)
        return
    if kept is not None:  # a process has one session at most
        kept.session.stop()
        _replace_secret(kept.session)
    session = _start(conf)
    try:
        if DEADLINE not in conf:
            yield session
            return
        with patience(session.sparkContext, float(conf[DEADLINE])) as waited:
            try:
                yield session
            except Exception as error:
                if not waited.lost:
                    raise
                raise ExecutorsUnavailable(_NO_EXECUTORS.format(int(waited.seconds))) from error
    finally:
        with suppress(Py4JError, OSError):  # the JVM is gone, or ends at the same signal as this process
            session.stop()


def _replace_secret(stopped: SparkSession) -> None:
    """Replace the secret that a local session stored with the JVM's user by the secret of this pod.

    Spark reads that secret first: without this, the JVM's next session would not have the secret of its executors.
    """
    if (private := os.environ.get(_PRIVATE)) is None:
        return
    hadoop = stopped.sparkContext._gateway.jvm.org.apache.hadoop
    credentials = hadoop.security.Credentials()
    secret = base64.b64encode(Path(private, _RPC_SECRET).read_bytes())  # the form in which Spark reads a file
    credentials.addSecretKey(hadoop.io.Text("sparkCookie"), bytearray(secret))
    hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)


def _start(conf: Mapping[str, str]) -> SparkSession:
    # Local executors run the interpreter of this process, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    chosen = settings(conf)
    log.info("starting Spark on %s, %s executors", chosen["spark.master"], chosen.get("spark.executor.instances", "no"))
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkUnavailable(f"Spark does not start ({last_words(error)}); {_HOW_TO_START}") from error
    return session


# Timeout for work without executors: a job whose executors never start would otherwise wait for ever.


_CHECK_SECONDS: Final = 5.0


@dataclass
class ExecutorTimeout:
    """State of the timeout; ``lost`` is True once the work was cancelled after ``seconds``."""

    seconds: float
    lost: bool = False


@contextmanager
def patience(
    context: SparkContext,
    seconds: float,
    *,
    interval: float = _CHECK_SECONDS,
    executors: Callable[[], int] | None = None,
) -> Iterator[ExecutorTimeout]:
    """Cancel all work of a context that had work and no executor for ``seconds``.

    ``interval``   seconds between checks
    ``executors``  returns the number of executors; default: that of the context
    """
    found = ExecutorTimeout(seconds)
    count = executors or (lambda: _known(context))
    idle_since: float | None = None

    def seen_enough() -> bool:
        nonlocal idle_since
        if not context.statusTracker().getActiveJobsIds() or count():
            idle_since = None
            return False
        idle_since = time.monotonic() if idle_since is None else idle_since
        if time.monotonic() - idle_since < seconds:
            return False
        log.error("no executor came in %d s: all work is cancelled", seconds)
        found.lost = True
        context.cancelAllJobs()
        return True

    with beside("spark-executors", min(interval, seconds), seen_enough):
        yield found


def _known(context: SparkContext) -> int:
    """Return the number of block managers without the driver's."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
