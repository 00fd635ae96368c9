"""Whatever happens to jobs, Datasets and the operator: rounds end, and what can be collected is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.jobs import CollectJob, CollectOutcome
from kubothek.controller.context import FailureClass, JobPhase
from kubothek.controller.kinds import gcpolicy
from tests.controller.fake import Fake
from tests.controller.test_gcpolicy import HOUR, HOURLY, add, be_ready

POLICIES: dict[str, dict[str, Any]] = {
    "every": {"selector": {"all": True}, "retention": {"versions": 3}},
    "some": {"selector": {"names": ["a1", "b1"]}, "retention": {"age": "5h"}, "schedule": {"cron": "*/20 * * * *"}},
}
DATASETS = ("a/a1", "a/a2", "a/a3", "b/b1", "b/b2")
ALIVE = (JobPhase.PENDING, JobPhase.RUNNING)
policies = st.sampled_from(sorted(POLICIES))
datasets = st.sampled_from(DATASETS)


class Machine(RuleBasedStateMachine):
    """Rules are what may happen; ``teardown`` lets everything calm down and looks at the end."""

    @initialize()
    def begin(self) -> None:
        self.context = Fake()
        self.jobs: dict[str, CollectJob] = {}
        for dataset in DATASETS:
            add(self.context, dataset)
        for name, spec in POLICIES.items():
            self.context.create("GCPolicy", name, HOURLY | spec)

    def reconcile(self, name: str) -> None:
        before = len(self.context.launches)
        self.context.reconcile("GCPolicy", name)
        for launch in self.context.launches[before:]:
            assert isinstance(launch.job, CollectJob)
            self.jobs.setdefault(launch.job.job, launch.job)

    def alive(self) -> list[CollectJob]:
        return [job for name, job in self.jobs.items() if name in self.context.jobs and self.phase(name) in ALIVE]

    def phase(self, name: str) -> JobPhase:
        return self.context.jobs[name].phase

    @rule(name=policies)
    def the_operator_looks(self, name: str) -> None:
        self.reconcile(name)

    @rule(name=policies)
    def the_operator_dies_before_it_acts(self, name: str) -> None:
        policy = self.context.resources["GCPolicy", name]
        assert isinstance(policy, GCPolicy)
        self.context.publish("GCPolicy", name, gcpolicy.reconcile(policy, self.context))

    @rule(span=st.sampled_from([1, 20, 600, 3600, 90000]))
    def time_passes(self, span: int) -> None:
        self.context.pass_time(timedelta(seconds=span))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), whole=st.booleans())
    def a_job_ends(self, data: st.DataObject, whole: bool) -> None:
        self.end(data.draw(st.sampled_from(self.alive())), whole)

    def end(self, job: CollectJob, whole: bool = True) -> None:
        names = [target.name for target in job.targets]
        names = names if whole else names[: (len(names) + 1) // 2]
        self.context.job_ends(job.job, collect=CollectOutcome(after=names[-1], datasets=len(names)))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), how=st.sampled_from([*FailureClass]))
    def a_job_fails(self, data: st.DataObject, how: FailureClass) -> None:
        self.context.job_fails(data.draw(st.sampled_from(self.alive())).job, how, "StoreUnavailable")

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def a_pod_vanishes(self, data: st.DataObject) -> None:
        self.context.job_vanishes(data.draw(st.sampled_from(self.alive())).job)

    @rule(dataset=datasets)
    def a_dataset_comes_or_goes(self, dataset: str) -> None:
        name = dataset.partition("/")[2]
        if ("Dataset", name) in self.context.resources:
            self.context.delete("Dataset", name)
        else:
            add(self.context, dataset)

    @rule(dataset=datasets)
    def a_dataset_is_edited(self, dataset: str) -> None:
        name = dataset.partition("/")[2]
        if ("Dataset", name) in self.context.resources:
            self.context.edit("Dataset", name, engineRef={"name": "default"})

    @rule(name=policies, value=st.booleans())
    def a_policy_is_suspended_or_not(self, name: str, value: bool) -> None:
        self.context.edit("GCPolicy", name, suspend=value)

    @rule(name=policies, when=st.integers(0, 9))
    def somebody_asks(self, name: str, when: int) -> None:
        self.context.annotate("GCPolicy", name, requestedAt=str(when))

    @invariant()
    def a_dataset_is_in_one_job_at_a_time(self) -> None:
        busy = [target.name for job in self.alive() for target in job.targets]
        assert len(busy) == len(set(busy))

    @invariant()
    def every_target_has_the_retention_of_all_that_select_it(self) -> None:
        for job in self.jobs.values():
            for target in job.targets:
                kept = {(policy.versions, policy.seconds) for policy in target.policies}
                assert kept == {(3, None)} | ({(None, 18000.0)} if target.name in ("a1", "b1") else set())

    def teardown(self) -> None:
        """Everything is well again: the next slot of each policy collects all that it selects."""
        for dataset in DATASETS:
            name = dataset.partition("/")[2]
            if ("Dataset", name) in self.context.resources:
                be_ready(self.context, name)
            else:
                add(self.context, dataset)
        for name in POLICIES:
            self.context.edit("GCPolicy", name, suspend=False)
        self.work_off()
        self.context.now = (self.context.now + HOUR).replace(minute=0)
        self.work_off()
        for name, count in (("every", 5), ("some", 2)):
            policy = self.context.resources["GCPolicy", name]
            assert isinstance(policy, GCPolicy)
            assert policy.status.last is not None
            assert (policy.status.last.datasets, policy.status.last.failed) == (count, 0)
            assert policy.status.round is None
            assert self.context.condition("GCPolicy", name) == ("True", "Succeeded")

    def work_off(self) -> None:
        for _ in range(40):
            for name in POLICIES:
                self.reconcile(name)
            for job in self.alive():
                self.end(job)
            self.context.pass_time(timedelta(seconds=10))
        assert not self.alive()


Machine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRounds = pytest.mark.slow(Machine.TestCase)
