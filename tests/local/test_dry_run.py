"""Dry run: the decisions of a run, with recorded jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from kubothek.api.commit import Commit
from kubothek.api.jobs import DatasetState, InspectJob, JobResult, StoreState
from kubothek.controller.context import LaunchJob
from kubothek.local.apply import apply, states_of
from kubothek.local.dry_run import DryRun
from kubothek.local.manifests import Key, load
from tests.local.manifests import STORE, commit, dataset, write

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def rehearse(directory: Path, *manifests: str, failing: str = "") -> tuple[DryRun, list[str]]:
    """Return a dry run over the manifests, and the names of its jobs; the job ``failing`` does not succeed."""
    recorded: list[str] = []

    def simulate(action: LaunchJob) -> JobResult:
        job = action.job
        recorded.append(job.job)
        if job.job == failing:
            return JobResult(outcome="Failed", reason="SourceNotFound", message="no such file")
        result = JobResult(outcome="Succeeded", reason="Succeeded", message="")
        if not isinstance(job, InspectJob):
            return result
        states = tuple(DatasetState(uuid=each.uuid) for each in job.datasets)
        return result.model_copy(update={"store": StoreState(conditional_writes=True), "datasets": states})

    loaded = load([write(directory, *manifests)])
    dry_run = DryRun(apply(loaded, states_of(loaded, directory), NOW), simulate, NOW)
    dry_run.run()
    return dry_run, recorded


def test_dry_run_records_the_jobs_of_a_run_and_writes_nothing(tmp_path: Path) -> None:
    after = commit("a", "flights", spec="dependsOn: [{name: b}]")
    dry_run, recorded = rehearse(tmp_path, STORE, dataset("flights"), after, commit("b", "flights"))
    assert recorded == ["lake-inspect-1", "b-1", "a-1"]
    assert all(resource.ready for resource in dry_run.objects)
    assert not (tmp_path / "store").exists()


def test_dry_run_does_not_retry_a_simulated_failure(tmp_path: Path) -> None:
    after = commit("a", "flights", spec="dependsOn: [{name: b}]")
    other = commit("c", "flights")
    manifests = (STORE, dataset("flights"), after, commit("b", "flights"), other)
    dry_run, recorded = rehearse(tmp_path, *manifests, failing="b-1")
    assert recorded == ["lake-inspect-1", "b-1", "c-1"]
    waiting = dry_run.objects[Key("Commit", "default", "a")]
    assert isinstance(waiting, Commit)
    stalled = waiting.status.condition("Stalled")
    assert stalled is not None
    assert stalled.reason == "DependencyFailed"


def test_dry_run_counts_an_interrupted_job_as_lost(tmp_path: Path) -> None:
    loaded = load([write(tmp_path, STORE, dataset("flights"), commit("b", "flights"))])
    states, key = states_of(loaded, tmp_path), Key("Commit", "default", "b")
    interrupted = apply(loaded, states, NOW).resources[key]
    assert isinstance(interrupted, Commit)
    status = interrupted.status.model_copy(update={"attempt": 1, "observed_attempt": 1})
    states[key].save(interrupted.model_copy(update={"status": status}))
    _, recorded = rehearse(tmp_path, STORE, dataset("flights"), commit("b", "flights"))
    assert recorded == ["lake-inspect-1", "b-2"]
