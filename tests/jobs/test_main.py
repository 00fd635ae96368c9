"""The program: whatever happens, a result and an exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from kubothek import errors
from kubothek.api.jobs import DatasetState, ExitCode, JobResult
from kubothek.jobs import commit, outcome
from kubothek.jobs import main as program
from kubothek.jobs.outcome import render
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow  # each test starts processes


def run(arguments: list[str], tmp_path: Path) -> tuple[JobResult, subprocess.CompletedProcess[str]]:
    """The program as its own process, and what it left as termination message."""
    message = tmp_path / "termination-log"
    message.touch()
    done = subprocess.run(
        [sys.executable, "-m", "kubothek.jobs.main", *arguments],
        env={**os.environ, "KUBOTHEK_TERMINATION_LOG": str(message)},
        capture_output=True,
        text=True,
        check=False,
    )
    return JobResult.model_validate_json(message.read_bytes()), done


def test_job_program_returns_result_and_reports_progress(here: Here, tmp_path: Path) -> None:
    here.put("x.csv", "a\n1\n")
    result, done = run([here.write(here.commit_job("x.csv"))], tmp_path)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert result.commit is not None
    assert result.commit.rows == 1
    stages = [json.loads(line)["progress"]["stage"] for line in done.stdout.splitlines()]
    assert stages[0] == "Starting"
    assert stages[-1] == "Committing"


def test_job_below_spark_limit_loads_no_spark_and_starts_no_jvm(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    path = here.write(here.commit_job("x.csv"))
    check = (
        "import sys; from kubothek.jobs.main import main; code = main(sys.argv[1:]); "
        "assert code == 0; assert not {'pyspark', 'py4j', 'boto3'} & set(sys.modules), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", check, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_job_without_java_fails_and_names_required_version(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    here.put("x.csv", "a\n1\n")
    here.from_bytes = 0
    result, done = run([here.write(here.commit_job("x.csv"))], tmp_path)
    assert (result.reason, result.retryable, done.returncode) == ("SparkUnavailable", False, ExitCode.INVALID)
    assert "install Java 17 or newer" in result.message
    assert here.head() is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "is no job"),
        ("{}", "is no job"),
        ('{"verb": "explode"}', "is no job"),
    ],
)
def test_job_program_with_invalid_job_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "job.json"
    if content is not None:
        path.write_text(content)
    result, done = run([str(path)], tmp_path)
    assert (result.reason, done.returncode) == ("InvalidInput", ExitCode.INVALID)
    assert message in result.message


def test_terminated_job_reports_terminated_and_is_retryable(here: Here, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.csv"
        job = here.commit_job(urls=[url], allowed_hosts=["*"], allow_local=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "kubothek.jobs.main", here.write(job)],
            env={**os.environ, "KUBOTHEK_TERMINATION_LOG": str(message)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=300)
    assert process.returncode == outcome.EXIT_TERMINATED, log
    result = JobResult.model_validate_json(message.read_bytes())
    assert (result.outcome, result.reason, result.retryable) == ("Failed", "Terminated", True)
    assert here.head() is None


def test_unexpected_error_is_reported_as_internal_error_and_logged(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("something new")

    message = tmp_path / "termination-log"
    monkeypatch.setenv("KUBOTHEK_TERMINATION_LOG", str(message))
    monkeypatch.setattr(commit, "run", fail)
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = program.main([here.write(here.commit_job("x.csv"))])
    finally:
        signal.signal(signal.SIGTERM, before)
    result = JobResult.model_validate_json(message.read_bytes())
    assert (code, result.reason, result.retryable) == (ExitCode.INTERNAL, "InternalError", True)
    assert "RuntimeError: something new (test_main.py:" in result.message
    assert "Traceback" in caplog.text


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LakeError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_exit_code_of_each_error_agrees_with_result(kind: type[errors.LakeError]) -> None:
    error = kind.__new__(kind, "what, where, what to do")
    result, code = outcome.failure(error)
    assert result.reason == kind.reason
    assert result.message == "what, where, what to do"
    if kind is not errors.Conflict:
        assert result.retryable == (code == ExitCode.TRANSIENT) == kind.transient


def test_conflict_is_retryable_only_if_commit_requests_retries() -> None:
    conflict = errors.Conflict("month=1 was removed")
    assert outcome.failure(conflict)[1] == ExitCode.CONFLICT
    assert not outcome.failure(conflict)[0].retryable
    assert outcome.failure(conflict, retry_conflicts=True)[0].retryable


@pytest.mark.parametrize("text", ["x", "\n", '"\\', "ü", "💾", "\x00"])
@pytest.mark.parametrize("length", [0, 1, 2000, 2048])
def test_termination_message_fits_limit_and_keeps_start_of_text(text: str, length: int) -> None:
    result = JobResult(
        outcome="Failed",
        reason="DataTypeMismatch",
        message=(text * length)[:2048],
        dataset=DatasetState(uuid="u" * 200, version=7, problem="p" * 300),
    )
    told = render(result)
    assert len(told) <= 4096
    parsed = JobResult.model_validate_json(told)
    assert (parsed.outcome, parsed.reason, parsed.dataset) == (result.outcome, result.reason, result.dataset)
    assert result.message.startswith(parsed.message.removesuffix("…"))


def test_message_beyond_result_limit_is_truncated() -> None:
    result, _ = outcome.failure(errors.InputError("x" * 10_000))
    assert len(result.message) == outcome.MESSAGE_LIMIT
    assert result.message.endswith("x…")


def test_dataset_state_beyond_limit_is_reported_with_fewer_details() -> None:
    """Its version and problem stay, and as many tags as there is room for: nobody asks for it again and again."""
    state = DatasetState(
        uuid="u" * 128,
        version=7,
        tags=dict(sorted((sha256(bytes([number])).hexdigest()[:63], 10**9 + number) for number in range(64))),
        ailments=("the index on 'x'",) * 8,
        corrupt="c" * 512,
    )
    other = state.model_copy(update={"tags": {name[::-1]: version for name, version in state.tags.items()}})
    for result in (
        JobResult(outcome="Succeeded", reason="Succeeded", message="done", dataset=state),
        JobResult(outcome="Succeeded", reason="Succeeded", message="done", datasets=(state, other)),
    ):
        data = render(result)
        told = JobResult.model_validate_json(data)
        (seen,) = told.datasets or (told.dataset,)
        assert len(data) <= 4096
        assert seen is not None
        assert (seen.uuid, seen.version, told.truncated) == (state.uuid, 7, True)
        assert len(seen.tags) > 40
        assert seen.tags.items() <= state.tags.items()
