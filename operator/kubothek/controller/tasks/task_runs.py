"""Task runs: jobs that bring a table into its desired state, one for each cause, followed to its end.

The Dataset stays ready, because commits continue. A task run records its *cause*, the reason for which it started. A
task that was given up is tried again only for another cause. :mod:`kubothek.controller.tasks.table_maintenance` decides
which tasks start, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.conditions import State, problem_text, stalled
from kubothek.api.dataset import TASK_FIELDS, Dataset, DatasetStatus, TaskRun
from kubothek.api.engine import Engine
from kubothek.api.jobs import AnyJob, DatasetState, JobResult
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Action, Context, LaunchJob
from kubothek.controller.references import Blocked, job_basics, launch_job
from kubothek.controller.scheduling.attempts import GivenUp, job_name, renewed
from kubothek.controller.scheduling.retries import Budget
from kubothek.controller.scheduling.runner import run_attempts

BUDGET = Budget(limit=6, initial=timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """A Dataset with everything that its jobs need."""

    dataset: Dataset
    context: Context
    store: ObjectStore
    engine: Engine | None

    def prefix(self, task_type: TaskType) -> str:
        """Return the prefix of the names of a task's jobs."""
        return f"{self.dataset.name}-{task_type.verb}"


def _as_it_is(task_run: TaskRun, _result: JobResult, _now: datetime) -> TaskRun:
    return task_run


@dataclass(frozen=True, slots=True)
class TaskType:
    """One type of task.

    ``verb``    of its jobs, a key of ``TASK_FIELDS``: it ends the prefix of their names
    ``state``   the model of its task runs
    ``reason``  of the condition after the task was given up, and ``problem``, what is wrong then
    ``running`` the state while such a job runs, for messages
    ``cause``   what there is to do, as a short text that changes with it; None if there is nothing
    ``job``     the job of a task run; the mapping holds the fields that all jobs of Datasets have
    ``absorb``  the status with the table as the job observed it
    ``record``  the task run with what its job reported at this time
    ``reasons`` reasons of jobs that become the reason of the condition
    """

    verb: str
    reason: str
    problem: str
    running: State
    cause: Callable[[Dataset, DatasetStatus, datetime], str | None]
    job: Callable[[TaskInputs, TaskRun, Mapping[str, Any]], AnyJob]
    absorb: Callable[[DatasetStatus, DatasetState], DatasetStatus]
    record: Callable[[TaskRun, JobResult, datetime], TaskRun] = _as_it_is
    state: type[TaskRun] = TaskRun
    reasons: Collection[str] = ()

    @property
    def field(self) -> str:
        """Field of the status that holds the task run."""
        return TASK_FIELDS[self.verb]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Next step of a task. ``blocker``: the state that it puts the Dataset in, if any."""

    status: DatasetStatus
    actions: tuple[Action, ...] = ()
    again: timedelta | None = None
    blocker: State | None = None


def task_run_of(task_type: TaskType, status: DatasetStatus) -> TaskRun | None:
    """Return the last run of this task."""
    task_run = getattr(status, task_type.field)
    assert task_run is None or isinstance(task_run, TaskRun)
    return task_run


def is_open(task_type: TaskType, status: DatasetStatus) -> bool:
    """Return whether a run of this task was begun and is neither done nor given up."""
    task_run = task_run_of(task_type, status)
    return task_run is not None and not task_run.done and task_run.problem is None


def begun(task_type: TaskType, status: DatasetStatus, cause: str, now: datetime) -> DatasetStatus:
    """Return the status with a new run for this cause; the number of an observed job is never reused."""
    before, due = task_run_of(task_type, status) or task_type.state(), now.replace(microsecond=0)
    return _with(task_type, status, renewed(before, cause=cause, due_time=due))


def is_untried(task_run: TaskRun) -> bool:
    """Return whether a run was begun, but none of its jobs was ever observed."""
    tried = task_run.observed_attempt == task_run.attempt or task_run.failures or task_run.disruptions
    return not task_run.done and not tried


def is_tried(task_type: TaskType, inputs: TaskInputs, status: DatasetStatus) -> bool:
    """Return whether a job of a run exists or existed."""
    task_run = task_run_of(task_type, status)
    if task_run is None or not is_untried(task_run):
        return task_run is not None
    return (
        inputs.context.job(inputs.dataset.namespace, job_name(inputs.prefix(task_type), task_run.attempt)) is not None
    )


def finished(task_type: TaskType, status: DatasetStatus) -> DatasetStatus:
    """Return the status when nothing is left to do: the same cause may occur again."""
    task_run = task_run_of(task_type, status)
    if task_run is None:
        return status
    return _with(task_type, status, task_run.model_copy(update={"cause": "", "done": True, "problem": None}))


def blocker_of(task_type: TaskType, status: DatasetStatus) -> State | None:
    """Return the state of the Dataset after a task was given up, or None."""
    task_run = task_run_of(task_type, status)
    if task_run is None or task_run.problem is None:
        return None
    reason = task_run.problem.removeprefix(f"{task_type.problem}: ").partition(":")[0]
    return stalled(reason if reason in task_type.reasons else task_type.reason, task_run.problem)


def run_task(task_type: TaskType, inputs: TaskInputs, status: DatasetStatus, *, start_jobs: bool) -> TaskResult:
    """Return the next step of an open task run; its job is started only if ``start_jobs``."""
    task_run, dataset, context = task_run_of(task_type, status), inputs.dataset, inputs.context
    assert task_run is not None, "the task is open"

    def launch(attempts: TaskRun) -> LaunchJob | Blocked | None:
        if task_type.cause(dataset, _with(task_type, status, attempts), context.now) is None:
            return None
        if not start_jobs:
            return Blocked(task_type.running)
        return launch_job(_job(task_type, inputs, attempts), dataset, inputs.engine, inputs.store)

    step = run_attempts(
        task_run,
        inputs.prefix(task_type),
        dataset,
        context,
        engine=inputs.engine,
        budget=BUDGET,
        running=task_type.running,
        launch=launch,
        keeps_two=True,
    )
    task_run, present = step.attempts, _with(task_type, status, step.attempts)
    match step.end:
        case None:
            if step.dropped:
                return TaskResult(finished(task_type, present), step.actions)
            return TaskResult(present, step.actions, step.again, _blocker(task_type, step.state))
        case GivenUp(reason, message):
            problem = f"{task_type.problem}: {problem_text(reason, message)}"
            present = _with(task_type, status, task_run.model_copy(update={"problem": problem}))
            return TaskResult(present, step.actions, blocker=blocker_of(task_type, present))
        case result:
            if result.dataset is not None:
                status = task_type.absorb(status, result.dataset)
            task_run = task_type.record(task_run, result, context.now.replace(microsecond=0))
            return TaskResult(_with(task_type, status, task_run.model_copy(update={"done": True})))


def _job(task_type: TaskType, inputs: TaskInputs, task_run: TaskRun) -> AnyJob:
    name = job_name(inputs.prefix(task_type), task_run.attempt)
    basics = job_basics(name, task_run.attempt, inputs.dataset, inputs.store, inputs.dataset, inputs.context.settings)
    return task_type.job(inputs, task_run, basics)


def _blocker(task_type: TaskType, state: State) -> State | None:
    """Return a state that reports a job that only a user can unblock; Commits are not affected."""
    if state.abnormal != "Stalled":
        return None
    return stalled(task_type.reason, f"{task_type.problem}: {problem_text(state.reason, state.message)}")


def _with(task_type: TaskType, status: DatasetStatus, task_run: TaskRun) -> DatasetStatus:
    return status.model_copy(update={task_type.field: task_run})
