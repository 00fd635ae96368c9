"""Results and exit codes of jobs, from errors too, and the places that results and Spark's event log are written to."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubothek.api.jobs import RESULT_LIMIT_BYTES, DatasetRef, Ended, ExitCode, JobResult
from kubothek.errors import Conflict, DatasetDeleted, LakeError, OwnedByAnother
from kubothek.jobs import translate
from kubothek.jobs.own_pod import OwnPod
from kubothek.storage import Store
from kubothek.table.log.model import keys

MESSAGE_LIMIT: Final = 2048
_LEAST_TEXT: Final = 200
EXIT_TERMINATED: Final = 143
"""The exit code that a shell gives a process that SIGTERM ended."""
_RESULT_ANNOTATION: Final = "kubothek.io/result"
_PRIVATE: Final = "KUBOTHEK_PRIVATE"
_RESULT_KEY: Final = "result-key"
_TERMINATION_LOG: Final = Path("/dev/termination-log")

log = logging.getLogger(__name__)


TERMINATED: Final = JobResult(
    outcome="Failed",
    reason="Terminated",
    message="the job was stopped (SIGTERM) before it ended; the next attempt finds out what it had done",
    retryable=True,
)


def failure(error: Exception, *, retry_conflicts: bool = False) -> tuple[JobResult, int]:
    """Return the result and exit code for an error. An unexpected error is logged with its traceback."""
    if isinstance(error, LakeError):
        retryable = error.transient or (isinstance(error, Conflict) and retry_conflicts)
        return _failed(error.reason, str(error), retryable=retryable), exit_code(error)
    if isinstance(error, MemoryError):
        text = "the job ran out of memory; give the Engine's driver more"
        return _failed("OutOfMemory", text, retryable=True), ExitCode.INTERNAL
    log.error("internal error", exc_info=error)
    at = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(at[0].filename).name}:{at[0].lineno})" if at else ""
    text = f"{type(error).__name__}: {error}{where}; this is a fault of Kubothek, the job's log has more"
    return _failed("InternalError", text, retryable=True), ExitCode.INTERNAL


def exit_code(error: LakeError) -> int:
    """Return the exit code that says how to react to an error if its result is lost."""
    if isinstance(error, Conflict):
        return ExitCode.CONFLICT
    if isinstance(error, OwnedByAnother | DatasetDeleted):
        return ExitCode.FENCED
    return ExitCode.TRANSIENT if error.transient else ExitCode.INVALID


def _failed(reason: str, message: str, *, retryable: bool) -> JobResult:
    return JobResult(outcome="Failed", reason=reason, message=shortened(message), retryable=retryable)


def shortened(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Cut the text to ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def render(result: JobResult, limit: int = RESULT_LIMIT_BYTES) -> bytes:
    """Return the result in at most ``limit`` bytes of JSON.

    To fit, pack the datasets; then drop datasets from the end, then cubes; then cut the message; then drop details.
    What the operator needs to continue (outcome, reason, the commit, the dataset) always stays.
    """
    data = _dump(result, limit)
    while len(data) > limit and len(result.datasets) + len(result.cubes) > 1:
        # The order is that of a round of inspections, which continues after the last state: see kinds.objectstore.
        field = "datasets" if result.datasets else "cubes"
        states = getattr(result, field)
        number = min(len(states) - 1, len(states) * limit // len(data))
        least = 0 if result.datasets and (result.cubes or result.cube) else 1
        result = result.model_copy(update={field: states[: max(least, number)], "truncated": True})
        data = _dump(result, limit)
    while len(data) > limit and result.message:
        keep = len(result.message) - max(2, (len(data) - limit) // 6)
        result = result.model_copy(update={"message": f"{result.message[: max(0, keep)]}…" if keep > 0 else ""})
        data = _dump(result)
    while len(data) > limit and (leaner := _leaner(result)) is not None:
        result = leaner
        data = _dump(result)
    return data


def _leaner(result: JobResult) -> JobResult | None:
    """Return the result without one more detail; None if no detail is left.

    The reads of a query go first. Tags go last, one at a time: a policy collects nothing if it does not see the tags
    of the manifest.
    """
    if result.query is not None and result.query.reads:
        query = result.query.model_copy(update={"reads": result.query.reads[:-1]})
        return result.model_copy(update={"query": query, "truncated": True})
    if result.commit is not None and result.commit.members:
        members = result.commit.members[:-1]
        return result.model_copy(update={"commit": result.commit.model_copy(update={"members": members})})
    state = result.dataset or next(iter(result.datasets), None)
    if state is None:
        return None
    if state.ailments:
        leaner = state.model_copy(update={"ailments": state.ailments[:-1]})
    elif state.corrupt is not None and len(state.corrupt) > _LEAST_TEXT:
        leaner = state.model_copy(update={"corrupt": shortened(state.corrupt, _LEAST_TEXT)})
    elif state.iceberg is not None and len(state.iceberg.problem or "") > _LEAST_TEXT:
        problem = shortened(state.iceberg.problem or "", _LEAST_TEXT)
        leaner = state.model_copy(update={"iceberg": state.iceberg.model_copy(update={"problem": problem})})
    elif state.skipping is not None:
        leaner = state.model_copy(update={"skipping": None})
    elif state.ledger is not None and state.ledger.sources:
        ledger = state.ledger.model_copy(update={"sources": state.ledger.sources[:-1]})
        leaner = state.model_copy(update={"ledger": ledger})
    elif state.ledger is not None and state.ledger.inputs:
        ledger = state.ledger.model_copy(update={"inputs": state.ledger.inputs[:-1]})
        leaner = state.model_copy(update={"ledger": ledger})
    elif state.tags:
        leaner = state.model_copy(update={"tags": dict([*state.tags.items()][:-1])})
    else:
        return None
    where = {"datasets": (leaner,)} if result.dataset is None else {"dataset": leaner}
    return result.model_copy(update={**where, "truncated": True})


def _dump(result: JobResult, limit: int | None = None) -> bytes:
    """Return the result as JSON; with ``datasets`` packed if it exceeds ``limit`` bytes."""
    data = result.model_dump_json(exclude_defaults=True).encode()
    return data if limit is None or len(data) <= limit or not result.datasets else result.packed()


def leave(result: JobResult, environ: Mapping[str, str] = os.environ) -> None:
    """Write the termination message: to KUBOTHEK_TERMINATION_LOG, else to Kubernetes' own file if there is one."""
    named = environ.get("KUBOTHEK_TERMINATION_LOG")
    if named is None and not _TERMINATION_LOG.exists():
        return
    # Written in place: the file is a mount, which a rename cannot replace.
    Path(named or _TERMINATION_LOG).write_bytes(render(result))


def report_success(result: JobResult, pod: OwnPod | None, environ: Mapping[str, str] = os.environ) -> None:
    """Report a success to the operator, signed, before the kubelet does. A failure is only logged."""
    if pod is None or (private := environ.get(_PRIVATE)) is None:
        return
    from kubothek.api.jobs import signed  # cryptography, which other jobs need not load

    ended = Ended(
        finished=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), result=JobResult.model_validate_json(render(result))
    )
    try:
        key = Path(private, _RESULT_KEY).read_bytes()
        pod.annotate({_RESULT_ANNOTATION: signed.sign(ended.model_dump_json(exclude_defaults=True), key)})
    except (OSError, ValueError) as error:
        log.warning("cannot report the end of the job to the operator: %s", error)


def keep(store: Store, uuid: str, job_uid: str, result: JobResult) -> None:
    """Store the full result with the dataset. A failure is only logged."""
    try:
        store.put(keys.job(uuid, job_uid), result.model_dump_json(indent=2).encode())
    except LakeError as error:
        log.warning("the result of the job was not kept in the store: %s", error)


# Upload of Spark's event log from the driver's disk to the store, where Spark's history server reads it.
#
# Spark would write it through Hadoop's file systems, which need their own credentials and settings; the job has a
# store. The prefix ``.kubothek/++spark-events/`` holds the directories that Spark made (rolling logs,
# ``eventlog_v2_<app>``), so it can serve as ``spark.history.fs.logDirectory``. No dataset can have that name: see
# ``keys.check_uuid``.


PREFIX: Final = ".kubothek/++spark-events/"
_DIRECTORY: Final = "spark.eventLog.dir"
_LIMIT: Final = "spark.kubothek.eventLogLimit"
_EVENTS: Final = re.compile(r"events_(\d+)_")


def keep_event_log(store: Store, conf: Mapping[str, str]) -> None:
    """Upload the event log if the job's ``conf`` asks for it. Call this after the session has ended, however it ended.

    A failure is logged and does not fail the job.
    """
    if _LIMIT not in conf:
        return
    directory = Path(urlsplit(conf[_DIRECTORY]).path)
    for application in sorted(directory.glob("eventlog_v2_*")):
        try:
            _keep_application(store, application, int(conf[_LIMIT]))
        except (LakeError, OSError) as error:
            log.warning("the event log of Spark was not kept in the store: %s", error)


def _keep_application(store: Store, application: Path, limit: int) -> None:
    left = limit
    for path in _in_order(application):
        left -= path.stat().st_size
        if left < 0:
            # The history server reads files in order, and shows an application without an end as incomplete.
            log.warning("the event log of Spark is larger than eventLog.maxSize: %s and what follows is left out", path)
            break
        _put(store, path)
    # The history server ignores the directory until this file exists.
    for path in application.glob("appstatus_*"):
        if not path.name.startswith("."):
            _put(store, path)
    log.info("the event log of Spark is at %s%s%s", store.url, f"/{PREFIX}", application.name)


def _in_order(application: Path) -> Iterator[Path]:
    numbered = ((int(match[1]), path) for path in application.iterdir() if (match := _EVENTS.match(path.name)))
    for _, path in sorted(numbered):
        yield path


def _put(store: Store, path: Path) -> None:
    with path.open("rb") as source:
        store.upload(f"{PREFIX}{path.parent.name}/{path.name}", source)


# Search for all lost files after a job found that one is missing.


def with_lost_files(store: Store, dataset: DatasetRef, failed: JobResult) -> JobResult:
    """Return the failure, extended by all files that the current version has lost; later inspections report them too.

    It costs one listing of the table, and only for a job that has failed. If it fails itself, return ``failed`` as is.
    """
    from kubothek.table.maintenance.lost_files import find_lost_files  # only a failed job needs it

    try:
        own = translate.dataset_log(store, dataset, conditional_writes=True)  # nothing is committed
        lost = find_lost_files(store, own, own.snapshot())
        if lost is None:
            return failed
        state = translate.dataset_state(own.inspect()).model_copy(update={"corrupt": str(lost)})
    except LakeError as error:
        log.warning("the search for lost files failed: %s", error)
        return failed
    message = shortened(f"{failed.message}; {lost}")
    return failed.model_copy(update={"message": message, "dataset": state})
