"""SkippingIndex: skipping metadata of files that Kubothek does not own, created and refreshed by jobs.

A job runs when the metadata does not match the spec, at each slot of the schedule, and on request. It rebuilds
everything only if the spec asks for other metadata. Otherwise it describes new and changed files and removes deleted
ones. A failure is reported, and the next slot, request or edit tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubothek.api.conditions import State, problem_state, problem_text, progressing, ready, stalled
from kubothek.api.engine import Engine
from kubothek.api.files import Csv
from kubothek.api.jobs import PlainFiles, SkipFilesJob, SkipFilesOutcome
from kubothek.api.meta import FINALIZER, render_time
from kubothek.api.objectstore import ObjectStore
from kubothek.api.skippingindex import PlainRefresh, SkippingIndex, SkippingIndexStatus
from kubothek.api.values import render_bytes
from kubothek.controller.context import Action, CancelJob, Context, Event, LaunchJob, Outcome, SetFinalizer
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import (
    Blocked,
    digest,
    find_engine,
    launch_job,
    skipping_of,
    spark_settings,
    store_ref,
    usable_store,
)
from kubothek.controller.scheduling.attempts import GivenUp, first, job_name, renewed
from kubothek.controller.scheduling.retries import Budget, budget_of
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.scheduling.schedule import Slots, fault

_REMOVAL = Budget(limit=None, initial=timedelta(seconds=2), maximum=timedelta(minutes=1))
"""Deletion ends at its deadline; it has no retry limit."""
_DESCRIBING = progressing("Describing", "a job inspects the files and describes new ones")
_DELETING = progressing("Deleting", "a job deletes the metadata")
_SUSPENDED = ready("Suspended", "no new jobs while spec.suspend is true")


def reconcile(index: SkippingIndex, context: Context) -> Outcome:
    """Reconcile a SkippingIndex."""
    if index.frozen:
        return unchanged(index)
    if index.deleting:
        return _delete(index, context)
    finalizer = _finalizer(index)
    parts = _parts(index, context)
    if isinstance(parts, Blocked):
        return conclude(index, context, parts.state, actions=finalizer, again=parts.again)
    return _Case(index, context, parts, finalizer).step(index.status)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Store of the files, store of the metadata, and Engine of the jobs."""

    files: ObjectStore
    metadata: ObjectStore
    engine: Engine | None

    def launch(self, index: SkippingIndex, attempt: PlainRefresh, prefix: str, *, drop: bool = False) -> LaunchJob:
        """Return the job of an attempt."""
        spec = index.spec
        skipping = skipping_of(spec.skipping)
        assert skipping is not None
        job = SkipFilesJob(
            job=job_name(prefix, attempt.attempt),
            uid=index.metadata.uid,
            attempt=attempt.attempt,
            store=store_ref(self.metadata),
            name=f"{index.namespace}.{index.name}",
            files=PlainFiles(
                store=store_ref(self.files),
                prefix=spec.location.prefix,
                glob=spec.location.glob,
                format=spec.format,
                csv=spec.csv or Csv(),
                columns=spec.columns or (),
            ),
            skipping=skipping,
            drop=drop,
            spark=spark_settings(self.engine),
        )
        return launch_job(job, index, self.engine, self.metadata, self.files)


def _parts(index: SkippingIndex, context: Context) -> _Parts | Blocked:
    files = usable_store(index.spec.location.store_ref.name, index, context)
    if isinstance(files, Blocked):
        return files
    place = index.spec.metadata
    metadata = files if place is None else usable_store(place.store_ref.name, index, context)
    if isinstance(metadata, Blocked):
        return metadata
    engine = find_engine((index.spec.engine_ref,), index, context)
    return engine if isinstance(engine, Blocked) else _Parts(files, metadata, engine)


@dataclass(frozen=True, slots=True)
class _Case:
    """A SkippingIndex with everything that its decisions depend on."""

    index: SkippingIndex
    context: Context
    parts: _Parts
    actions: tuple[Action, ...] = ()

    def step(self, status: SkippingIndexStatus) -> Outcome:
        """Continue with the present job, or start one if it is due."""
        refresh = status.refresh
        if refresh is not None and not refresh.done and refresh.problem is None:
            return self._follow(status, refresh)
        announced = self._next_refresh(status)
        return self._rest(status) if announced is None else self._follow(announced, announced.refresh or PlainRefresh())

    def _next_refresh(self, status: SkippingIndexStatus) -> SkippingIndexStatus | None:
        """Return the status with the refresh that is due, or None."""
        last, spec = status.refresh, _asked(self.index)
        if self.index.spec.suspend:
            return None
        request = self.index.requested_at
        slot = self._slots(status).due
        new_request = request is not None and request != status.handled_request
        if last is not None and last.cause == spec and slot is None and not new_request:
            return None
        slot = slot or self.context.now.replace(microsecond=0)
        refresh = renewed(last or PlainRefresh(), cause=spec, slot=slot)
        return status.model_copy(update={"refresh": refresh, "handled_request": request or status.handled_request})

    def _follow(self, status: SkippingIndexStatus, refresh: PlainRefresh) -> Outcome:
        index, context, engine, prefix = self.index, self.context, self.parts.engine, f"{self.index.name}-skip"

        def launch(attempts: PlainRefresh) -> LaunchJob | Blocked:
            return Blocked(_SUSPENDED) if index.spec.suspend else self.parts.launch(index, attempts, prefix)

        step = run_attempts(
            refresh,
            prefix,
            index,
            context,
            engine=engine,
            budget=budget_of(engine),
            running=_DESCRIBING,
            launch=launch,
            keeps_two=True,
        )
        case, status = self._with(*step.actions), _with(status, step.attempts)
        match step.end:
            case None:
                return case._conclude(step.state, status, again=step.again)
            case GivenUp(reason, message):
                problem = problem_text(reason, message)
                return case.step(_with(status, step.attempts.model_copy(update={"problem": problem})))
            case result:
                done = _with(status, step.attempts.model_copy(update={"done": True}))
                return case.step(_refreshed(done, result.skip_files, context.now))

    def _rest(self, status: SkippingIndexStatus) -> Outcome:
        schedule, last = self.index.spec.schedule, status.refresh
        mistake = None if schedule is None else fault(schedule)
        if mistake is not None:
            return self._conclude(stalled("InvalidSchedule", f"schedule: {mistake}"), status)
        following = self._next_start(status)
        again = None if following is None else following - self.context.now
        if last is not None and last.problem is not None:
            return self._conclude(problem_state(last.problem), status, again=again)
        if self.index.spec.suspend:
            return self._conclude(_SUSPENDED, status)
        then = "" if following is None else f"; next inspection at {render_time(following)}"
        return self._conclude(_described(status, then), status, again=again)

    def _slots(self, status: SkippingIndexStatus) -> Slots:
        last = status.refresh
        return Slots.of(self.index, self.index.spec.schedule, last.slot if last is not None else None, self.context.now)

    def _next_start(self, status: SkippingIndexStatus) -> datetime | None:
        return None if self.index.spec.suspend else self._slots(status).next_start

    def _conclude(self, state: State, status: SkippingIndexStatus, *, again: timedelta | None = None) -> Outcome:
        status = status.model_copy(update={"next_time": self._next_start(status)})
        return conclude(self.index, self.context, state, status, actions=self.actions, again=again)

    def _with(self, *actions: Action) -> _Case:
        return replace(self, actions=(*self.actions, *actions))


def _asked(index: SkippingIndex) -> str:
    """Return a digest of everything that determines the metadata."""
    spec = index.spec
    wanted = spec.model_dump_json(include={"location", "format", "csv", "columns", "skipping", "metadata"})
    return digest(wanted)


def _refreshed(status: SkippingIndexStatus, reported: SkipFilesOutcome | None, now: datetime) -> SkippingIndexStatus:
    fields: dict[str, object] = {"refreshed_time": now.replace(microsecond=0).isoformat()}
    if reported is not None:
        fields |= reported.model_dump() | {"size": render_bytes(reported.bytes)}
    return SkippingIndexStatus.model_validate(status.model_dump() | fields)


def _described(status: SkippingIndexStatus, then: str) -> State:
    text = f"{status.described or 0:,} of {status.files or 0:,} files are described{then}"
    if status.left_out:
        text += f"; always opened, as they could not be described: {'; '.join(status.left_out)}"
    return ready("Succeeded", text)


def _with(status: SkippingIndexStatus, refresh: PlainRefresh) -> SkippingIndexStatus:
    return status.model_copy(update={"refresh": refresh})


# --- deletion --------------------------------------------------------------------------------------------------------


def _finalizer(index: SkippingIndex) -> tuple[Action, ...]:
    """Return the change of the finalizer: it is present only while deletion has to delete metadata."""
    wanted, present = index.spec.deletion_policy == "Delete", FINALIZER in index.metadata.finalizers
    return () if wanted == present else (SetFinalizer(wanted),)


def _delete(index: SkippingIndex, context: Context) -> Outcome:
    """Delete the metadata first, but never block the resource or its namespace forever: metadata can be rebuilt at any
    time, and nothing reads leftovers.
    """
    asked = index.metadata.deletion_timestamp
    assert asked is not None
    if FINALIZER not in index.metadata.finalizers:
        return unchanged(index)
    left = asked + context.settings.deletion_deadline - context.now
    parts, prefix = _parts(index, context), f"{index.name}-drop"
    removal = first(index.status.removal or PlainRefresh())
    refusal = context.launch_refusal(index.namespace, job_name(prefix, removal.attempt))
    going = refusal is not None and refusal[0] == "NamespaceTerminating"
    refresh = index.status.refresh
    running = () if refresh is None else (CancelJob(index.namespace, job_name(f"{index.name}-skip", refresh.attempt)),)
    if index.spec.deletion_policy == "Retain":
        return _let_go(index, Event("Normal", "Retained", "the metadata is kept, as spec.deletionPolicy says"))
    if isinstance(parts, Blocked) or left <= timedelta(0) or index.spec.suspend or going:
        why = "the metadata could not be deleted and is left in the store: delete it by hand if it is in the way"
        return _let_go(
            index, Event("Warning", "MetadataLeft", why), CancelJob(index.namespace, job_name(prefix, removal.attempt))
        )
    step = run_attempts(
        removal,
        prefix,
        index,
        context,
        engine=parts.engine,
        budget=_REMOVAL,
        running=_DELETING,
        launch=lambda attempts: parts.launch(index, attempts, prefix, drop=True),
    )
    match step.end:
        case None:
            status = index.status.model_copy(update={"removal": step.attempts})
            actions, again = (*running, *step.actions), min(step.again or left, left)
            return conclude(index, context, step.state, status, actions=actions, again=again)
        case GivenUp(reason, message):
            return _let_go(index, Event("Warning", reason, f"{message}: the metadata is left in the store"))
        case _:
            return _let_go(index, Event("Normal", "Deleted", "the metadata is deleted; the files are as they were"))


def _let_go(index: SkippingIndex, event: Event, *actions: Action) -> Outcome:
    """Return the outcome that removes the finalizer, so that the API server deletes the resource."""
    return unchanged(index, actions=(*actions, SetFinalizer(False)), events=(event,))
