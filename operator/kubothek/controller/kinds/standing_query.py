"""Standing Query: a Query that keeps a Dataset current. It runs at slots of a schedule, or when an input has changed.

The first run begins at creation, or when each followed Dataset has a version; an annotation requests another one. The
status holds the present run, written before its first job. Number and time of the run are in the id of its commit, so
retries of a run commit once, and runs do not exclude each other. A failed run is reported, and the next slot, change or
request begins another one. Runs never overlap: what becomes due during a run begins after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubothek.api.conditions import State, problem_state, problem_text, progressing, ready, resting, stalled, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.meta import render_time
from kubothek.api.query import FollowedInput, Query, QueryProgress, QueryRun, QueryStatus
from kubothek.controller.context import Action, Context, Event, LaunchJob, Outcome
from kubothek.controller.kinds import query_job
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import Blocked, find_engine, missing
from kubothek.controller.scheduling.attempts import GivenUp
from kubothek.controller.scheduling.maintenance_priority import query_prefix
from kubothek.controller.scheduling.retries import budget_of
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.scheduling.runs import with_log
from kubothek.controller.scheduling.schedule import Slots, fault
from kubothek.controller.validation.compatibility import unfit_followed
from kubothek.controller.validation.cycles import circle_of_queries, query_cycle

Inputs = tuple[FollowedInput, ...]

_RUNNING = progressing("Progressing", "a job runs the query")
_RECHECK_INTERVAL = timedelta(minutes=1)
_SUSPENDED = resting("Suspended", "nothing is started while spec.suspend is true")


def reconcile(query: Query, context: Context) -> Outcome:
    """Reconcile a standing Query."""
    if query.deleting or query.frozen:
        return unchanged(query)
    engine = find_engine((query.spec.engine_ref,), query, context)  # if there is none, the launch reports it
    return _Case(query, context, None if isinstance(engine, Blocked) else engine).step(query.status)


@dataclass(frozen=True, slots=True)
class _Case:
    """A standing Query with everything that its decisions depend on."""

    query: Query
    context: Context
    engine: Engine | None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()

    def step(self, status: QueryStatus) -> Outcome:
        """Continue the present run, or begin one if it is due."""
        if status.run is not None and status.run.is_open:
            return self._follow(status, status.run)
        if self.query.spec.suspend:
            return self._conclude(_SUSPENDED, status)
        mistake = None if self.query.spec.schedule is None else fault(self.query.spec.schedule)
        if mistake is not None:
            return self._conclude(stalled("InvalidSchedule", f"schedule: {mistake}"), status)
        inputs = _inputs(self.query, self.context)
        if isinstance(inputs, Blocked):
            return self._conclude(inputs.state, status, again=inputs.again)
        following = self._with_due_run(status, inputs)
        assert following.run is not None, "the first run is due at once"
        if not following.run.is_open:
            return self._rest(following, following.run)
        way = query_cycle(self.query, self.context)
        if way is not None:
            return self._conclude(stalled("Cycle", circle_of_queries(way)), status, again=_RECHECK_INTERVAL)
        return self._follow(following, following.run)

    # --- runs ---

    def _with_due_run(self, status: QueryStatus, inputs: Inputs) -> QueryStatus:
        """Return the status with a new run if one is due, otherwise with a slot before which no input has changed."""
        last, slot, spec = status.run, self._slots(status).due, self.query.spec
        if last is None or self._is_requested(status):
            return self._begun(status, slot, inputs)
        has_changed = bool(spec.follow) and last.inputs != inputs
        if spec.schedule is None:
            return self._begun(status, None, inputs) if has_changed else status
        if slot is None:
            return status
        if not spec.follow or has_changed or last.problem is not None:
            return self._begun(status, slot, inputs)
        return status.model_copy(update={"run": last.model_copy(update={"slot": slot})})

    def _begun(self, status: QueryStatus, slot: datetime | None, inputs: Inputs) -> QueryStatus:
        """Return the status with a new run and fresh attempts; the number of an observed job is never reused."""
        number = 1 if status.run is None else status.run.number + 1
        run = QueryRun(number=number, time=self._now, slot=slot or self._now, inputs=inputs)
        fresh = {"failures": 0, "disruptions": 0, "next_attempt_time": None, "setback": None, "engine_digest": None}
        marks = {"run": run, "start_time": None, "handled_request": self.query.requested_at or status.handled_request}
        return status.model_copy(update={"attempt": status.attempt + 1} | fresh | marks)

    def _is_requested(self, status: QueryStatus) -> bool:
        return self.query.requested_at not in (None, status.handled_request)

    def _follow(self, status: QueryStatus, run: QueryRun) -> Outcome:
        query, context, prefix = self.query, self.context, query_prefix(self.query)

        def launch(attempts: QueryStatus) -> LaunchJob | Blocked:
            if query.spec.suspend:
                return Blocked(_SUSPENDED)
            return query_job.launch(query, attempts.attempt, context, run)

        step = run_attempts(
            status,
            prefix,
            query,
            context,
            engine=self.engine,
            budget=budget_of(self.engine, query.spec.retry_limit),
            running=_RUNNING,
            launch=launch,
            keeps_two=True,
        )
        case = replace(self, actions=(*self.actions, *step.actions), events=(*self.events, *step.events))
        status = step.attempts.model_copy(update={"progress": None})
        match step.end:
            case None:
                pass
            case GivenUp(reason, message):
                given_up = run.model_copy(update={"problem": problem_text(reason, message)})
                return case.step(status.model_copy(update={"run": given_up}))
            case result:
                status = with_log(status, query, context, prefix, ended=True)
                done = {"run": run.model_copy(update={"done": True})}
                return case.step(query_job.with_result(status, result, context.now).model_copy(update=done))
        if step.active:
            status = with_log(status, query, context, prefix)
        if step.progress is not None:
            progress = QueryProgress.model_validate(step.progress.model_dump())
            status = status.model_copy(update={"progress": progress})
        if status.start_time is None and any(isinstance(action, LaunchJob) for action in step.actions):
            status = status.model_copy(update={"start_time": self._now})
        return case._conclude(step.state, status, again=step.again)

    # --- published status ---

    def _rest(self, status: QueryStatus, last: QueryRun) -> Outcome:
        following = self._next_start(status)
        if following is None:
            then = "the next one begins when an input has a new version"
        else:
            unless = ", if an input has a new version" if self.query.spec.follow else ""
            then = f"the next one begins at {render_time(following)}{unless}"
        again = None if following is None else following - self.context.now
        return self._conclude(_state(status, last, then), status, again=again)

    def _slots(self, status: QueryStatus) -> Slots:
        last = status.run.slot if status.run is not None else None
        return Slots.of(self.query, self.query.spec.schedule, last, self.context.now)

    def _next_start(self, status: QueryStatus) -> datetime | None:
        return None if self.query.spec.suspend else self._slots(status).next_start

    def _conclude(self, state: State, status: QueryStatus, *, again: timedelta | None = None) -> Outcome:
        status = status.model_copy(update={"next_time": self._next_start(status)})
        return conclude(self.query, self.context, state, status, actions=self.actions, events=self.events, again=again)

    @property
    def _now(self) -> datetime:
        return self.context.now.replace(microsecond=0)


def _state(status: QueryStatus, last: QueryRun, then: str) -> State:
    """Return the state between two runs."""
    if last.problem is not None:
        state = problem_state(last.problem)
        return replace(state, message=f"run {last.number} failed: {state.message}; {then}, or on request")
    made = "" if status.version is None else f" and made version {status.version}"
    return ready("Succeeded", f"run {last.number} is complete{made}; {then}")


def _inputs(query: Query, context: Context) -> Inputs | Blocked:
    """Return the followed Datasets as they are now, or which one cannot be followed."""
    found = []
    for reference in query.spec.follow:
        dataset = context.get(Dataset, query.namespace, reference.name)
        if dataset is None or dataset.deleting:
            return missing("Dataset", reference.name, query, context)
        unfit = unfit_followed(query, dataset)
        if unfit is not None:
            return Blocked(stalled("QueryInvalid", unfit))
        if dataset.status.version is None or dataset.status.deleted:
            return Blocked(waiting("InputNotReady", f"Dataset {dataset.name!r} of spec.follow has no version yet"))
        found.append(FollowedInput(name=dataset.name, uid=dataset.metadata.uid, version=dataset.status.version))
    return tuple(found)
