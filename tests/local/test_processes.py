"""Jobs as processes: started once, judged by their word, stopped, and taken over from a runtime that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from kubothek.api.jobs import ExitCode, JobResult
from kubothek.controller.context import FailureClass, JobPhase, JobView
from kubothek.local import processes as module
from kubothek.local.attempt import KEPT_ATTEMPTS, Attempt, Launch, judge
from kubothek.local.manifests import Key
from kubothek.local.processes import Processes

pytestmark = pytest.mark.slow  # each test starts processes

OWNER = Key("Commit", "default", "first")
RESULT = JobResult(outcome="Succeeded", reason="Succeeded", message="done")

# What the "job" does is its job.json: Python source.
RUN = (sys.executable, "-c", "import sys; exec(open(sys.argv[1]).read())")
SUCCEED = f"import os; open(os.environ['KUBOTHEK_TERMINATION_LOG'], 'w').write({RESULT.model_dump_json()!r})"


class Jobs:
    """Processes with what their ends are told to."""

    def __init__(self, directory: Path, slots: int = 2) -> None:
        self.directory = directory
        self.ends: SimpleQueue[Attempt] = SimpleQueue()
        self.processes = Processes(slots, lambda: dict(os.environ), self.ends.put, RUN)

    def attempt(self, number: int = 1) -> Attempt:
        return Attempt.of(self.directory, "default", f"first-{number}")

    def launch(self, source: str, number: int = 1, cores: int = 1) -> Attempt:
        attempt = self.attempt(number)
        self.processes.launch(attempt, source.encode(), Launch(owner=OWNER, owner_uid="u", cores=cores))
        return attempt

    def phase(self, number: int = 1) -> JobPhase | None:
        view = self.processes.view(self.attempt(number))
        return view.phase if view is not None else None

    def end(self) -> JobView | None:
        """Wait for the end of one job and take note of it."""
        attempt = self.ends.get(timeout=120)
        self.processes.reap(attempt)
        return self.processes.view(attempt)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.processes.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO: a job that reads it waits until the test writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def wait_at(gate: Path, *, then: str = SUCCEED) -> str:
    return f"open({str(gate)!r}).read(); {then}"


def test_local_job_that_succeeds_returns_result(jobs: Jobs) -> None:
    jobs.launch(SUCCEED)
    assert jobs.phase() is JobPhase.RUNNING
    view = jobs.end()
    assert view is not None
    assert (view.phase, view.result) == (JobPhase.SUCCEEDED, RESULT)


def test_local_job_launched_twice_starts_once_across_runs(jobs: Jobs, tmp_path: Path) -> None:
    jobs.launch(SUCCEED)
    jobs.launch(SUCCEED)
    jobs.end()
    jobs.launch(SUCCEED)
    next_run = Jobs(tmp_path)
    next_run.launch(SUCCEED)
    assert (jobs.processes.started, next_run.processes.started) == (1, 0)
    assert next_run.phase() is JobPhase.SUCCEEDED


def test_local_jobs_use_at_most_available_cores(jobs: Jobs, gate: Path) -> None:
    jobs.launch(wait_at(gate), 1)
    jobs.launch(SUCCEED, 2, cores=99)
    jobs.launch(SUCCEED, 3)
    assert [jobs.phase(number) for number in (1, 2, 3)] == [
        JobPhase.RUNNING,
        JobPhase.PENDING,
        JobPhase.PENDING,
    ]
    gate.write_text("go")
    ends = [jobs.end() for _ in range(3)]
    assert [view.attempt for view in ends if view is not None] == [1, 2, 3]


def test_local_job_progress_is_read_among_other_output(jobs: Jobs, gate: Path) -> None:
    told = '{"progress": {"stage": "Writing", "tasks_done": 3}}'
    source = f"import sys; print('noise'); print({told!r}); print('{{\"progress\": 7}}'); sys.stdout.flush(); "
    attempt = jobs.launch(source + wait_at(gate))
    with gate.open("w"):  # returns when the job has come to it
        assert jobs.processes.read_progress() == [attempt]
        assert jobs.processes.read_progress() == []
        view = jobs.processes.view(attempt)
    assert view is not None
    assert view.progress is not None
    assert (view.progress.stage, view.progress.tasks_done) == ("Writing", 3)
    jobs.end()


def test_local_job_without_result_is_reported_with_end_of_log(jobs: Jobs) -> None:
    jobs.launch("import sys; print('ValueError: no such thing', file=sys.stderr); sys.exit(1)")
    view = jobs.end()
    assert view is not None
    assert view.failure is FailureClass.RETRY
    assert view.message == "the job ended with exit code 1 and no result; its log ends with: ValueError: no such thing"


def test_local_run_close_stops_jobs_and_next_run_restarts_them(jobs: Jobs, gate: Path, tmp_path: Path) -> None:
    jobs.launch(wait_at(gate), 1, cores=2)
    jobs.launch(SUCCEED, 2)
    jobs.processes.close()
    assert not jobs.attempt(1).alive()

    next_run = Jobs(tmp_path)
    assert next_run.phase(1) is JobPhase.RUNNING
    assert next_run.phase(2) is JobPhase.PENDING
    gate.write_text("go")
    for _ in range(2):
        view = next_run.end()
        assert view is not None
        assert view.phase is JobPhase.SUCCEEDED


def test_local_job_that_ignores_sigterm_is_killed_with_children(
    jobs: Jobs, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_GRACE_SECONDS", 0.5)
    child = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(c.pid, flush=True); "
    attempt = jobs.launch(child + ignore + wait_at(gate))
    with gate.open("w"):
        grandchild = int((attempt.directory / "progress.jsonl").read_text())
        jobs.processes.close()
    assert not attempt.alive()
    assert _is_gone(grandchild)


def _is_gone(pid: int) -> bool:
    """Whether the process is dead; a container without an init keeps it as a zombie."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def test_local_job_cancelled_is_stopped_and_forgotten(jobs: Jobs, gate: Path) -> None:
    attempt = jobs.launch(wait_at(gate))
    jobs.processes.cancel(attempt)
    assert jobs.end() is None
    assert not attempt.alive()


def test_local_job_cancelled_in_queue_never_starts(jobs: Jobs, gate: Path) -> None:
    jobs.launch(wait_at(gate), 1, cores=2)
    waiting = jobs.launch(SUCCEED, 2)
    jobs.processes.cancel(waiting)
    assert jobs.phase(2) is None
    gate.write_text("go")
    jobs.end()
    assert jobs.processes.started == 1


@contextmanager
def runtime_that_is_killed(directory: Path, source: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that launches the first attempt, and is killed without a chance to clean up."""
    program = (
        "import sys, time; from pathlib import Path; from tests.local.test_processes import Jobs;"
        "Jobs(Path(sys.argv[1])).launch(sys.argv[2]); print('launched', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(directory), source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"launched\n"
        process.kill()
        yield process


@pytest.mark.parametrize(
    ("then", "phase", "reason"),
    [
        (SUCCEED, JobPhase.SUCCEEDED, "Succeeded"),
        ("raise SystemExit(1)", JobPhase.FAILED, "Killed"),
    ],
)
def test_local_job_of_killed_run_continues_and_is_adopted(
    jobs: Jobs, gate: Path, tmp_path: Path, then: str, phase: JobPhase, reason: str
) -> None:
    with runtime_that_is_killed(tmp_path, wait_at(gate, then=then)):
        pass
    assert jobs.phase() is JobPhase.RUNNING
    gate.write_text("go")
    view = jobs.end()
    assert view is not None
    assert (view.phase, view.reason, jobs.processes.started) == (phase, reason, 0)


def test_local_job_that_was_adopted_can_be_stopped(jobs: Jobs, gate: Path, tmp_path: Path) -> None:
    with runtime_that_is_killed(tmp_path, wait_at(gate)):
        pass
    assert jobs.phase() is JobPhase.RUNNING
    jobs.processes.close()
    assert not jobs.attempt().alive()


def test_local_job_keeps_limited_number_of_attempts(jobs: Jobs, tmp_path: Path) -> None:
    for number in range(1, KEPT_ATTEMPTS + 4):
        jobs.launch(SUCCEED, number)
        jobs.end()
    kept = sorted(int(path.name) for path in (tmp_path / "default" / "first").iterdir())
    assert kept == list(range(4, KEPT_ATTEMPTS + 4))


RETRYABLE = JobResult(outcome="Failed", reason="StoreUnavailable", message="no answer", retryable=True)
REFUSED = JobResult(outcome="Failed", reason="SourceNotFound", message="no such file")


@pytest.mark.parametrize(
    ("code", "result", "reason", "failure"),
    [
        (ExitCode.TRANSIENT, RETRYABLE, "StoreUnavailable", FailureClass.RETRY),
        (ExitCode.INVALID, REFUSED, "SourceNotFound", FailureClass.REPORT),
        (None, REFUSED, "SourceNotFound", FailureClass.REPORT),
        (-signal.SIGKILL, RESULT, "Succeeded", None),
        (-signal.SIGKILL, None, "Killed", FailureClass.INFRASTRUCTURE),
        (None, None, "Killed", FailureClass.INFRASTRUCTURE),
        (ExitCode.INTERNAL, None, "JobFailed", FailureClass.RETRY),
        (ExitCode.TRANSIENT, None, "JobFailed", FailureClass.RETRY),
        (ExitCode.CONFLICT, None, "JobFailed", FailureClass.RETRY),
        (ExitCode.INVALID, None, "JobFailed", FailureClass.REPORT),
        (ExitCode.FENCED, None, "JobFailed", FailureClass.REPORT),
        (ExitCode.DONE, None, "JobFailed", FailureClass.RETRY),
    ],
)
def test_local_job_outcome_is_decided_by_result_then_exit_code(
    code: int | None, result: JobResult | None, reason: str, failure: FailureClass | None
) -> None:
    phase, told, message, found = judge(code, result, "")
    assert (told, found) == (reason, failure)
    assert message
    assert (phase is JobPhase.SUCCEEDED) == (failure is None)
