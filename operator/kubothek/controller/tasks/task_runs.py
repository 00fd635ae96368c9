"""Jobs that make a table what it should be: one for each cause, followed to its end.

The Dataset is ready all the while, as commits go on. What a job was started for is kept as its *cause*: what it could
not change is not tried again until there is another cause. Which of them are started, and when, is decided in
:mod:`kubothek.controller.tasks.table_maintenance`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.conditions import State, problem_text, stalled
from kubothek.api.dataset import Dataset, DatasetStatus, Errand
from kubothek.api.engine import Engine
from kubothek.api.jobs import AnyJob, DatasetState, JobResult
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Action, CancelJob, World
from kubothek.controller.references import engine_digest, job_basics, launch_job
from kubothek.controller.scheduling.attempts import Active, GivenUp, Start, Succeeded, first, follow, job_name
from kubothek.controller.scheduling.launching import start, under_way
from kubothek.controller.scheduling.retries import Budget

BUDGET = Budget(limit=6, initial=timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class Case:
    """A Dataset with all that its jobs need."""

    dataset: Dataset
    world: World
    store: ObjectStore
    engine: Engine | None

    def prefix(self, chore: Chore) -> str:
        """What the names of a chore's jobs begin with."""
        return f"{self.dataset.name}-{chore.verb}"


def _as_it_is(errand: Errand, _result: JobResult, _now: datetime) -> Errand:
    return errand


@dataclass(frozen=True, slots=True)
class Chore:
    """One sort of errand.

    ``verb``    ends the prefix of its jobs' names
    ``field``   of the status, in which the errand is kept, as a ``state``
    ``reason``  of the condition when it was given up, and ``complaint``, what is wrong then
    ``doing``   the state of such a job, for people
    ``cause``   what there is to do, as a short text that changes when that does; None if there is nothing
    ``job``     the job for an errand; the mapping is what all jobs of Datasets have
    ``seen``    the status with the table as the job saw it
    ``noted``   the errand with what its job reported at this time
    ``told``    reasons of jobs that become the reason of the condition
    """

    verb: str
    field: str
    reason: str
    complaint: str
    doing: State
    cause: Callable[[Dataset, DatasetStatus, datetime], str | None]
    job: Callable[[Case, Errand, Mapping[str, Any]], AnyJob]
    seen: Callable[[DatasetStatus, DatasetState], DatasetStatus]
    noted: Callable[[Errand, JobResult, datetime], Errand] = _as_it_is
    state: type[Errand] = Errand
    told: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Pursued:
    """The next step of an errand. ``trouble``: what stands against it, if anything."""

    status: DatasetStatus
    actions: tuple[Action, ...] = ()
    again: timedelta | None = None
    trouble: State | None = None


def errand_of(chore: Chore, status: DatasetStatus) -> Errand | None:
    """The last errand of this sort."""
    errand = getattr(status, chore.field)
    assert errand is None or isinstance(errand, Errand)
    return errand


def is_open(chore: Chore, status: DatasetStatus) -> bool:
    """Whether an errand of this sort was begun and is neither done nor given up."""
    errand = errand_of(chore, status)
    return errand is not None and not errand.done and errand.problem is None


def begun(chore: Chore, status: DatasetStatus, cause: str, now: datetime) -> DatasetStatus:
    """The status with an errand for this cause; the number of a job that was seen is never used again."""
    before, due = errand_of(chore, status) or chore.state(), now.replace(microsecond=0)
    number = before.attempt + 1
    errand = chore.state(attempt=number, observed_attempt=before.observed_attempt, cause=cause, due_time=due)
    return _with(chore, status, errand)


def is_untried(errand: Errand) -> bool:
    """Whether an errand was begun, and no job of it was ever seen."""
    tried = errand.observed_attempt == errand.attempt or errand.failures or errand.disruptions
    return not errand.done and not tried


def is_tried(chore: Chore, case: Case, status: DatasetStatus) -> bool:
    """Whether a job of an errand is there, or was."""
    errand = errand_of(chore, status)
    if errand is None or not is_untried(errand):
        return errand is not None
    return case.world.job(case.dataset.namespace, job_name(case.prefix(chore), errand.attempt)) is not None


def settled(chore: Chore, status: DatasetStatus) -> DatasetStatus:
    """The status when nothing is left to do: the same cause may come again."""
    errand = errand_of(chore, status)
    if errand is None:
        return status
    return _with(chore, status, errand.model_copy(update={"cause": "", "done": True, "problem": None}))


def trouble_of(chore: Chore, status: DatasetStatus) -> State | None:
    """What an errand that was given up leaves the Dataset in."""
    errand = errand_of(chore, status)
    if errand is None or errand.problem is None:
        return None
    reason = errand.problem.removeprefix(f"{chore.complaint}: ").partition(":")[0]
    return stalled(reason if reason in chore.told else chore.reason, errand.problem)


def pursue(chore: Chore, case: Case, status: DatasetStatus, *, start_jobs: bool) -> Pursued:
    """The next step of an errand that is open; its job is started only if ``start_jobs``."""
    errand, dataset, world = errand_of(chore, status), case.dataset, case.world
    assert errand is not None, "the errand is open"
    on = engine_digest(case.engine, world.settings)
    step = follow(first(errand), case.prefix(chore), dataset, world, BUDGET, on)
    errand, cancel = step.attempts, tuple(CancelJob(dataset.namespace, name) for name in step.cancel)
    match step.stage:
        case Active() as active:
            return Pursued(_with(chore, status, errand), trouble=_trouble(chore, under_way(active, chore.doing)))
        case Succeeded(result):
            if result.dataset is not None:
                status = chore.seen(status, result.dataset)
            errand = chore.noted(errand, result, world.now.replace(microsecond=0))
            return Pursued(_with(chore, status, errand.model_copy(update={"done": True})))
        case GivenUp(reason, message):
            errand = errand.model_copy(update={"problem": f"{chore.complaint}: {problem_text(reason, message)}"})
            status = _with(chore, status, errand)
            return Pursued(status, cancel, trouble=trouble_of(chore, status))
        case Start() as begin:
            if chore.cause(dataset, status, world.now) is None:
                return Pursued(settled(chore, _with(chore, status, errand)), cancel)
            if not start_jobs:
                return Pursued(_with(chore, status, errand), cancel)
            launch = launch_job(_job(chore, case, errand), dataset, case.engine, case.store)
            move = start(step, begin, launch, chore.doing, on, world)
            actions = (*_forgotten(chore, case, errand), *move.actions)
            return Pursued(_with(chore, status, move.attempts), actions, move.again, _trouble(chore, move.state))


def _job(chore: Chore, case: Case, errand: Errand) -> AnyJob:
    name = job_name(case.prefix(chore), errand.attempt)
    basics = job_basics(name, errand.attempt, case.dataset, case.store, case.dataset, case.world.settings)
    return chore.job(case, errand, basics)


def _forgotten(chore: Chore, case: Case, errand: Errand) -> tuple[Action, ...]:
    """A Dataset lives long: of its jobs the last two are kept, for their logs."""
    if errand.attempt <= 2:
        return ()
    return (CancelJob(case.dataset.namespace, job_name(case.prefix(chore), errand.attempt - 2)),)


def _trouble(chore: Chore, state: State) -> State | None:
    """A job that cannot start without a person's help is told of, but is in no Commit's way."""
    if state.abnormal != "Stalled":
        return None
    return stalled(chore.reason, f"{chore.complaint}: {problem_text(state.reason, state.message)}")


def _with(chore: Chore, status: DatasetStatus, errand: Errand) -> DatasetStatus:
    return status.model_copy(update={chore.field: errand})
