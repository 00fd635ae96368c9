"""One attempt of a job, as the files it leaves behind.

An attempt owns the directory ``<state>/jobs/<namespace>/<job's name without its number>/<number>/``::

    job.json       what to do; its presence means "launched"
    alive          flock'ed by the job's process for as long as it lives: the truth about "does it run",
                   whatever became of the process that started it
    pid            its process group, meaningful only while ``alive`` is locked
    progress.jsonl its standard output
    log.txt        its standard error, of all tries
    result.json    its own word, in place of a pod's termination message
    exit           its exit code, written by the runtime that saw it end
    launch.json    whose it is, and how many cores it may use

``job.json`` with nobody alive, no ``exit`` and no ``result.json`` is an attempt that was interrupted together with
its runtime, or never got its turn: whoever comes next starts it again. That is safe, as commits happen once by
their ids, and costs no retry.
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
"""Directories kept per resource, newest first, for their logs."""

_LOG_TAIL_CHARACTERS = 500


class Launch(BaseModel):
    """Whose an attempt is, and how many cores it may use."""

    model_config = ConfigDict(frozen=True)

    owner: Key
    owner_uid: str
    cores: int
    traceparent: str | None = None
    """What it is a part of in a trace, if it is traced."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt by its job's name (``<resource>-<attempt>``) and its directory."""

    job: str
    directory: Path

    @classmethod
    def of(cls, jobs: Path, namespace: str, job: str) -> Attempt:
        """The attempt of this name below a state's ``jobs`` directory."""
        prefix, _, number = job.rpartition("-")
        return cls(job, jobs / namespace / prefix / number)

    @property
    def number(self) -> int:
        """The attempt's number, from 1."""
        return int(self.job.rpartition("-")[2])

    @property
    def result_file(self) -> Path:
        """Where the job leaves its result."""
        return self.directory / "result.json"

    @property
    def log_file(self) -> Path:
        """What the job wrote to standard error."""
        return self.directory / "log.txt"

    @property
    def launched(self) -> datetime | None:
        """When the attempt was launched; None if there is no trace of it."""
        try:
            return datetime.fromtimestamp((self.directory / "job.json").stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    @property
    def launch(self) -> Launch:
        """How a launched attempt was launched."""
        return Launch.model_validate_json((self.directory / "launch.json").read_bytes())

    def prepare(self, spec: bytes, launch: Launch) -> None:
        """Lay out the directory: from here on the attempt is launched."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "launch.json").write_text(launch.model_dump_json())
        write_atomically(self.directory / "job.json", spec)
        self._forget_old_siblings()

    def view(self, phase: JobPhase, reason: str = "", message: str = "") -> JobView:
        """The attempt as reconcilers see it, in this phase."""
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
        """Whether the job's process still holds its lock."""
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
        """The job's own word, if it left a valid one."""
        with suppress(FileNotFoundError, ValidationError):
            return JobResult.model_validate_json(self.result_file.read_bytes())
        return None

    def ended(self) -> JobView | None:
        """The view of an attempt that came to its end; None for one that did not, or was never launched."""
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
        """Make this an attempt that is still to be done, unless it succeeded after all."""
        result = self.result()
        if result is None or result.outcome != "Succeeded":
            self.result_file.unlink(missing_ok=True)
            (self.directory / "exit").unlink(missing_ok=True)

    def erase(self) -> None:
        """Make this an attempt that was never launched; its log stays."""
        for name in ("job.json", "result.json", "exit"):
            (self.directory / name).unlink(missing_ok=True)

    def read_progress(self, offset: int) -> tuple[Progress | None, int]:
        """The last progress told in the complete lines after ``offset``, and the offset behind them."""
        progress: Progress | None = None
        with suppress(FileNotFoundError), (self.directory / "progress.jsonl").open("rb") as stream:
            stream.seek(offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                with suppress(ValueError, KeyError, TypeError):  # what libraries print there is not for us
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
    """What an ended process means: phase, reason, message, and which retry budget its failure draws on.

    The job's own word decides. Without one its exit code does (``resources.jobs.ExitCode``; negative = the
    signal that ended it); a kill from outside is the machine's fault, not the job's.
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
