"""The program of a job: ``python -m kubothek.jobs.main job.json``.

It always leaves a result (``jobs.outcome``) and an exit code that says how to react (``api.jobs.ExitCode``). A
repetition of the same job is always safe: a commit id is applied once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import FrameType, ModuleType
from typing import Final

from pydantic import ValidationError

from kubothek.api.jobs import (
    JOB,
    AnyJob,
    CollectJob,
    CommitJob,
    CompactJob,
    CubeJob,
    ExitCode,
    InspectJob,
    IntakeJob,
    JobResult,
    LedgerJob,
    PollJob,
    QueryJob,
    SkipFilesJob,
    SyncJob,
    TransformJob,
)
from kubothek.errors import InputError, OwnedByAnother, VersionIncomplete
from kubothek.jobs import outcome, translate
from kubothek.jobs.own_pod import OwnPod
from kubothek.jobs.progress import PodAnnotation, Reporter
from kubothek.storage import open_store
from kubothek.tracing import Place, Span, process, sending
from kubothek.tracing.ids import VARIABLE
from kubothek.tracing.sending import ENDPOINT

_OF_NO_ONE_DATASET: Final = (InspectJob, QueryJob, CollectJob, CubeJob, SkipFilesJob)
_GIVE_UP_SECONDS: Final = 3.0
_USAGE: Final = "usage: python -m kubothek.jobs.main job.json"


def main(arguments: Sequence[str]) -> int:
    """Run the job in the file that the one argument names; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _terminate)
    with traced() as span:
        try:
            with Reporter(annotate=PodAnnotation.of()) as reporter:
                result, code = perform(arguments, reporter, span)
        except Exception as error:  # noqa: BLE001 - the last resort of a process
            result, code = outcome.failure(error)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the result remains to be written
        outcome.leave(result)
        if code == ExitCode.DONE:
            outcome.report_success(result, OwnPod.of())
        span.set(**{"kubothek.outcome": result.outcome, "kubothek.reason": result.reason})
        if code != ExitCode.DONE:
            span.error = f"{result.reason}: {result.message}"
        level = logging.INFO if code == ExitCode.DONE else logging.ERROR
        logging.getLogger("kubothek.jobs").log(level, "%s %s: %s", result.outcome, result.reason, result.message)
    return code


def perform(arguments: Sequence[str], reporter: Reporter, span: Span | None = None) -> tuple[JobResult, int]:
    """Read the job, run it, and store its full result with the dataset; ``span`` gets the job's attributes."""
    try:
        job = read(arguments)
        if span is not None:
            span.set(**{"kubothek.verb": job.verb, "kubothek.job": job.job})
        store = open_store(translate.store_config(job.store))
    except InputError as error:
        return outcome.failure(error)
    # A query that lost a race for its target must read again: it may have read the target. An intake that lost a race
    # to another intake of its source lists again, and a compaction of a replaced table plans again.
    wanted = isinstance(job, CommitJob) and job.on_conflict == "Retry"
    retrying = QueryJob | IntakeJob | CompactJob | LedgerJob | PollJob | TransformJob | SyncJob
    retry_conflicts = wanted or isinstance(job, retrying)
    foreign = False
    try:
        result, code = _module(job).run(job, store, reporter), ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - every end is a result
        result, code = outcome.failure(error, retry_conflicts=retry_conflicts)
        foreign = isinstance(error, OwnedByAnother)
        if isinstance(error, VersionIncomplete) and not isinstance(job, _OF_NO_ONE_DATASET):
            result = outcome.with_lost_files(store, job.dataset, result)
    if (spark := getattr(job, "spark", None)) is not None:
        outcome.keep_event_log(store, spark.conf)
    if isinstance(job, CubeJob) and not foreign:
        outcome.keep(store, translate.seed_uuid(job.cube), job.uid, result)
    elif not isinstance(job, _OF_NO_ONE_DATASET) and not foreign:
        outcome.keep(store, job.dataset.uuid, job.uid, result)
    return result, code


def read(arguments: Sequence[str]) -> AnyJob:
    """Read the job in the file. Raises InputError if it is not a valid job."""
    if len(arguments) != 1:
        raise InputError(_USAGE)
    try:
        return JOB.validate_json(Path(arguments[0]).read_bytes())
    except OSError as error:
        raise InputError(f"the job {arguments[0]!r} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{arguments[0]!r} is no job: {where}: {first['msg']}; do operator and image match?") from None


def _module(job: AnyJob) -> ModuleType:
    """Import the module that is named after the job's verb, and no other, as imports take time."""
    return import_module(f"kubothek.jobs.{job.verb.replace('-', '_')}")


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Write the result "Terminated" and exit at once.

    No cleanup is needed, as after a SIGKILL: a commit is always whole or absent, temporary files have no names, and the
    JVM ends with its parent. Only the note of the files being read is deleted, in another thread: this thread may hold
    a lock of the client.
    """
    outcome.leave(outcome.TERMINATED)
    if (attempts := sys.modules.get("kubothek.ingest.watch.attempts")) is not None:
        thread = Thread(target=attempts.give_up, daemon=True)
        thread.start()
        thread.join(_GIVE_UP_SECONDS)
    os._exit(outcome.EXIT_TERMINATED)


# The job's span, if the launcher passed a trace and an endpoint.


@contextmanager
def traced(environ: Mapping[str, str] = os.environ) -> Iterator[Span]:
    """Yield the span of the whole job. Remaining spans are sent when the context ends.

    Write the result before that, so that it never waits for a collector.
    """
    parent = Place.of_header(environ.get(VARIABLE, ""))
    if parent is None or not (endpoint := environ.get(ENDPOINT)):
        yield Span()
        return
    with sending(endpoint, "kubothek-job"), process("job", parent) as span:
        yield span


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
