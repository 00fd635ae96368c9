"""How a job ends: from an error to a result and an exit code, and where results are left."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubothek.lake.commits import keys
from kubothek.lake.errors import Conflict, DatasetDeleted, LakeError, OwnedByAnother
from kubothek.lake.store import Store
from kubothek.resources.jobs import RESULT_LIMIT_BYTES, ExitCode, JobResult

MESSAGE_LIMIT: Final = 2048
EXIT_TERMINATED: Final = 143
"""What the shell says of a process that SIGTERM ended."""
_TERMINATION_LOG: Final = Path("/dev/termination-log")

log = logging.getLogger(__name__)


TERMINATED: Final = JobResult(
    outcome="Failed",
    reason="Terminated",
    message="the job was stopped (SIGTERM) before it ended; the next attempt finds out what it had done",
    retryable=True,
)


def failure(error: Exception, *, retry_conflicts: bool = False) -> tuple[JobResult, int]:
    """What to report of an error, and the exit code. An error that nobody foresaw goes to the log in full."""
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
    """The exit code that tells what to do about an error when its result is lost."""
    if isinstance(error, Conflict):
        return ExitCode.CONFLICT
    if isinstance(error, OwnedByAnother | DatasetDeleted):
        return ExitCode.FENCED
    return ExitCode.TRANSIENT if error.transient else ExitCode.INVALID


def _failed(reason: str, message: str, *, retryable: bool) -> JobResult:
    shown = message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 1]}…"
    return JobResult(outcome="Failed", reason=reason, message=shown, retryable=retryable)


def render(result: JobResult, limit: int = RESULT_LIMIT_BYTES) -> bytes:
    """The result in at most ``limit`` bytes of JSON: datasets go from the end, then the message is cut.

    What an operator needs to go on (outcome, reason, the commit, the dataset) always stays.
    """
    data = _dump(result)
    while len(data) > limit and result.datasets:
        kept = result.datasets[: min(len(result.datasets) - 1, len(result.datasets) * limit // len(data))]
        result = result.model_copy(update={"datasets": kept, "truncated": True})
        data = _dump(result)
    while len(data) > limit and result.message:
        keep = len(result.message) - max(2, (len(data) - limit) // 6)
        result = result.model_copy(update={"message": f"{result.message[: max(0, keep)]}…" if keep > 0 else ""})
        data = _dump(result)
    return data


def _dump(result: JobResult) -> bytes:
    return result.model_dump_json(exclude_defaults=True).encode()


def leave(result: JobResult, environ: Mapping[str, str] = os.environ) -> None:
    """Write the termination message: to KUBOTHEK_TERMINATION_LOG, else to Kubernetes' own file if there is one."""
    named = environ.get("KUBOTHEK_TERMINATION_LOG")
    if named is None and not _TERMINATION_LOG.exists():
        return
    # In place: the file is a mount of its own, which cannot be renamed over.
    Path(named or _TERMINATION_LOG).write_bytes(render(result))


def keep(store: Store, uuid: str, job_uid: str, result: JobResult) -> None:
    """Put the full result beside the dataset; that this fails is no failure of the job."""
    try:
        store.put(keys.job(uuid, job_uid), result.model_dump_json(indent=2).encode())
    except LakeError as error:
        log.warning("the result of the job was not kept in the store: %s", error)
