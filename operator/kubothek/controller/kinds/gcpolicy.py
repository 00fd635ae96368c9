"""GCPolicy: collection of its Datasets in chunks, at the slots of its schedule.

A due slot or a request begins a round. The round visits the Datasets in the order of their ObjectStores and names, with
one job after the other. Each job collects some Datasets of one store. The status holds the position, so that the round
continues after a restart of the operator. A failed job does not stop the round: the failure is counted and reported,
and the next slot tries again. All policies of a namespace together decide which versions may be deleted
(:mod:`kubothek.controller.kinds.targets`). So an invalid policy stops collection in its namespace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubothek.api.conditions import State, ready, stalled
from kubothek.api.engine import Engine
from kubothek.api.gcpolicy import GCPolicy, GCPolicyStatus, Round
from kubothek.api.jobs import CollectJob, CollectOutcome, JobResult
from kubothek.api.meta import render_time
from kubothek.controller.context import Action, Context, LaunchJob, Outcome
from kubothek.controller.kinds import rounds
from kubothek.controller.kinds.targets import Candidate, Keepers, Selection, matcher
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import Blocked, find_engine, launch_job, spark_settings, store_ref
from kubothek.controller.scheduling.attempts import ENGINE_FAULTS, GivenUp, job_name
from kubothek.controller.scheduling.queue import job_is_there
from kubothek.controller.scheduling.retries import budget_of
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.scheduling.schedule import Slots, fault

_SUSPENDED = ready("Suspended", "nothing is collected while spec.suspend is true; what the policy keeps stays")
_RECHECK_INTERVAL = timedelta(seconds=30)
_SILENT = "the job ended without a word about its Datasets"


def reconcile(policy: GCPolicy, context: Context) -> Outcome:
    """Reconcile a GCPolicy."""
    if policy.deleting or policy.frozen:
        return unchanged(policy)
    selection = Selection.of(policy, context)
    status = policy.status.model_copy(update={"datasets": len(selection.chosen)})
    engine = find_engine((policy.spec.engine_ref,), policy, context)
    if isinstance(engine, Blocked):
        return conclude(policy, context, engine.state, status, again=engine.again)
    return _Case(policy, context, engine, selection).step(status)


@dataclass(frozen=True, slots=True)
class _Case:
    """A policy with everything that its decisions depend on."""

    policy: GCPolicy
    context: Context
    engine: Engine | None
    selection: Selection
    actions: tuple[Action, ...] = ()

    def step(self, status: GCPolicyStatus) -> Outcome:
        """Continue the present round, or begin one if a slot is due."""
        if status.round is None:
            return self._begin_or_rest(status)
        return self._follow(status, status.round) if status.round.until else self._next_job(status, status.round)

    # --- rounds ---

    def _begin_or_rest(self, status: GCPolicyStatus) -> Outcome:
        slot = self._due(status)
        if slot is None:
            return self._rest(status)
        new_round = rounds.begin(status.last, slot, self.policy.spec.mode, self._now)
        handled = self.policy.requested_at or status.handled_request
        return self.step(status.model_copy(update={"round": new_round, "handled_request": handled}))

    def _next_job(self, status: GCPolicyStatus, round_: Round) -> Outcome:
        until = self.selection.end_of_chunk(round_.after, failures=0)
        if until:
            return self.step(_with(status, rounds.announced(round_, until)))
        ended = status.model_copy(update={"round": None, "last": round_, "last_time": self._now})
        return self.step(ended)

    def _rest(self, status: GCPolicyStatus) -> Outcome:
        problem = fault(self.policy.spec.schedule)
        if problem is not None:
            return self._conclude(stalled("InvalidSchedule", problem), status)
        if self.policy.spec.suspend:
            return self._conclude(_SUSPENDED, status)
        start_time = self._slots(status).next_start
        assert start_time is not None, "the schedule is valid"
        return self._conclude(self._achieved(status, start_time), status, again=start_time - self.context.now)

    def _achieved(self, status: GCPolicyStatus, following: datetime) -> State:
        last, then = status.last, f"next at {render_time(following)}"
        if last is not None and last.failed:
            of_all = f"{last.failed:,} of {rounds.counted(last.datasets, 'Dataset')} could not be collected"
            return stalled("CollectionFailed", f"{of_all}: {'; '.join(last.problems)}; {then}")
        if not self.selection.chosen:
            return ready("Succeeded", f"spec.selector selects no Dataset; {then}")
        return ready("Succeeded", f"{rounds.describe(last)}; {then}" if last else then)

    # --- slots ---

    def _due(self, status: GCPolicyStatus) -> datetime | None:
        policy = self.policy
        if not self._scheduled:
            return None
        if policy.requested_at not in (None, status.handled_request):
            return self._now
        return self._slots(status).due

    def _slots(self, status: GCPolicyStatus) -> Slots:
        """Return the slots after the last one; a new policy waits for its first one."""
        last = status.round or status.last
        slot = last.slot if last is not None else None
        return Slots.of(self.policy, self.policy.spec.schedule, slot, self.context.now)

    @property
    def _scheduled(self) -> bool:
        return not self.policy.spec.suspend and fault(self.policy.spec.schedule) is None

    # --- jobs ---

    def _follow(self, status: GCPolicyStatus, round_: Round) -> Outcome:
        step = run_attempts(
            round_,
            _prefix(self.policy),
            self.policy,
            self.context,
            engine=self.engine,
            budget=budget_of(self.engine),
            running=self._collecting(round_),
            launch=lambda attempts: self._launch(self._narrowed(round_, attempts)),
            keeps_two=True,
        )
        case, present = self._with(*step.actions), step.attempts
        match step.end:
            case GivenUp(reason, message):
                return case.step(_with(status, self._given_up(present, reason, message)))
            case JobResult(collect=None):
                return case.step(_with(status, self._given_up(present, "ResultLost", _SILENT)))
            case JobResult(collect=CollectOutcome() as collected):
                return case.step(_with(status, rounds.advanced(present, collected)))
        present = self._narrowed(round_, present)
        if step.dropped:  # its Datasets were deleted meanwhile, or are no longer ready
            return case.step(_with(status, rounds.advanced(present, CollectOutcome(after=""))))
        return case._conclude(_patient(step.state), _with(status, present), again=step.again)

    def _narrowed(self, before: Round, round_: Round) -> Round:
        """Return the round with a smaller chunk after another failure: one of its Datasets may be the cause."""
        if round_.failures == before.failures:
            return round_
        until = self.selection.end_of_chunk(round_.after, round_.failures)
        return round_.model_copy(update={"until": until or round_.until})

    def _given_up(self, round_: Round, reason: str, message: str) -> Round:
        """Return the round after a job that was given up. An Engine fault skips the rest: it affects all Datasets."""
        rest = self.selection.after(round_.after)
        left_out = rest if reason in ENGINE_FAULTS else self.selection.chunk(round_.after, round_.until)
        return rounds.passed_over(round_, left_out, reason, message)

    def _held(self, round_: Round) -> Blocked | None:
        """Return what a job has to wait for, or None."""
        policy, context = self.policy, self.context
        if policy.spec.suspend:
            return Blocked(_SUSPENDED)
        unreadable = context.invalid(GCPolicy, policy.namespace)
        if unreadable:
            why = f"GCPolicy {unreadable[0]!r} is not valid, so the versions that it retains are unknown"
            todo = "nothing is collected in this namespace until it is corrected or deleted"
            return Blocked(stalled("PolicyInvalid", f"{why}: {todo}"), _RECHECK_INTERVAL)
        for other in context.list(GCPolicy, policy.namespace):
            theirs = other.status.round
            if other.name == policy.name or theirs is None or not theirs.until:
                continue
            shared = self.selection.chunk(max(round_.after, theirs.after), min(round_.until, theirs.until))
            if not any(map(matcher(other.spec.selector), (each.dataset for each in shared if each.dataset))):
                continue
            if job_is_there(other, job_name(_prefix(other), theirs.attempt), context):
                waits = f"waits for the job of GCPolicy {other.name!r}, which is about some of the same Datasets"
                return Blocked(ready("Collecting", waits), _RECHECK_INTERVAL)
        return None

    def _launch(self, round_: Round) -> LaunchJob | Blocked | None:
        """Return the job for the round's chunk, or what it has to wait for; None if the chunk is empty."""
        chunk = self.selection.chunk(round_.after, round_.until)
        if not chunk:
            return None
        return self._held(round_) or self._job(round_, chunk)

    def _job(self, round_: Round, chunk: tuple[Candidate, ...]) -> LaunchJob:
        policy, context, store = self.policy, self.context, chunk[0].store
        keepers = Keepers.of(policy.namespace, context)
        job = CollectJob(
            job=job_name(_prefix(policy), round_.attempt),
            uid=policy.metadata.uid,
            attempt=round_.attempt,
            store=store_ref(store),
            targets=tuple(keepers.target(candidate.dataset, context) for candidate in chunk if candidate.dataset),
            leftovers=self._leftovers(round_, chunk),
            enforce=round_.mode == "Enforce" and policy.spec.mode == "Enforce",
            max_deletes=policy.spec.max_deletes,
            grace_seconds=keepers.grace(store, context).total_seconds(),
            spark=spark_settings(self.engine),
        )
        return launch_job(job, policy, self.engine, store)

    def _leftovers(self, round_: Round, chunk: tuple[Candidate, ...]) -> str | None:
        """Return the owner prefix of leftovers that the job also collects, or None.

        A policy for all Datasets collects them once in each store. Retries do not, in case leftovers caused the
        failure.
        """
        for_all = self.policy.spec.selector.all and not round_.failures
        if chunk[-1].dataset is None or (for_all and self.selection.is_last_of_store(chunk[-1])):
            return f"{self.context.settings.cluster_id}/{self.policy.namespace}/"
        return None

    # --- published status ---

    def _collecting(self, round_: Round) -> State:
        return ready(
            "Collecting", f"{round_.datasets:,} of {rounds.counted(len(self.selection.chosen), 'Dataset')} through"
        )

    def _conclude(self, state: State, status: GCPolicyStatus, *, again: timedelta | None = None) -> Outcome:
        following = self._slots(status).next_start if self._scheduled else None
        status = status.model_copy(update={"next_time": following})
        return conclude(self.policy, self.context, state, status, actions=self.actions, again=again)

    def _with(self, *actions: Action) -> _Case:
        return replace(self, actions=(*self.actions, *actions))

    @property
    def _now(self) -> datetime:
        return self.context.now.replace(microsecond=0)


def _patient(state: State) -> State:
    """Return Ready instead of waiting while a job waits for a place: that is normal operation."""
    return ready("Collecting", state.message) if state.reason == "ConcurrencyLimit" else state


def _prefix(policy: GCPolicy) -> str:
    return f"{policy.name}-collect"


def _with(status: GCPolicyStatus, round_: Round) -> GCPolicyStatus:
    return status.model_copy(update={"round": round_})
