"""What becomes of runs that have ended, and of their pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.meta import Resource
from kubothek.api.query import Query
from kubothek.controller.context import DeleteRun, FailureClass
from kubothek.controller.scheduling.retention import SOONEST, kept
from tests.controller.fake import COMMIT_SPEC, Fake, R, committed, with_dataset, with_running_commit

HOUR = timedelta(hours=1)


def ended(context: Fake, *, well: bool = True, **spec: Any) -> None:
    """A Commit whose job ended, and whose Engine is the one of the context."""
    with_running_commit(context, **spec)
    if well:
        context.job_ends("january-1", **committed(1))
    else:
        context.job_fails("january-1", FailureClass.REPORT, "DataTypeMismatch")
    context.settle("Commit", "january")


@pytest.mark.parametrize(
    ("retention", "well", "at_once", "after_a_day"),
    [
        ({}, True, True, True),
        ({"policy": "OnFailure"}, True, False, False),
        ({"policy": "OnFailure"}, False, True, True),
        ({"policy": "OnFailure", "duration": "12h"}, False, True, False),
        ({"policy": "Always", "duration": "12h"}, True, True, False),
        ({"policy": "Never"}, False, False, False),
    ],
    ids=str,
)
def test_pod_retention_follows_engine_policy(retention: Any, *, well: bool, at_once: bool, after_a_day: bool) -> None:
    context = Fake()
    context.create("Engine", "default", {"podRetention": retention})
    with_dataset(context)
    ended(context, well=well)
    assert ("january-1" in context.jobs) == at_once
    before = context.commit().status
    context.pass_time(24 * HOUR)
    context.settle("Commit", "january")
    assert ("january-1" in context.jobs) == after_a_day
    assert context.commit().status == before


def test_pod_retention_with_duration_requeues_at_expiry() -> None:
    context = Fake()
    context.create("Engine", "default", {"podRetention": {"duration": "12h"}})
    with_dataset(context)
    ended(context)
    context.pass_time(HOUR)
    assert context.reconcile("Commit", "january").requeue_after == 11 * HOUR


def test_run_is_deleted_when_ttl_expires() -> None:
    context = Fake()
    with_dataset(context)
    ended(context, ttlSecondsAfterFinished=7200)
    context.pass_time(HOUR)
    assert context.settle("Commit", "january").requeue_after == HOUR
    context.pass_time(HOUR)
    context.reconcile("Commit", "january")
    assert ("Commit", "january") not in context.resources


def test_run_that_has_not_ended_is_kept_past_ttl() -> None:
    context = Fake()
    with_running_commit(context, ttlSecondsAfterFinished=0)
    context.pass_time(24 * HOUR)
    context.settle("Commit", "january")
    assert ("Commit", "january") in context.resources


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"argocd.argoproj.io/tracking-id": "x"}},
        {"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}},
        {"labels": {"helm.toolkit.fluxcd.io/name": "x"}},
        {"annotations": {"meta.helm.sh/release-name": "x"}},
        {"labels": {"app.kubernetes.io/instance": "x"}},
    ],
    ids=str,
)
def test_run_applied_by_tool_is_kept_past_ttl(metadata: dict[str, dict[str, str]]) -> None:
    context = Fake()
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"ttlSecondsAfterFinished": 0}, **metadata)
    context.reconcile("Commit", "january")
    context.job_ends("january-1", **committed(1))
    context.settle("Commit", "january")
    context.pass_time(24 * HOUR)
    context.settle("Commit", "january")
    assert ("Commit", "january") in context.resources


def test_commit_with_waiting_dependents_is_kept_past_ttl() -> None:
    context = Fake()
    with_dataset(context)
    context.create("Commit", "february", COMMIT_SPEC | {"dependsOn": [{"name": "january"}], "suspend": True})
    ended(context, ttlSecondsAfterFinished=0)
    context.pass_time(HOUR)
    context.settle("Commit", "january")
    assert ("Commit", "january") in context.resources
    context.edit("Commit", "february", suspend=False)
    context.reconcile("Commit", "february")
    context.job_ends("february-1", **committed(2))
    context.settle("Commit", "february")
    context.reconcile("Commit", "january")
    assert ("Commit", "january") not in context.resources


def test_runs_and_pods_are_kept_on_local_machine() -> None:
    context = Fake(keep_runs=True)
    context.create("Engine", "default", {"podRetention": {"policy": "Never"}})
    with_dataset(context)
    ended(context, ttlSecondsAfterFinished=0)
    context.pass_time(HOUR)
    context.settle("Commit", "january")
    assert "january-1" in context.jobs


def test_run_status_links_log_during_and_after_job() -> None:
    context = Fake(logs="https://grafana/explore?ns={namespace}&pod={pod}&from={start}&to={end}")
    with_running_commit(context)
    assert context.commit().status.logs == "https://grafana/explore?ns=team&pod=january-1&from=1795262400000&to=now"
    context.pass_time(HOUR)
    context.job_ends("january-1", **committed(1))
    context.settle("Commit", "january")
    assert (context.commit().status.logs or "").endswith("from=1795262400000&to=1795266000000")


def test_run_status_without_log_template_has_no_link() -> None:
    context = Fake()
    with_running_commit(context)
    assert context.commit().status.logs is None


@pytest.mark.parametrize("well", [True, False], ids=["complete", "failed"])
def test_run_history_keeps_newest_runs_and_runs_applied_by_tools(*, well: bool) -> None:
    context = Fake()
    with_dataset(context, runHistory={"complete": 2} if well else {"failed": 2})
    for number in range(1, 6):
        name = f"c{number}"
        labels = {"helm.toolkit.fluxcd.io/name": "x"} if number == 2 else {}
        context.create("Commit", name, COMMIT_SPEC, labels=labels)
        context.reconcile("Commit", name)
        if well:
            context.job_ends(f"{name}-1", **committed(number))
        else:
            context.job_fails(f"{name}-1", FailureClass.REPORT, "DataTypeMismatch")
        context.pass_time(HOUR)
        context.settle("Commit", name)
        context.settle("Dataset", "flights")
    there = {name for kind, name in context.resources if kind == "Commit"}
    context.pass_time(HOUR)
    context.settle("Commit", "c5")
    left = {name for kind, name in context.resources if kind == "Commit"}
    assert "c5" in there
    assert left == {"c2", "c4", "c5"}


def test_run_dependents_are_listed_once_per_reconcile() -> None:
    asked: list[type[Resource]] = []

    class Counting(Fake):
        def list(self, kind: type[R], namespace: str) -> Sequence[R]:
            asked.append(kind)
            return super().list(kind, namespace)

    context = Counting()
    with_dataset(context, runHistory={"complete": 1})
    for number in range(1, 6):
        context.create("Commit", f"c{number}", COMMIT_SPEC)
        context.reconcile("Commit", f"c{number}")
        context.job_ends(f"c{number}-1", **committed(number))
        context.reconcile("Commit", f"c{number}")
    context.create("Commit", "next", COMMIT_SPEC | {"dependsOn": [{"name": "c2"}], "suspend": True})
    context.pass_time(HOUR)
    asked.clear()
    going = kept(context.commit("c5"), "c5", None, context).actions
    assert {action.run.name for action in going if isinstance(action, DeleteRun)} == {"c1", "c3", "c4"}
    assert asked.count(Query) == 1


def test_run_end_requeues_reconcile_once() -> None:
    context = Fake()
    with_running_commit(context)
    context.job_ends("january-1", **committed(1))
    assert context.reconcile("Commit", "january").requeue_after == SOONEST
    assert context.reconcile("Commit", "january").requeue_after is None
