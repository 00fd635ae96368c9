"""Any schedule of failures, lost events, crashes and stale caches ends with the change made exactly once.

The machine is a Kubernetes in small: statuses, pods, a bucket that remembers which ids were committed, and an operator
that crashes between any two steps. It knows the statuses (it alone writes them, and lists them consistently when it
starts), but sees pods late: never older than what it saw before, but after a restart as old as it likes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubothek.api.commit import CommitStatus
from kubothek.api.jobs import CommitJob, CommitOutcome, JobResult
from kubothek.controller.context import CancelJob, FailureClass, JobPhase, JobView, LaunchJob
from kubothek.controller.kinds import commit as reconciler
from tests import kstatus
from tests.controller.fake import COMMIT_SPEC, NAMESPACE, Fake, seen, with_dataset

pytestmark = pytest.mark.slow

NAMES = ("january", "february")
ALIVE = (JobPhase.PENDING, JobPhase.RUNNING)
names = st.sampled_from(NAMES)
ages = st.sampled_from([0, 0, 0, 1, 2, 4])


class Machine(RuleBasedStateMachine):
    """Rules are what may happen; ``teardown`` lets everything calm down and looks at the end."""

    @initialize()
    def begin(self) -> None:
        self.context = Fake()
        with_dataset(self.context)
        for name in NAMES:
            self.context.create("Commit", name, COMMIT_SPEC | {"retryLimit": 20})
        self.pods: list[dict[str, JobView]] = [{}]
        self.jobs: dict[str, CommitJob] = {}
        self.bucket: dict[str, int] = {}
        self.applications = 0
        self.seen_pods = 0
        """Which of the states of the pods the operator sees."""

    # --- the cluster ---

    def set_pod(self, name: str, view: JobView | None) -> None:
        changed = {key: value for key, value in self.pods[-1].items() if key != name}
        self.pods.append(changed | ({name: view} if view else {}))

    def a_pod(self, data: st.DataObject, *phases: JobPhase) -> JobView:
        return data.draw(st.sampled_from([pod for pod in self.pods[-1].values() if pod.phase in phases]))

    def some(self, *phases: JobPhase) -> bool:
        return any(pod.phase in phases for pod in self.pods[-1].values())

    @precondition(lambda self: self.some(JobPhase.PENDING))
    @rule(data=st.data())
    def pod_starts(self, data: st.DataObject) -> None:
        pod = self.a_pod(data, JobPhase.PENDING)
        self.set_pod(pod.name, replace(pod, phase=JobPhase.RUNNING))

    @precondition(lambda self: self.some(JobPhase.RUNNING))
    @rule(
        data=st.data(),
        end=st.sampled_from(["succeeds", "succeeds silently", "is killed after the commit", "fails", "is evicted"]),
    )
    def pod_ends(self, data: st.DataObject, end: str) -> None:
        pod = self.a_pod(data, JobPhase.RUNNING)
        job = self.jobs[pod.name]
        if end in ("fails", "is evicted"):
            failure = (
                FailureClass.RETRY if end == "fails" and self.allowed(job, "failures") else FailureClass.INFRASTRUCTURE
            )
            if not self.allowed(job, "disruptions"):
                end = "succeeds"
            else:
                self.set_pod(
                    pod.name, replace(pod, phase=JobPhase.FAILED, reason="Evicted", message="gone", failure=failure)
                )
                return
        result = self.make_the_change(job)
        if end == "is killed after the commit":
            self.set_pod(pod.name, None)
            return
        told = result if end == "succeeds" else None
        self.set_pod(pod.name, replace(pod, phase=JobPhase.SUCCEEDED, result=told))

    def allowed(self, job: CommitJob, budget: str) -> bool:
        """Failures stay within the budgets, so that every schedule can end well."""
        return int(getattr(self.context.commit(self.owner(job.job)).status, budget)) < 5

    def make_the_change(self, job: CommitJob) -> JobResult:
        """The commit protocol: an id that is there is not committed again."""
        known = job.commit_id in self.bucket
        if not known:
            self.applications += 1
            self.bucket[job.commit_id] = len(self.bucket) + 1
        version = self.bucket[job.commit_id]
        done = CommitOutcome(version=version, already_applied=known, rows=10, files=1, bytes=10)
        return JobResult(outcome="Succeeded", reason="Succeeded", message="done", commit=done, dataset=seen(version))

    @precondition(lambda self: self.pods[-1])
    @rule(data=st.data())
    def pod_is_deleted(self, data: st.DataObject) -> None:
        pod = self.a_pod(data, *JobPhase)
        if self.allowed(self.jobs[pod.name], "disruptions"):
            self.set_pod(pod.name, None)

    @staticmethod
    def owner(job: str) -> str:
        return job.rpartition("-")[0]

    # --- the operator ---

    @rule(behind=ages)
    def pod_events_arrive(self, behind: int) -> None:
        self.seen_pods = max(self.seen_pods, len(self.pods) - 1 - behind)

    @rule(behind=ages)
    def operator_restarts(self, behind: int) -> None:
        """It lists the pods, but from a server that lags behind."""
        self.seen_pods = max(0, len(self.pods) - 1 - behind)

    @rule(seconds=st.sampled_from([1, 10, 600]))
    def time_passes(self, seconds: int) -> None:
        self.context.pass_time(timedelta(seconds=seconds))

    @rule(name=names, steps=st.sampled_from([4, 4, 4, 0, 1, 2, 3]))
    def operator_reconciles(self, name: str, steps: int) -> None:
        """One round that crashes after so many steps; 4 are more than it has."""
        self.context.jobs = {key: view for key, view in self.context.jobs.items() if key.startswith("lake-")}
        self.context.jobs |= self.pods[self.seen_pods]
        resource = self.context.commit(name)
        outcome = reconciler.reconcile(resource, self.context)
        before = resource.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert kstatus.check(resource.metadata.generation, outcome.status, before) == []
        if steps == 0:
            return
        status = CommitStatus.model_validate(outcome.status)
        self.context.resources["Commit", name] = resource.model_copy(update={"status": status})
        for action in outcome.actions[: steps - 1]:
            self.act(name, action)

    def act(self, name: str, action: object) -> None:
        if isinstance(action, CancelJob):
            if action.name in self.pods[-1]:
                self.set_pod(action.name, None)
            return
        assert isinstance(action, LaunchJob)
        job = action.job
        assert isinstance(job, CommitJob)
        assert self.context.commit(name).status.attempt == job.attempt, "launched, but not announced"
        self.jobs[job.job] = job
        if job.job not in self.pods[-1]:
            self.set_pod(job.job, JobView(job.job, job.attempt, JobPhase.PENDING, owner_uid=job.uid))

    # --- what always holds ---

    @invariant()
    def never_two_jobs_at_once(self) -> None:
        """Neither two attempts of a Commit nor two Commits of the Dataset."""
        assert len([pod for pod in self.pods[-1].values() if pod.phase in ALIVE]) <= 1

    @invariant()
    def the_change_is_made_at_most_once(self) -> None:
        assert self.applications == len(self.bucket)

    @invariant()
    def success_is_only_reported_when_it_is_true(self) -> None:
        for name in NAMES:
            if self.context.commit(name).status.holds("Complete"):
                assert f"{NAMESPACE}/{name}" in self.bucket

    def teardown(self) -> None:
        """From here on nothing goes wrong: everything must be done within a bounded number of rounds."""
        if not hasattr(self, "context"):
            return
        for _ in range(40):
            self.operator_restarts(0)
            for name in NAMES:
                self.operator_reconciles(name, 4)
            for pod in list(self.pods[-1].values()):
                if pod.phase in ALIVE:
                    result = self.make_the_change(self.jobs[pod.name])
                    self.set_pod(pod.name, replace(pod, phase=JobPhase.SUCCEEDED, result=result))
            self.time_passes(600)
            if all(self.context.commit(name).finished for name in NAMES):
                break
        ended: dict[str, Any] = {name: self.context.commit(name).status.holds("Complete") for name in NAMES}
        assert ended == dict.fromkeys(NAMES, True)
        assert set(self.bucket) == {f"{NAMESPACE}/{name}" for name in NAMES}


Machine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
TestSchedules = Machine.TestCase
