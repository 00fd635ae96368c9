"""One attempt of a job, as files.

An attempt owns the directory ``<state>/jobs/<namespace>/<job's name without its number>/<number>/``::

    job.json       job spec; its presence means "launched"
    alive          flock'ed by the job's process for its lifetime; tells whether the job runs,
                   even after the process that started it has ended
    pid            its process group, meaningful only while ``alive`` is locked
    progress.jsonl its standard output
    log.txt        its standard error, of all tries
    result.json    its result, in place of a pod's termination message
    exit           its exit code, written by the runtime that observed its end
    launch.json    its owner, and how many cores it may use

An attempt with ``job.json``, but without a lock, ``exit`` and ``result.json``, was interrupted together with its
runtime, or never started. The next run starts it again. That is safe, because commits are idempotent by id, and costs
no retry.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kubothek.api.jobs import ExitCode, JobResult, Progress
from kubothek.controller.context import FailureClass, JobPhase, JobView
from kubothek.local.files import write_atomically
from kubothek.local.manifests import Key

KEPT_ATTEMPTS = 10
"""Number of directories kept per resource, newest first, for their logs."""

_LOG_TAIL_CHARACTERS = 500


class Launch(BaseModel):
    """Owner of an attempt, and how many cores it may use."""

    model_config = ConfigDict(frozen=True)

    owner: Key
    owner_uid: str
    cores: int
    traceparent: str | None = None
    """The trace context of its parent span; None if it is not traced."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt, identified by its job's name (``<resource>-<attempt>``) and its directory."""

    job: str
    directory: Path

    @classmethod
    def of(cls, jobs: Path, namespace: str, job: str) -> Attempt:
        """Return the attempt of this name below a state's ``jobs`` directory."""
        prefix, _, number = job.rpartition("-")
        return cls(job, jobs / namespace / prefix / number)

    @property
    def number(self) -> int:
        """Number of the attempt, from 1."""
        return int(self.job.rpartition("-")[2])

    @property
    def result_file(self) -> Path:
        """File to which the job writes its result."""
        return self.directory / "result.json"

    @property
    def log_file(self) -> Path:
        """Standard error of the job."""
        return self.directory / "log.txt"

    @property
    def launched(self) -> datetime | None:
        """Time at which the attempt was launched; None if there is no trace of it."""
        try:
            return datetime.fromtimestamp((self.directory / "job.json").stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    @property
    def launch(self) -> Launch:
        """Launch parameters of a launched attempt."""
        return Launch.model_validate_json((self.directory / "launch.json").read_bytes())

    def prepare(self, spec: bytes, launch: Launch) -> None:
        """Write the directory; the attempt counts as launched from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "launch.json").write_text(launch.model_dump_json())
        write_atomically(self.directory / "job.json", spec)
        self._forget_old_siblings()

    def view(self, phase: JobPhase, reason: str = "", message: str = "") -> JobView:
        """Return the attempt in this phase, in the form that reconcilers read."""
        return JobView(
            self.job,
            self.number,
            phase,
            reason,
            message,
            since=self.launched,
            owner_uid=self.launch.owner_uid,
        )

    def alive(self) -> bool:
        """Return whether the job's process still holds its lock."""
        try:
            with (self.directory / "alive").open("rb") as alive:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def wait_until_dead(self) -> None:
        """Block until no process holds the lock."""
        with suppress(FileNotFoundError), (self.directory / "alive").open("rb") as alive:
            fcntl.flock(alive, fcntl.LOCK_SH)

    def note_exit(self, code: int | None) -> None:
        """Record that the job ended by itself, and its exit code if it was our child."""
        write_atomically(self.directory / "exit", str(code if code is not None else "unknown").encode())

    def result(self) -> JobResult | None:
        """Return the result that the job wrote, if it is valid."""
        with suppress(FileNotFoundError, ValidationError):
            return JobResult.model_validate_json(self.result_file.read_bytes())
        return None

    def ended(self) -> JobView | None:
        """Return the view of an attempt that has ended; None for one that has not, or was never launched."""
        if self.launched is None:
            return None
        result, exit_file, code = self.result(), self.directory / "exit", None
        if result is None and not exit_file.exists():
            return None
        with suppress(FileNotFoundError, ValueError):
            code = int(exit_file.read_text())
        phase, reason, message, failure = judge(code, result, self._last_words())
        last_written = exit_file if exit_file.exists() else self.result_file
        since = datetime.fromtimestamp(last_written.stat().st_mtime, UTC)
        return replace(self.view(phase, reason, message), failure=failure, result=result, since=since)

    def rewind(self) -> None:
        """Reset the attempt to launched and unfinished, unless it has succeeded."""
        result = self.result()
        if result is None or result.outcome != "Succeeded":
            self.result_file.unlink(missing_ok=True)
            (self.directory / "exit").unlink(missing_ok=True)

    def erase(self) -> None:
        """Reset the attempt to never launched; its log stays."""
        for name in ("job.json", "result.json", "exit"):
            (self.directory / name).unlink(missing_ok=True)

    def read_progress(self, offset: int) -> tuple[Progress | None, int]:
        """Return the last progress in the complete lines after ``offset``, and the offset after them."""
        progress: Progress | None = None
        with suppress(FileNotFoundError), (self.directory / "progress.jsonl").open("rb") as stream:
            stream.seek(offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                with suppress(ValueError, KeyError, TypeError):  # libraries may print other lines
                    progress = Progress.model_validate(json.loads(line)["progress"])
        return progress, offset

    def _last_words(self) -> str:
        with suppress(FileNotFoundError), self.log_file.open(errors="replace") as stream:
            last = deque((line.strip() for line in stream if line.strip()), maxlen=1)
            return last[0][:_LOG_TAIL_CHARACTERS] if last else ""
        return ""

    def _forget_old_siblings(self) -> None:
        numbers = sorted(int(p.name) for p in self.directory.parent.iterdir() if p.name.isdigit())
        for number in numbers[:-KEPT_ATTEMPTS]:
            if number != self.number:
                shutil.rmtree(self.directory.with_name(str(number)), ignore_errors=True)


def judge(
    code: int | None, result: JobResult | None, last_words: str
) -> tuple[JobPhase, str, str, FailureClass | None]:
    """Return phase, reason, message and retry budget for an ended process.

    The job's result decides. Without one, its exit code does (:class:`kubothek.api.jobs.ExitCode`; negative: the signal
    that ended it). A kill from outside is an infrastructure failure, not the job's.
    """
    if result is not None and result.outcome == "Succeeded":
        return JobPhase.SUCCEEDED, result.reason, result.message, None
    if result is not None:
        failure = FailureClass.RETRY if result.retryable else FailureClass.REPORT
        return JobPhase.FAILED, result.reason, result.message, failure
    if code is None or code < 0:
        how = "for an unknown reason" if code is None else f"by {signal.Signals(-code).name}"
        hint = " (is the machine out of memory?)" if code == -signal.SIGKILL else ""
        return JobPhase.FAILED, "Killed", f"the job was ended {how}{hint}", FailureClass.INFRASTRUCTURE
    final = code in (ExitCode.INVALID, ExitCode.FENCED)
    said = f"the job ended with exit code {code} and no result; its log ends with: {last_words or 'nothing'}"
    return JobPhase.FAILED, "JobFailed", said, FailureClass.REPORT if final else FailureClass.RETRY
