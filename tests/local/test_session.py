"""Whole runs over manifests, with real reconcilers and processes, and jobs that do as they are told."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.api.commit import Commit
from kubothek.api.meta import Resource
from kubothek.local.manifests import Key, load
from kubothek.local.session import Report, Session, session
from kubothek.local.state import LockedError
from kubothek.local.summary import Phase
from tests.local.manifests import STORE, commit, dataset, write

pytestmark = pytest.mark.slow  # each test starts processes

FAKE_JOB = (sys.executable, str(Path(__file__).with_name("fake_job.py")))


def run(
    directory: Path,
    *documents: str,
    on_change: Callable[[Session, Resource], None] = lambda s, r: None,
    later: timedelta = timedelta(0),
) -> Report:
    """One run over the documents, with ``directory`` as the project; ``later`` puts the clock forward."""
    manifests = load([write(directory, *documents)])
    with session(manifests, directory, FAKE_JOB, lambda: datetime.now(UTC) + later) as running:
        return running.run(lambda resource: on_change(running, resource))


def starts(directory: Path) -> Counter[str]:
    """How often each job was started, in all runs."""
    return Counter((directory / "store" / "starts").read_text().split())


def phases(report: Report) -> dict[str, Phase]:
    return {str(summary.key): summary.phase for summary in report.summaries}


def message(report: Report, key: str) -> str:
    [found] = [summary for summary in report.summaries if str(summary.key) == key]
    return f"{found.reason}: {found.message}"


def test_local_run_makes_all_resources_ready_and_reports_them(tmp_path: Path) -> None:
    report = run(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    assert report.fine
    assert phases(report) == {
        "objectstore/lake": Phase.READY,
        "engine/default": Phase.READY,
        "dataset/flights": Phase.READY,
        "commit/first": Phase.DONE,
    }
    assert starts(tmp_path) == {"lake-inspect-1": 1, "first-1": 1}


def test_local_run_repeated_starts_no_job(tmp_path: Path) -> None:
    run(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    again = run(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    assert (again.fine, again.jobs) == (True, 0)


def test_local_run_with_new_commit_starts_only_its_job(tmp_path: Path) -> None:
    run(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    both = run(tmp_path, STORE, dataset("flights"), commit("first", "flights"), commit("a-later", "flights"))
    assert (both.fine, both.jobs) == (True, 1)
    assert starts(tmp_path)["a-later-1"] == 1


def test_local_run_executes_commits_in_order_per_dataset_concurrently(
    tmp_path: Path,
) -> None:
    names = ["b", "a", "c"]
    documents = [commit(name, "flights") for name in names] + [commit("planes", "planes")]
    seen: list[str] = []

    def note(_: Session, resource: Resource) -> None:
        if isinstance(resource, Commit) and resource.status.holds("Complete"):
            seen.append(resource.name)

    report = run(tmp_path, STORE, dataset("flights"), dataset("planes"), *documents, on_change=note)
    assert report.fine
    assert [name for name in seen if name != "planes"] == sorted(names)


def test_local_run_orders_commits_of_different_datasets_by_depends_on(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        STORE,
        dataset("flights"),
        dataset("planes"),
        commit("a", "flights", spec="dependsOn: [{name: z}]"),
        commit("z", "planes"),
    )
    assert report.fine
    order = (tmp_path / "store" / "starts").read_text().split()
    assert order.index("z-1") < order.index("a-1")


@pytest.mark.parametrize("source", ["flaky.csv", "crash.csv", "killed.csv"])
def test_local_run_retries_transient_failure(tmp_path: Path, source: str) -> None:
    report = run(tmp_path, STORE, dataset("flights"), commit("first", "flights", f"sources/{source}"))
    assert report.fine
    assert {name: count for name, count in starts(tmp_path).items() if name.startswith("first")} == {
        "first-1": 1,
        "first-2": 1,
    }


def test_local_run_with_bad_input_fails_only_its_commit(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        STORE,
        dataset("flights"),
        dataset("planes"),
        commit("bad", "flights", "sources/invalid.csv"),
        commit("good", "planes"),
    )
    assert not report.fine
    assert phases(report)["commit/bad"] is Phase.FAILED
    assert phases(report)["commit/good"] is Phase.DONE
    assert message(report, "commit/bad") == (
        "DataTypeMismatch: invalid.csv, column 'a', row 3: 'x' is no int64: correct the file"
    )
    assert starts(tmp_path)["bad-1"] == 1


def test_local_run_repeated_retries_failed_commit_under_new_number(tmp_path: Path) -> None:
    documents = [STORE, dataset("flights"), commit("bad", "flights", "sources/invalid.csv")]
    run(tmp_path, *documents)
    again = run(tmp_path, *documents)
    assert phases(again)["commit/bad"] is Phase.FAILED
    assert starts(tmp_path)["bad-2"] == 1


def test_local_run_repeated_inspects_dataset_with_problem_again(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    problem = tmp_path / "store" / "problem"
    problem.write_text("OwnedByAnother: dataset 'flights' belongs to prod/analytics/flights")
    documents = [STORE, dataset("flights"), commit("first", "flights")]
    refused = run(tmp_path, *documents)
    assert phases(refused)["dataset/flights"] is Phase.FAILED
    assert message(refused, "dataset/flights").startswith("OwnedByAnother: ")

    problem.unlink()
    assert run(tmp_path, *documents, later=timedelta(seconds=2)).fine


def test_local_run_after_interval_only_inspects_store(tmp_path: Path) -> None:
    documents = [STORE, dataset("flights"), commit("first", "flights")]
    run(tmp_path, *documents)
    assert run(tmp_path, *documents, later=timedelta(minutes=9)).jobs == 0
    assert run(tmp_path, *documents, later=timedelta(minutes=11)).jobs == 1
    assert starts(tmp_path)["lake-inspect-2"] == 1


def test_local_run_with_missing_reference_ends_and_names_reference(tmp_path: Path) -> None:
    report = run(tmp_path, STORE, commit("first", "flights"))
    assert phases(report)["commit/first"] is Phase.WAITING
    assert "there is no valid Dataset 'flights' in namespace 'default'" in message(report, "commit/first")
    assert not report.fine


def test_local_run_reports_commit_that_waits_for_failed_commit(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        STORE,
        dataset("flights"),
        dataset("planes"),
        commit("bad", "flights", "sources/invalid.csv"),
        commit("good", "planes", spec="dependsOn: [{name: bad}]"),
    )
    assert message(report, "commit/good").startswith("DependencyFailed: Commit 'bad'")


def test_local_run_with_suspended_commit_succeeds_without_its_job(tmp_path: Path) -> None:
    documents = [STORE, dataset("flights"), commit("first", "flights", spec="suspend: true")]
    report = run(tmp_path, *documents)
    assert (report.fine, phases(report)["commit/first"]) == (True, Phase.SUSPENDED)
    assert "first-1" not in starts(tmp_path)

    resumed = run(tmp_path, STORE, dataset("flights"), commit("first", "flights", spec="suspend: false"))
    assert phases(resumed)["commit/first"] is Phase.DONE


def test_local_run_stopped_ends_jobs_and_next_run_resumes_attempt(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    os.mkfifo(tmp_path / "store" / "gate")
    documents = [STORE, dataset("flights"), commit("first", "flights", "sources/gate.csv")]

    def stop_when_it_writes(running: Session, resource: Resource) -> None:
        if isinstance(resource, Commit) and resource.status.progress is not None:
            assert resource.status.progress.stage == "Writing"
            running.stop()

    stopped = run(tmp_path, *documents, on_change=stop_when_it_writes)
    assert (stopped.stopped, stopped.fine) == (True, False)

    opener = threading.Thread(target=(tmp_path / "store" / "gate").write_text, args=("go",), daemon=True)
    opener.start()
    resumed = run(tmp_path, *documents)
    assert resumed.fine
    assert starts(tmp_path)["first-1"] == 2
    assert "first-2" not in starts(tmp_path)


def test_local_run_concurrent_with_another_is_refused(tmp_path: Path) -> None:
    manifests = load([write(tmp_path, STORE)])
    with (
        session(manifests, tmp_path, FAKE_JOB),
        pytest.raises(LockedError),
        session(manifests, tmp_path, FAKE_JOB),
    ):
        raise AssertionError("both run")


def test_local_run_serves_several_stores(tmp_path: Path) -> None:
    other = STORE.partition("---")[0].replace("{name: lake}", "{name: pond}").replace("file:store", "file:pond")
    report = run(
        tmp_path,
        STORE,
        "---\n" + other,
        dataset("flights"),
        dataset("frogs").replace("storeRef: {name: lake}", "storeRef: {name: pond}"),
        commit("first", "flights"),
        commit("second", "frogs"),
    )
    assert report.fine
    assert (tmp_path / "pond" / "starts").read_text().split() == ["pond-inspect-1", "second-1"]


def test_local_run_keeps_log_of_every_attempt_and_names_newest(tmp_path: Path) -> None:
    manifests = load([write(tmp_path, STORE, dataset("flights"), commit("first", "flights", "sources/crash.csv"))])
    with session(manifests, tmp_path, FAKE_JOB) as running:
        running.run(lambda resource: None)
        log = running.log_of(Key("Commit", "default", "first"))
    assert log is not None
    assert log.parent.name == "2"
    assert "something broke" in (log.parent.parent / "1" / "log.txt").read_text()


def test_local_run_with_many_commits_completes(tmp_path: Path) -> None:
    """Enough of them that a cost per change that grows with the number of resources would be felt."""
    documents = [STORE]
    for group in range(20):
        documents.append(dataset(f"d{group}"))
        documents += [commit(f"c{group}-{n}", f"d{group}", spec="suspend: true") for n in range(50)]
    report = run(tmp_path, *documents)
    assert Counter(phases(report).values()) == {Phase.SUSPENDED: 1000, Phase.READY: 22}
