"""The program of a job: ``python -m kubothek.jobs.main job.json``.

Whatever happens, it leaves a result (``jobs.outcome``) and ends with an exit code that tells what to do about it
(``resources.jobs.ExitCode``). Running the same job again is always safe: a commit happens once by its id.
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
from kubothek.jobs import event_log, outcome, translate
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
    """Run the job in the file that the one argument names; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _terminate)
    with traced() as span:
        try:
            with Reporter(annotate=PodAnnotation.of()) as reporter:
                result, code = perform(arguments, reporter, span)
        except Exception as error:  # noqa: BLE001 - the last resort of a process
            result, code = outcome.failure(error)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on there is only the result to be written
        outcome.leave(result)
        if code == ExitCode.DONE:
            outcome.tell(result, OwnPod.of())
        span.set(**{"kubothek.outcome": result.outcome, "kubothek.reason": result.reason})
        if code != ExitCode.DONE:
            span.error = f"{result.reason}: {result.message}"
        level = logging.INFO if code == ExitCode.DONE else logging.ERROR
        logging.getLogger("kubothek.jobs").log(level, "%s %s: %s", result.outcome, result.reason, result.message)
    return code


def perform(arguments: Sequence[str], reporter: Reporter, span: Span | None = None) -> tuple[JobResult, int]:
    """Read the job, do it, and keep its full result beside the dataset; ``span`` is told what it is."""
    try:
        job = read(arguments)
        if span is not None:
            span.set(**{"kubothek.verb": job.verb, "kubothek.job": job.job})
        store = open_store(translate.store_config(job.store))
    except InputError as error:
        return outcome.failure(error)
    # A query that lost a race for its target has to read again: what it read may have been the target. An intake that
    # lost one to another of its source looks again, and so does a compaction whose table became another one.
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
            from kubothek.jobs import loss  # what only a job needs that failed

            result = loss.looked_into(store, job.dataset, result)
    if (spark := getattr(job, "spark", None)) is not None:
        event_log.keep(store, spark.conf)
    if isinstance(job, CubeJob) and not foreign:
        outcome.keep(store, translate.seed_uuid(job.cube), job.uid, result)
    elif not isinstance(job, _OF_NO_ONE_DATASET) and not foreign:
        outcome.keep(store, job.dataset.uuid, job.uid, result)
    return result, code


def read(arguments: Sequence[str]) -> AnyJob:
    """The job in the file. Raises InputError for what is none."""
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
    """What does a job: the module that is called like its verb, and of the others none, as imports take time."""
    return import_module(f"kubothek.jobs.{job.verb.replace('-', '_')}")


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Say why and go at once. There is nothing to tidy up that a SIGKILL would not have to leave as well: a
    commit is whole or absent at every moment, temporary files have no names, and the JVM ends with its parent.
    Only the note of the files that are read is taken back, in a thread, as this one may hold a lock of the client.
    """
    outcome.leave(outcome.TERMINATED)
    if (attempts := sys.modules.get("kubothek.ingest.watch.attempts")) is not None:
        thread = Thread(target=attempts.give_up, daemon=True)
        thread.start()
        thread.join(_GIVE_UP_SECONDS)
    os._exit(outcome.EXIT_TERMINATED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))


# The job as a part of a trace, if whoever launched it says of which, and where to.


@contextmanager
def traced(environ: Mapping[str, str] = os.environ) -> Iterator[Span]:
    """The span of all that the job does. What it still has to tell is sent when the context ends: leave the result
    before, so that nobody waits for a collector.
    """
    parent = Place.of_header(environ.get(VARIABLE, ""))
    if parent is None or not (endpoint := environ.get(ENDPOINT)):
        yield Span()
        return
    with sending(endpoint, "kubothek-job"), process("job", parent) as span:
        yield span
