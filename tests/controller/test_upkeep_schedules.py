"""Whatever comes in whichever order: one job of maintenance at a time, started beside no commit, and all is done.

The operator may crash between its status and its actions, jobs fail and vanish, and everything is looked at in any
order. Time passes, but never the hour after which maintenance no longer gives way.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubothek.api.jobs import (
    CommitJob,
    CompactJob,
    CompactOutcome,
    DatasetState,
    HealJob,
    HealthState,
    InspectJob,
    StoreState,
    TagJob,
)
from kubothek.controller.context import FailureClass, JobPhase, JobSlot, Limits, Load
from kubothek.controller.reconcilers import RECONCILERS
from tests.controller.fake import COMMIT_SPEC, Fake, committed, seen, with_dataset, with_running_commit

ALIVE = (JobPhase.PENDING, JobPhase.RUNNING)
FLIGHTS = ("Dataset", "flights")
MAINTENANCE = CompactJob | TagJob | HealJob
LEAST = 2
positions = st.integers(0, 100)


class Upkeep(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.context = Fake(limits=Limits(jobs=2))
        self.version, self.small, self.tags = 1, LEAST, dict[str, int]()
        self.created = 0
        with_dataset(self.context, self.table())
        with_running_commit(self.context)
        self.context.edit(*FLIGHTS, maintenance={"compaction": {"minFiles": LEAST}})

    def table(self, **changes: Any) -> DatasetState:
        health = HealthState(version=self.version, worst_partition_small_files=self.small)
        return seen(self.version, health=health, tags=self.tags, **changes)

    # --- what people do ---

    @rule(kind=st.sampled_from(["Commit", "Commit", "Compaction"]))
    def somebody_asks(self, kind: str) -> None:
        self.created += 1
        spec = COMMIT_SPEC if kind == "Commit" else {"datasetRef": {"name": "flights"}}
        self.context.create(kind, f"run{self.created}", spec)

    @rule(version=st.integers(1, 4))
    def tags_change(self, version: int) -> None:
        self.context.edit(*FLIGHTS, tags=[{"name": "audit", "version": min(version, self.version)}])

    @rule(suspended=st.sampled_from([False, False, False, True]))
    def is_suspended(self, suspended: bool) -> None:
        self.context.edit(*FLIGHTS, suspend=suspended)

    @rule(taken=st.sampled_from([0, 0, 1, 2]))
    def others_take_places(self, taken: int) -> None:
        self.context.load = Load({JobSlot("other", "pond", maintenance=False): taken})

    # --- what the operator does ---

    @rule(position=positions)
    def crashes(self, position: int) -> None:
        """After the status is written, and before anything is done."""
        keys = sorted(self.context.resources)
        key = keys[position % len(keys)]
        self.context.publish(*key, RECONCILERS[key[0]](self.context.resources[key], self.context))

    @rule(position=positions)
    def rechecks(self, position: int) -> None:
        keys = sorted(self.context.resources)
        self.look(keys[position % len(keys)])

    @rule(backwards=st.booleans())
    def looks_at_everything(self, backwards: bool) -> None:
        for key in sorted(self.context.resources, reverse=backwards):
            self.look(key)

    def look(self, key: tuple[str, str]) -> None:
        committing, before = self.jobs_of(CommitJob), len(self.context.launches)
        self.context.reconcile(*key)
        for launch in self.context.launches[before:]:
            assert not (committing and isinstance(launch.job, MAINTENANCE)), "maintenance starts beside a commit"

    # --- what happens to jobs ---

    def alive(self) -> list[str]:
        return sorted(name for name, view in self.context.jobs.items() if view.phase in ALIVE)

    @precondition(lambda self: self.alive())
    @rule(position=positions)
    def a_job_ends(self, position: int) -> None:
        self.end(self.alive()[position % len(self.alive())])

    def end(self, name: str) -> None:
        job = next(launch.job for launch in self.context.launches if launch.job.job == name)
        match job:
            case CommitJob():
                self.version, self.small = self.version + 1, self.small + 1
                self.context.job_ends(name, **(committed(self.version) | {"dataset": self.table()}))
            case CompactJob():
                found = self.small >= job.min_files
                self.version, self.small = self.version + found, 0 if found else self.small
                done = CompactOutcome(version=self.version if found else None)
                self.context.job_ends(name, compact=done, dataset=self.table())
            case TagJob():
                self.version, self.tags = self.version + 1, job.tags
                self.context.job_ends(name, dataset=self.table())
            case HealJob():
                self.context.job_ends(name, dataset=self.table())
            case InspectJob():
                self.context.job_ends(name, store=StoreState(conditional_writes=True), datasets=(self.table(),))

    @precondition(lambda self: self.alive())
    @rule(position=positions, failure=st.sampled_from([FailureClass.RETRY, FailureClass.INFRASTRUCTURE]))
    def a_job_fails(self, position: int, failure: FailureClass) -> None:
        self.context.job_fails(self.alive()[position % len(self.alive())], failure, "StoreUnavailable")

    @precondition(lambda self: self.alive())
    @rule(position=positions)
    def a_job_vanishes(self, position: int) -> None:
        self.context.job_vanishes(self.alive()[position % len(self.alive())])

    @rule(seconds=st.integers(1, 30))
    def time_passes(self, seconds: int) -> None:
        self.context.pass_time(timedelta(seconds=seconds))

    # --- what must hold ---

    def jobs_of(self, kinds: Any) -> list[str]:
        started = {launch.job.job for launch in self.context.launches if isinstance(launch.job, kinds)}
        return [name for name in self.alive() if name in started]

    @invariant()
    def one_job_of_maintenance_at_a_time(self) -> None:
        assert len(self.jobs_of(MAINTENANCE)) <= 1

    @invariant()
    def commits_run_one_at_a_time_whatever_maintenance_does(self) -> None:
        assert len(self.jobs_of(CommitJob)) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "context"):
            return
        self.context.load = Load()
        self.context.edit(*FLIGHTS, suspend=False)
        rounds = 0
        while not self.is_done():
            rounds += 1
            assert rounds < 20 + 4 * self.created, "it comes to no end"
            for key in sorted(self.context.resources):
                self.context.reconcile(*key)
            for name in self.alive():
                self.end(name)
            self.context.pass_time(timedelta(minutes=6))

    def is_done(self) -> bool:
        """All runs have ended, small files and tags are as they should be, and the Dataset knows it."""
        runs = [run for (kind, _), run in self.context.resources.items() if kind in ("Commit", "Compaction")]
        dataset = self.context.dataset
        wanted = self.tags if dataset.spec.tags is None else {tag.name: tag.version for tag in dataset.spec.tags}
        return (
            all(run.status.holds("Complete") or run.status.holds("Failed") for run in runs)
            and not self.alive()
            and self.small < LEAST
            and self.tags == wanted
            and dataset.status.version == self.version
            and self.context.condition(*FLIGHTS) == ("True", "Succeeded")
        )


Upkeep.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
TestUpkeep = Upkeep.TestCase
