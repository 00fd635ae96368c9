"""A commit happens once, whoever runs it, however often, and wherever it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import JOB, CommitJob, ExitCode
from kubothek.jobs import commit
from kubothek.jobs.progress import Reporter
from kubothek.table.log.model import keys
from tests.faultstore import Crash, FaultStore, every_crash
from tests.jobs.conftest import ALL_IN_PROCESS, Here

pytestmark = pytest.mark.slow  # each test starts processes

TABLE = {"partition_on": ["p"]}


def commit_job(job: dict[str, Any]) -> CommitJob:
    parsed = JOB.validate_python(job)
    assert isinstance(parsed, CommitJob)
    return parsed


def test_commit_job_rerun_changes_nothing(either: Here) -> None:
    either.put("x.csv", "p,v\n1,1\n2,2\n")
    first = either.commit("x.csv", table=TABLE)
    head = either.head()
    again = either.commit("x.csv", table=TABLE)
    assert either.head() == head
    assert first.commit is not None
    assert again.commit == first.commit.model_copy(update={"already_applied": True})
    assert again.dataset == first.dataset


def test_commit_job_rerun_without_source_is_already_applied(here: Here) -> None:
    here.put("x.csv", "p,v\n1,1\n")
    here.commit("x.csv", table=TABLE)
    (here.root / "x.csv").unlink()
    result = here.commit("x.csv", table=TABLE)
    assert result.commit is not None
    assert result.commit.already_applied


def test_commit_job_with_reused_id_and_other_change_is_refused(here: Here) -> None:
    here.put("x.csv", "p,v\n1,1\n")
    here.commit("x.csv", table=TABLE)
    head = here.head()
    result, code = here.run(here.commit_job("x.csv", table=TABLE, compression="Gzip"))
    assert (result.reason, result.retryable, code) == ("IdReused", False, ExitCode.INVALID)
    assert here.head() == head


def test_commit_job_that_crashes_commits_once_on_next_attempt(tmp_path: Path) -> None:
    def prepared(name: str) -> Here:
        here = Here(tmp_path / name)
        here.put("0.csv", "p,v\n1,0\n")
        here.put("x.csv", "p,v\n1,1\n2,2\n")
        here.commit("0.csv", commit_id="before", table=TABLE)
        return here

    counted = prepared("counted")
    counting = FaultStore(counted.store)
    commit.run(commit_job(counted.commit_job("x.csv", table=TABLE)), counting, Reporter(counted.said))
    points = list(every_crash(counting.calls))
    assert len(points) >= 10  # two data files, record, head, marker, each before and after
    for number, fault in enumerate(points):
        here = prepared(str(number))
        job = here.commit_job("x.csv", table=TABLE)
        with pytest.raises(Crash):
            commit.run(commit_job(job), FaultStore(here.store, fault), Reporter(here.said))
        result, code = here.run({**job, "attempt": 2, "job": "run-commit-2"})
        assert code == ExitCode.DONE, (fault, result)
        assert sorted(row["v"] for row in here.rows()) == [0, 1, 2], fault
        assert result.dataset is not None
        assert result.dataset.version == here.snapshot().version
        here.store.get(keys.marker("flights", "c1"))
        assert result.dataset.problem is None


def test_first_commit_job_that_crashes_commits_once_on_next_attempt(tmp_path: Path) -> None:
    counted = Here(tmp_path / "counted")
    counted.put("x.csv", "p,v\n1,1\n")
    counting = FaultStore(counted.store)
    commit.run(commit_job(counted.commit_job("x.csv", table=TABLE)), counting, Reporter(counted.said))
    for number, fault in enumerate(every_crash(counting.calls)):
        here = Here(tmp_path / str(number))
        here.put("x.csv", "p,v\n1,1\n")
        job = here.commit_job("x.csv", table=TABLE)
        with pytest.raises(Crash):
            commit.run(commit_job(job), FaultStore(here.store, fault), Reporter(here.said))
        assert here.run({**job, "attempt": 2})[1] == ExitCode.DONE, fault
        assert [row["v"] for row in here.rows()] == [1]
        assert (here.root / "flights/table/_common_metadata").exists()


def test_two_concurrent_attempts_commit_once_and_both_succeed(here: Here) -> None:
    here.put("x.csv", "p,v\n1,1\n2,2\n")
    job = here.commit_job("x.csv", table=TABLE)
    barrier = threading.Barrier(2)

    class Together(Reporter):
        def report(self, stage: str, tasks_done: int = 0, tasks_total: int = 0, rows: int = 0, **transfer: int) -> None:
            if stage == "Committing":
                barrier.wait(timeout=120)

    with ThreadPoolExecutor(2) as pool:
        attempts = [pool.submit(commit.run, commit_job(job), here.store, Together()) for _ in range(2)]
    results = [attempt.result() for attempt in attempts]
    assert {result.commit.version for result in results if result.commit} == {1}
    assert sorted(row["v"] for row in here.rows()) == [1, 2]


def test_concurrent_commit_jobs_all_land(here: Here) -> None:
    for number in range(6):
        here.put(f"{number}.csv", f"p,v\n1,{number}\n")
    jobs = [commit_job(here.commit_job(f"{n}.csv", commit_id=f"c{n}", table=TABLE)) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda job: commit.run(job, here.store, Reporter(here.said)), jobs))
    assert len({result.commit.version for result in results if result.commit}) == 6
    assert sorted(row["v"] for row in here.rows()) == list(range(6))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("stage", "from_bytes"),
    [("Starting", ALL_IN_PROCESS), ("Committing", ALL_IN_PROCESS), pytest.param("Writing", 0, marks=pytest.mark.spark)],
)
def test_killed_commit_job_commits_once_on_next_attempt(here: Here, stage: str, from_bytes: int) -> None:
    """SIGKILL for the process, and its JVM if it has one, as soon as it tells this stage."""
    here.from_bytes = from_bytes
    here.put("x.csv", "p,v\n" + "".join(f"{i % 5},{i}\n" for i in range(20_000)))
    job = here.commit_job("x.csv", table=TABLE)
    process = subprocess.Popen(
        [sys.executable, "-m", "kubothek.jobs.main", here.write(job)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as told:
        for line in told:
            if json.loads(line)["progress"]["stage"] == stage:
                break
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    result, code = here.run({**job, "attempt": 2, "spark": {"from_bytes": ALL_IN_PROCESS}})
    assert code == ExitCode.DONE, result
    assert sorted(row["v"] for row in here.rows()) == list(range(20_000))
