"""Sync: a job runs once for each edit, at each slot of the schedule, and on request.

A failure is reported, and the next slot, request or edit tries again; so does an edit of the Repository, or a Dataset
that is created again. A pull waits for a dataset that does not exist yet; without a schedule it checks at an interval.
An existing job is followed, whatever else has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.conditions import State, problem_state, problem_text, progressing, ready, stalled, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.jobs import JobResult, Progress, RemoteRef, SyncJob
from kubothek.api.meta import render_time
from kubothek.api.objectstore import ObjectStore
from kubothek.api.repository import Repository
from kubothek.api.sync import Sync, SyncProgress, SyncRun, SyncStatus
from kubothek.api.values import render_bytes
from kubothek.controller.context import Action, Context, LaunchJob, Outcome
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import (
    Blocked,
    digest,
    find_engine,
    job_basics,
    launch_job,
    missing,
    usable_dataset,
    usable_store,
)
from kubothek.controller.scheduling.attempts import GivenUp, job_name, renewed
from kubothek.controller.scheduling.maintenance_priority import (
    RECHECK_INTERVAL,
    alone,
    is_overdue,
    sync_prefix,
    writer_ahead,
)
from kubothek.controller.scheduling.retries import budget_of
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.scheduling.schedule import Slots, fault
from kubothek.controller.status_merge import table_state
from kubothek.controller.validation.compatibility import sync_blocker

SECRET_DIRECTORY = "/var/run/kubothek/repository"  # noqa: S105 - a path, not a secret
"""Directory in which jobs find the Secret of the Repository."""

_ABSENT = "DatasetNotFound:"
"""Prefix of the problem of a pull whose dataset is not in the Repository."""
_ABSENCE_RECHECK_INTERVAL = timedelta(minutes=10)
_SYNCING = progressing("Syncing", "a job compares both sides and moves what is missing")
_SUSPENDED = ready("Suspended", "no new jobs while spec.suspend is true")


def reconcile(sync: Sync, context: Context) -> Outcome:
    """Reconcile a Sync."""
    if sync.deleting or sync.frozen:
        return unchanged(sync)
    return _Case(sync, context, _parts(sync, context)).step(sync.status)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Both sides of the sync, and the Engine of its jobs."""

    repository: Repository
    dataset: Dataset
    store: ObjectStore
    engine: Engine | None

    def url(self, sync: Sync) -> str:
        """Return the URL of the dataset in the Repository."""
        return f"{self.repository.spec.url.rstrip('/')}/{sync.spec.remote or self.dataset.uuid}"

    def asked(self, sync: Sync) -> str:
        """Return a digest of everything that determines what is synced, and how the Repository is reached."""
        wanted = sync.spec.model_dump_json(include={"direction", "force"})
        return digest(wanted, self.url(sync), self.repository.spec.model_dump_json(), self.dataset.metadata.uid)

    def launch(self, sync: Sync, run: SyncRun, context: Context) -> LaunchJob:
        """Return the job of an attempt."""
        spec, there, settings = sync.spec, self.repository.spec, context.settings
        secret = there.credentials_secret_ref
        ledger = self.dataset.spec.ledger
        assert ledger is not None, "nothing else is synced"
        name = job_name(sync_prefix(sync), run.attempt)
        job = SyncJob(
            **job_basics(name, run.attempt, sync, self.store, self.dataset, settings),
            remote=RemoteRef(
                url=self.url(sync),
                endpoint=there.endpoint,
                region=there.region,
                secret_dir=SECRET_DIRECTORY if secret is not None else None,
                ca_bundle=there.ca_bundle,
                allowed_hosts=settings.allowed_source_hosts,
                allow_local=settings.allow_local_sources,
            ),
            direction=spec.direction,
            force=spec.force == "IfDiverged",
            rows=None if spec.level is None else spec.level == "Full",
            view=ledger.view == "Table",
        )
        launch = launch_job(job, sync, self.engine, self.store)
        return launch if secret is None else replace(launch, mounts={SECRET_DIRECTORY: secret.name})


def _parts(sync: Sync, context: Context) -> _Parts | Blocked:
    """Return everything that a sync needs, or what it has to wait for."""
    repository = context.get(Repository, sync.namespace, sync.spec.repository_ref.name)
    if repository is None:
        return missing("Repository", sync.spec.repository_ref.name, sync, context)
    dataset = usable_dataset(sync.spec.dataset_ref.name, sync, context)
    if isinstance(dataset, Blocked):
        return dataset
    clash = sync_blocker(sync, repository, dataset)
    if clash is not None:
        return Blocked(clash)
    store = usable_store(dataset.spec.store_ref.name, sync, context)
    if isinstance(store, Blocked):
        return store
    engine = find_engine((sync.spec.engine_ref, dataset.spec.engine_ref), sync, context)
    return engine if isinstance(engine, Blocked) else _Parts(repository, dataset, store, engine)


@dataclass(frozen=True, slots=True)
class _Case:
    """A Sync with everything that its decisions depend on."""

    sync: Sync
    context: Context
    parts: _Parts | Blocked
    actions: tuple[Action, ...] = ()

    def step(self, status: SyncStatus) -> Outcome:
        """Continue with the present job, or start one if it is due."""
        run = status.run
        if run is not None and not run.done and run.problem is None:
            return self._follow(status, run)
        if self.sync.spec.suspend:
            return self._conclude(_SUSPENDED, status)
        if isinstance(self.parts, Blocked):
            return self._conclude(self.parts.state, status, again=self.parts.again)
        announced = self._next_run(status, self.parts)
        return self._rest(status) if announced is None else self._follow(announced, announced.run or SyncRun())

    def _next_run(self, status: SyncStatus, parts: _Parts) -> SyncStatus | None:
        """Return the status with the sync that is due, or None."""
        last, cause, request = status.run, parts.asked(self.sync), self.sync.requested_at
        slot = self._slots(status).due or self._absent_due(status)
        asked_anew = request is not None and request != status.handled_request
        if last is not None and last.cause == cause and slot is None and not asked_anew:
            return None
        slot = slot or self.context.now.replace(microsecond=0)
        run = renewed(last or SyncRun(), cause=cause, slot=slot)
        marks = {"run": run, "url": parts.url(self.sync), "handled_request": request or status.handled_request}
        return status.model_copy(update=marks)

    def _follow(self, status: SyncStatus, run: SyncRun) -> Outcome:
        sync, context = self.sync, self.context
        engine = None if isinstance(self.parts, Blocked) else self.parts.engine
        step = run_attempts(
            run,
            sync_prefix(sync),
            sync,
            context,
            engine=engine,
            budget=budget_of(engine),
            running=_SYNCING,
            launch=self._launch,
            keeps_two=True,
        )
        case = self._with(*step.actions)
        status = status.model_copy(update={"run": step.attempts, "progress": _progress(step.progress)})
        match step.end:
            case None:
                return case._conclude(step.state, status, again=step.again)
            case GivenUp(reason, message):
                problem = problem_text(reason, message)
                changes: dict[str, Any] = {"run": step.attempts.model_copy(update={"problem": problem})}
                if reason == "Diverged":
                    changes["relation"] = "Diverged"
                return case.step(status.model_copy(update=changes))
            case result:
                return case.step(_done(status, step.attempts, result, sync, context.now))

    def _launch(self, run: SyncRun) -> LaunchJob | Blocked:
        if self.sync.spec.suspend:
            return Blocked(_SUSPENDED)
        if isinstance(self.parts, Blocked):
            return self.parts
        return self._waits(run, self.parts) or self.parts.launch(self.sync, run, self.context)

    def _waits(self, run: SyncRun, parts: _Parts) -> Blocked | None:
        """Return what a pull waits for where one writer at a time is safe, or a push in order to include imminent
        commits; None if it may start. A push waits for ``LONGEST_WAIT`` at most.
        """
        dataset = parts.dataset
        if self.sync.pulls:
            return alone(self.sync, dataset, parts.store, self.context)
        ahead = None if is_overdue(run.slot, self.context.now) else writer_ahead(dataset, self.context)
        if ahead is None:
            return None
        message = f"{ahead} of Dataset {dataset.name!r} comes first, so that the push takes it along"
        return Blocked(waiting("Waiting", message), RECHECK_INTERVAL)

    def _rest(self, status: SyncStatus) -> Outcome:
        schedule, last = self.sync.spec.schedule, status.run
        mistake = None if schedule is None else fault(schedule)
        if mistake is not None:
            return self._conclude(stalled("InvalidSchedule", f"schedule: {mistake}"), status)
        following = self._next_start(status)
        again = None if following is None else following - self.context.now
        then = "" if following is None else f"; next sync at {render_time(following)}"
        if self._is_absent(status):
            again = again or self._absent_since(status) + _ABSENCE_RECHECK_INTERVAL - self.context.now
            message = f"there is no dataset at {status.url} yet; it is searched for again{then or ' every ten minutes'}"
            return self._conclude(waiting("AwaitingRemote", message), status, again=again)
        if last is not None and last.problem is not None:
            state = problem_state(last.problem)
            return self._conclude(replace(state, message=f"{state.message}{then}"), status, again=again)
        return self._conclude(ready("Succeeded", f"both end with {status.head}{then}"), status, again=again)

    def _is_absent(self, status: SyncStatus) -> bool:
        """Return whether the dataset was not in the Repository: probably it is not published yet."""
        last = status.run
        return self.sync.pulls and last is not None and (last.problem or "").startswith(_ABSENT)

    def _absent_since(self, status: SyncStatus) -> datetime:
        return (status.run and status.run.slot) or self.context.now

    def _absent_due(self, status: SyncStatus) -> datetime | None:
        if not self._is_absent(status) or self.sync.spec.schedule is not None:
            return None
        due = self._absent_since(status) + _ABSENCE_RECHECK_INTERVAL
        return self.context.now.replace(microsecond=0) if due <= self.context.now else None

    def _slots(self, status: SyncStatus) -> Slots:
        last = status.run
        return Slots.of(self.sync, self.sync.spec.schedule, last.slot if last is not None else None, self.context.now)

    def _next_start(self, status: SyncStatus) -> datetime | None:
        return None if self.sync.spec.suspend else self._slots(status).next_start

    def _conclude(self, state: State, status: SyncStatus, *, again: timedelta | None = None) -> Outcome:
        status = status.model_copy(update={"next_time": self._next_start(status)})
        return conclude(self.sync, self.context, state, status, actions=self.actions, again=again)

    def _with(self, *actions: Action) -> _Case:
        return replace(self, actions=(*self.actions, *actions))


def _progress(reported: Progress | None) -> SyncProgress | None:
    if reported is None:
        return None
    return SyncProgress(
        stage=reported.stage,
        blocks=reported.blocks,
        objects=reported.tasks_done,
        objects_to_go=max(0, reported.tasks_total - reported.tasks_done),
        bytes=reported.bytes,
        bytes_to_go=max(0, reported.bytes_total - reported.bytes),
    )


def _done(status: SyncStatus, run: SyncRun, result: JobResult, sync: Sync, now: datetime) -> SyncStatus:
    """Return the status after a job that succeeded."""
    changes: dict[str, Any] = {
        "run": run.model_copy(update={"done": True}),
        "last_sync_time": now.replace(microsecond=0),
        "table": None,
    }
    if result.sync is not None:
        changes |= result.sync.model_dump(exclude={"version"}) | {"size": render_bytes(result.sync.bytes)}
    if sync.pulls and result.dataset is not None:
        changes["table"] = table_state(result.dataset)
    return status.model_copy(update=changes)
