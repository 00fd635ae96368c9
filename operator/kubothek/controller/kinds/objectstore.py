"""ObjectStore: whether it can be used, and the observed state of the Cubes and Datasets in it.

The operator reads no data itself. One inspection job at a time covers all Cubes and Datasets of the namespace in the
store. An inspection is due at intervals, on request, after a failure, when the connection changes, and soon after
Datasets are created or deleted. A result has a few kilobytes only: if it is truncated, the next inspection continues
after the last reported Dataset, until the round is complete. A result omits what has not changed, so that one short job
suffices for an idle store with any number of Datasets.

While an inspection runs, the conditions of a store whose state is known do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from kubothek.api.conditions import State, problem_state, problem_text, progressing, ready, resting
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.jobs import InspectJob, JobResult
from kubothek.api.members import head_uuid
from kubothek.api.objectstore import Capabilities, Inspection, ObjectStore
from kubothek.api.values import parse_duration
from kubothek.controller.context import Action, CancelJob, Context, Event, FailureClass, Outcome
from kubothek.controller.kinds.members import cube_ref
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import (
    Blocked,
    dataset_ref,
    digest,
    engine_digest,
    find_engine,
    launch_job,
    store_ref,
    writers_of,
)
from kubothek.controller.scheduling.attempts import Setback, job_name
from kubothek.controller.scheduling.launching import refused
from kubothek.controller.scheduling.retries import Budget
from kubothek.controller.scheduling.runner import run_attempts

Asked = Cube | Dataset
"""Resource that an inspection covers."""

CHANGED_INTERVAL = timedelta(seconds=5)
"""Minimum time between the starts of two inspections when Datasets are created or deleted, so that many share one."""
ASKED_LIMIT = 500
"""Maximum number of Cubes and Datasets in one job: its spec must fit into a ConfigMap. Its result holds far fewer."""
FIRST_RETRY = timedelta(seconds=10)
"""Wait after one failed inspection; it doubles up to the interval."""

_INSPECTING = progressing("Progressing", "an inspection job checks whether the store can be used")
_READY = ready("Succeeded", "the store can be used")
_ALONE = ready(
    "Succeeded",
    "the store can be used, but has no conditional writes: see to it that nothing else writes to the datasets in it",
)


def reconcile(store: ObjectStore, context: Context) -> Outcome:
    """Reconcile an ObjectStore."""
    if store.deleting or store.frozen:
        return unchanged(store)
    engine = find_engine((), store, context)
    if isinstance(engine, Blocked):  # the default Engine; its pod templates are denied
        return conclude(store, context, engine.state, again=engine.again)
    case = _Case(store, context, engine, _in_store(store, context))
    knowledge = _Knowledge(store.status.capabilities, store.status.last_inspection)
    return case.follow(knowledge) if knowledge.under_way else case.start_or_rest(knowledge)


def _in_store(store: ObjectStore, context: Context) -> tuple[Asked, ...]:
    """Return the resources in the store, sorted by uuid. Cubes come first, because their names begin with ``++``."""
    resources = chain[Asked](context.list(Cube, store.namespace), context.list(Dataset, store.namespace))
    here = (each for each in resources if each.spec.store_ref.name == store.name and not each.deleting)
    return tuple(sorted(here, key=_uuid))


def _uuid(asked: Asked) -> str:
    return asked.head if isinstance(asked, Cube) else asked.uuid


@dataclass(frozen=True, slots=True)
class _Knowledge:
    """Known state of a store, and its last inspection."""

    capabilities: Capabilities | None
    inspection: Inspection | None

    @property
    def under_way(self) -> bool:
        return self.inspection is not None and self.inspection.finished is None

    @property
    def state(self) -> State:
        if self.inspection is not None and self.inspection.problem is not None:
            return problem_state(self.inspection.problem, transient=self.inspection.transient)
        if self.capabilities is None:
            return _INSPECTING
        return _READY if self.capabilities.conditional_writes else _ALONE


@dataclass(frozen=True, slots=True)
class _Case:
    """A store with everything that its decisions depend on."""

    store: ObjectStore
    context: Context
    engine: Engine | None
    contents: Sequence[Asked]
    """The Cubes and Datasets in the store, sorted by uuid."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def prefix(self) -> str:
        return f"{self.store.name}-inspect"

    @property
    def interval(self) -> timedelta:
        return parse_duration(self.store.spec.interval)

    @property
    def connection(self) -> str:
        """Digest of the connection to the store."""
        return digest(self.store.spec.model_dump_json(exclude={"interval", "suspend"}))

    @property
    def claims(self) -> str:
        """Digest of the Cubes and Datasets in the store, and of their claims."""
        return digest(*map(_claimed, self.contents))

    def follow(self, knowledge: _Knowledge) -> Outcome:
        """Evaluate the announced inspection."""
        assert knowledge.inspection is not None
        step = run_attempts(
            knowledge.inspection,
            self.prefix,
            self.store,
            self.context,
            engine=self.engine,
            budget=Budget(limit=None),
            running=_INSPECTING,
            launch=lambda _: None,
        )
        inspection, case = step.attempts, replace(self, actions=(*self.actions, *step.actions))
        if step.active:
            shown = knowledge.state if step.state.ready == "Unknown" else step.state
            return case._conclude(shown, _Knowledge(knowledge.capabilities, inspection))
        if isinstance(step.end, JobResult) and step.end.store is not None:
            return case._answered(step.end, inspection)
        if step.dropped and step.setback is None:
            if knowledge.inspection.connection == self.connection:
                return case._launch(_Knowledge(knowledge.capabilities, inspection))
            # Announced but never observed, and the connection has changed since: start over with the next number.
            return case.start_or_rest(_Knowledge(None, _finished(inspection, self.context.now)))
        silent = Setback(FailureClass.RETRY, "ResultLost", "the inspection ended without a word about the store")
        return case._failed(step.setback or silent, knowledge)

    def _answered(self, result: JobResult, inspection: Inspection) -> Outcome:
        assert result.store is not None
        capabilities = Capabilities(conditional_writes=result.store.conditional_writes)
        finished = _finished(
            inspection,
            self.context.now,
            failures=0,
            problem=None,
            transient=False,
            reached=self._reached(inspection, result),
        )
        case = self
        if not capabilities.conditional_writes and self.store.status.capabilities != capabilities:
            case = replace(self, events=(*self.events, Event("Warning", "NoConditionalWrites", _ALONE.message)))
        return case.start_or_rest(_Knowledge(capabilities, finished))

    def _asked(self, inspection: Inspection) -> Sequence[Asked]:
        """Return what an inspection covers, sorted by uuid."""
        return [asked for asked in self.contents if _uuid(asked) > inspection.after][:ASKED_LIMIT]

    def _reached(self, inspection: Inspection, result: JobResult) -> str | None:
        """Return the uuid after which the round continues; None if it is complete."""
        if result.truncated:
            # A truncated result without entries gives no position to continue from.
            uuids = [*(head_uuid(state.prefix) for state in result.cubes), *(state.uuid for state in result.datasets)]
            return max(uuids, default=None)
        asked = self._asked(inspection)
        more = asked and asked[-1] is not self.contents[-1]
        return _uuid(asked[-1]) if more else None

    def _failed(self, setback: Setback, knowledge: _Knowledge) -> Outcome:
        """Record that the store cannot be used, or that the inspection was lost; retry without limit, with backoff."""
        assert knowledge.inspection is not None
        inspection, transient = knowledge.inspection, setback.failure is not FailureClass.REPORT
        problem: str | None = problem_text(setback.reason, self._explained(setback))
        if setback.failure is FailureClass.INFRASTRUCTURE and knowledge.state.ready != "Unknown":
            problem, transient = inspection.problem, inspection.transient  # says nothing about the store
        failures = inspection.failures + 1
        wait = Budget(initial=FIRST_RETRY, maximum=self.interval).delay(failures)
        finished = _finished(
            inspection,
            self.context.now,
            observed_attempt=inspection.attempt,
            failures=failures,
            problem=problem,
            transient=transient,
            next_attempt_time=self.context.now + wait,
        )
        return self.start_or_rest(_Knowledge(knowledge.capabilities, finished))

    def _explained(self, setback: Setback) -> str:
        """Return the message of a failure; if credentials are wrong, with their Secret, which jobs do not know."""
        reference = self.store.spec.credentials_secret_ref
        if reference is None or setback.reason not in ("InvalidCredentials", "AccessDenied"):
            return setback.message
        return f"{setback.message}; the keys are those of the Secret {reference.name!r}"

    def start_or_rest(self, knowledge: _Knowledge) -> Outcome:
        """Start an inspection if one is due, otherwise publish the known state and the time of the next one."""
        inspection = knowledge.inspection
        if inspection is not None and inspection.connection != self.connection:
            forgotten = inspection.model_copy(update={"problem": None, "transient": False, "failures": 0})
            knowledge = _Knowledge(None, forgotten)
        if self.store.spec.suspend:
            kind = ready if knowledge.state.ready == "True" else resting
            return self._conclude(kind("Suspended", "no inspections while spec.suspend is true"), knowledge)
        due = self._due(knowledge.inspection)
        if due <= self.context.now:
            return self._launch(_Knowledge(knowledge.capabilities, self._next(knowledge.inspection)))
        return self._conclude(knowledge.state, knowledge, again=due - self.context.now)

    def _due(self, inspection: Inspection | None) -> datetime:
        """Return when the next inspection is due."""
        requested = self.store.requested_at not in (None, self.store.status.last_handled_reconcile_at)
        if inspection is None or inspection.connection != self.connection or requested:
            return self.context.now
        if inspection.next_attempt_time is not None:
            return inspection.next_attempt_time
        if inspection.reached is not None:
            return self.context.now
        changed = inspection.datasets != self.claims
        return inspection.started + (min(CHANGED_INTERVAL, self.interval) if changed else self.interval)

    def _next(self, inspection: Inspection | None) -> Inspection:
        """Return the next inspection: of the rest of an incomplete round, or of a new round."""
        now, contents = self.context.now, self.claims
        if inspection is None:
            return Inspection(attempt=1, started=now, connection=self.connection, datasets=contents)
        going_on = inspection.reached is not None and inspection.datasets == contents
        return inspection.model_copy(
            update={
                "attempt": inspection.attempt + 1,
                "started": now,
                "previous_started": inspection.started,
                "finished": None,
                "next_attempt_time": None,
                "connection": self.connection,
                "datasets": contents,
                "after": inspection.reached if going_on else "",
                "reached": None,
            }
        )

    def _launch(self, knowledge: _Knowledge) -> Outcome:
        inspection = knowledge.inspection
        assert inspection is not None
        store, context, number = self.store, self.context, inspection.attempt
        asked = self._asked(inspection)
        known = {_uuid(each): each.status.inspected_digest for each in asked}
        job = InspectJob(
            job=job_name(self.prefix, number),
            uid=store.metadata.uid,
            attempt=number,
            store=store_ref(store),
            cubes=tuple(cube_ref(cube, context) for cube in asked if isinstance(cube, Cube)),
            datasets=tuple(dataset_ref(each, context.settings) for each in asked if isinstance(each, Dataset)),
            known={uuid: digest for uuid, digest in known.items() if digest is not None},
        )
        launch = launch_job(job, store, self.engine, store)
        # The Datasets may still have to read the last result; the previous one was read or is outdated.
        old = (CancelJob(store.namespace, job_name(self.prefix, number - 2)),) if number > 2 else ()
        blocked = refused(job.job, store, context)
        inspection = inspection.model_copy(update={"engine_digest": engine_digest(self.engine, context.settings)})
        return replace(self, actions=(*self.actions, *old, launch))._conclude(
            blocked.state if blocked else knowledge.state,
            _Knowledge(knowledge.capabilities, inspection),
            again=blocked.again if blocked else None,
            handled=store.requested_at,
        )

    def _conclude(
        self, state: State, knowledge: _Knowledge, *, again: timedelta | None = None, handled: str | None = None
    ) -> Outcome:
        status = self.store.status.model_copy(
            update={
                "capabilities": knowledge.capabilities,
                "last_inspection": knowledge.inspection,
                "last_handled_reconcile_at": handled or self.store.status.last_handled_reconcile_at,
            }
        )
        return conclude(self.store, self.context, state, status, actions=self.actions, events=self.events, again=again)


def _claimed(asked: Asked) -> str:
    text = f"{_uuid(asked)} {asked.name} {asked.metadata.uid}" + (" adopt" if asked.spec.adopt else "")
    if isinstance(asked, Dataset) and (writers := writers_of(asked)):
        text += f" {writers} {asked.spec.table.schema_evolution}"
    return text


def _finished(inspection: Inspection, now: datetime, **changes: object) -> Inspection:
    return inspection.model_copy(update={"finished": now} | changes)
