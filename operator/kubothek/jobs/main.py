"""The program of a job: ``python -m kubothek.jobs.main job.json``.

Whatever happens, it leaves a result (``jobs.outcome``) and ends with an exit code that tells what to do about it
(``resources.jobs.ExitCode``). Running the same job again is always safe: a commit happens once by its id.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

from pydantic import ValidationError

from kubothek.jobs import (
    collect,
    commit,
    compact,
    cube,
    delete,
    heal,
    index,
    inspect,
    intake,
    ledger,
    loss,
    outcome,
    poll,
    query,
    restore,
    skip,
    skip_files,
    sync,
    tag,
    transform,
    translate,
    verify,
)
from kubothek.jobs.progress import PodAnnotation, Reporter
from kubothek.lake.errors import InputError, OwnedByAnother, VersionIncomplete
from kubothek.lake.store import open_store
from kubothek.resources.jobs import (
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

_OF_NO_ONE_DATASET: Final = (InspectJob, QueryJob, CollectJob, CubeJob, SkipFilesJob)
_MODULES: Final[Mapping[str, ModuleType]] = {
    "commit": commit,
    "cube": cube,
    "inspect": inspect,
    "delete": delete,
    "index": index,
    "restore": restore,
    "intake": intake,
    "ledger": ledger,
    "poll": poll,
    "query": query,
    "compact": compact,
    "collect": collect,
    "heal": heal,
    "skip": skip,
    "skip-files": skip_files,
    "sync": sync,
    "tag": tag,
    "transform": transform,
    "verify": verify,
}
"""What does a job, by its verb."""
_USAGE: Final = "usage: python -m kubothek.jobs.main job.json"


def main(arguments: Sequence[str]) -> int:
    """Run the job in the file that the one argument names; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with Reporter(annotate=PodAnnotation.of()) as reporter:
            result, code = perform(arguments, reporter)
    except Exception as error:  # noqa: BLE001 - the last resort of a process
        result, code = outcome.failure(error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on there is only the result to be written
    outcome.leave(result)
    level = logging.INFO if code == ExitCode.DONE else logging.ERROR
    logging.getLogger("kubothek.jobs").log(level, "%s %s: %s", result.outcome, result.reason, result.message)
    return code


def perform(arguments: Sequence[str], reporter: Reporter) -> tuple[JobResult, int]:
    """Read the job, do it, and keep its full result beside the dataset."""
    try:
        job = read(arguments)
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
        result, code = _MODULES[job.verb].run(job, store, reporter), ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - every end is a result
        result, code = outcome.failure(error, retry_conflicts=retry_conflicts)
        foreign = isinstance(error, OwnedByAnother)
        if isinstance(error, VersionIncomplete) and not isinstance(job, _OF_NO_ONE_DATASET):
            result = loss.looked_into(store, job.dataset, result)
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


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Say why and go at once. There is nothing to tidy up that a SIGKILL would not have to leave as well: a
    commit is whole or absent at every moment, temporary files have no names, and the JVM ends with its parent.
    """
    outcome.leave(outcome.TERMINATED)
    os._exit(outcome.EXIT_TERMINATED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
