"""When a derivative runs: for each change of an input, in batches, or on a schedule; and which inputs it waits for.

Derivatives run in the order of their dependencies, and once for one change. If two inputs follow the same ancestor, and
one has read more of it, the derivative waits for the other one. It never waits for an input that cannot advance on its
own (suspended, scheduled, waiting for more records, given up), and never longer than ``maxWait``.

A run processes everything that is new when it starts. The heads of the inputs at its start are part of its cause. So a
change without rows, such as a block that describes an input, causes no second run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from kubothek.api.conditions import progressing, stalled, waiting
from kubothek.api.dataset import Dataset, DatasetStatus, TaskRun, TransformState
from kubothek.api.jobs import InputRef, JobResult, TransformJob
from kubothek.api.transforms import is_identity
from kubothek.api.values import parse_duration
from kubothek.controller.derivation import Ledgers, behind, identity, new_records, references
from kubothek.controller.references import PATIENCE, Blocked, digest, open_lineage, spark_settings
from kubothek.controller.scheduling.schedule import Slots
from kubothek.controller.status_merge import absorb
from kubothek.controller.tasks.external_engines import engine_ref
from kubothek.controller.tasks.task_runs import TaskInputs, TaskType, is_open

CHANGES: Final = frozenset(
    {
        "EngineFailed",
        "EngineMisbehaved",
        "InputDiverged",
        "InputMissing",
        "RecordMissing",
        "SchemaMismatch",
        "TransformChanged",
        "TransformInvalid",
    }
)
"""Reasons of jobs that conditions use unchanged."""


def input_refs(dataset: Dataset, here: Ledgers) -> tuple[InputRef, ...]:
    """Return the inputs as jobs need them."""
    found = ((reference, here.find(reference)) for reference in references(dataset))
    return tuple(InputRef(reference=name, uuid=other.uuid) for name, other in found if other is not None)


def lacking_inputs(dataset: Dataset, here: Ledgers) -> Blocked | None:
    """Return why the inputs cannot be used, or None."""
    way = here.cycle(dataset)
    if way is not None:
        return Blocked(stalled("Cycle", circle(way)))
    for reference in references(dataset):
        found = _lacking(reference, dataset, here)
        if found is not None:
            return found
    return None


def circle(way: Sequence[str]) -> str:
    """Return the message about a Dataset that would be derived from itself along this path."""
    return f"the Dataset would be derived from itself: {' from '.join(way)}; remove one of these inputs"


def unfit_input(dataset: Dataset, other: Dataset) -> str | None:
    """Return why one Dataset cannot be derived from the other, given both manifests, or None."""
    if other.spec.ledger is None:
        return f"the input {other.name!r} has no ledger: derive from Datasets with spec.ledger"
    if other.spec.store_ref != dataset.spec.store_ref:
        elsewhere = f"in another ObjectStore, {other.spec.store_ref.name!r}"
        return f"the input {other.name!r} is {elsewhere}: a derivative lies in that of its inputs"
    return None


def _lacking(reference: str, dataset: Dataset, here: Ledgers) -> Blocked | None:
    other = here.find(reference)
    if other is None or other.deleting:
        what = f"ledger of identity {reference}" if is_identity(reference) else f"Dataset {reference!r}"
        message = f"there is no valid {what} in namespace {dataset.namespace!r}, which is an input: create it"
        left = (dataset.metadata.creation_timestamp or here.now) + PATIENCE - here.now
        if left > timedelta(0):
            return Blocked(waiting("InputMissing", message), left + timedelta(seconds=1))
        return Blocked(stalled("InputMissing", message))
    why = unfit_input(dataset, other)
    if why is not None:
        return Blocked(stalled("TransformInvalid", why))
    if other.status.deleted:
        message = f"the data of the input {other.name!r} was deleted: restore it, or remove the input"
        return Blocked(waiting("InputMissing", message))
    if identity(other) is None:
        return Blocked(waiting("InputNotReady", f"the input {other.name!r} has no chain yet: its status says why"))
    return None


# --- the cause -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """Cause of a run that is due; without one, the time until there is one, if time alone brings it."""

    cause: str | None = None
    again: timedelta | None = None


def due(dataset: Dataset, status: DatasetStatus, here: Ledgers) -> Due:
    """Return whether a run is due, regardless of inputs that it waits for."""
    ledger, last = dataset.spec.ledger, status.transforming
    if ledger is None or status.ledger is None or ledger.following.suspend:
        return Due()
    inputs = here.inputs(dataset)
    if any(other.status.ledger is None or not other.status.ledger.records for other in inputs):
        return Due()  # no run before each input has had data (DT-05)
    order = digest(ledger.model_dump_json(include={"metadata"}), ledger.following.on_change, dataset.requested_at or "")
    cause = f"{order}-{heads(inputs)}"
    if last is not None and last.cause == cause and (last.done or last.problem is not None):
        return Due()
    if last is None or not last.cause.startswith(order):
        return Due(cause)
    if not behind(status, inputs):
        return Due()
    if ledger.schedule is not None:
        slot = slot_of(dataset, status, here.now)
        return Due(cause if slot != last.slot else None)
    least, left = ledger.following.min_records, left_to_wait(dataset, status, here.now)
    if least == 1 or new_records(status, inputs) >= least or left <= timedelta(0):
        return Due(cause)
    return Due(None, left)


def heads(inputs: list[Dataset]) -> str:
    """Return a digest of the heads of the inputs."""
    chains = (other.status.ledger for other in inputs)
    return digest(*(f"{chain.id} {chain.head}" for chain in chains if chain is not None))


def left_to_wait(dataset: Dataset, status: DatasetStatus, now: datetime) -> timedelta:
    """Return how much longer new data may wait."""
    assert dataset.spec.ledger is not None, "asked only of ledgers"
    last = status.transforming
    since = (last.waiting_since if last is not None else dataset.metadata.creation_timestamp) or now
    return since + parse_duration(dataset.spec.ledger.following.max_wait) - now


def marked(dataset: Dataset, status: DatasetStatus, here: Ledgers) -> DatasetStatus:
    """Return the status with the time since which new data waits, and with the last slot that had no new data."""
    last, now = status.transforming, here.now
    if last is None or is_open(TRANSFORM, status):
        return status
    inputs = here.inputs(dataset)
    new = behind(status, inputs) and not last.cause.endswith(heads(inputs))
    changes: dict[str, Any] = {"waiting_since": (last.waiting_since or now.replace(microsecond=0)) if new else None}
    if not new:
        changes["slot"] = slot_of(dataset, status, now)
    return status.model_copy(update={"transforming": last.model_copy(update=changes)})


def slot_of(dataset: Dataset, status: DatasetStatus, now: datetime) -> datetime | None:
    """Return the newest slot that is due, otherwise the last one that was."""
    ledger = dataset.spec.ledger
    feeding = status.polling if ledger is None or ledger.kind == "Root" else status.transforming
    last = feeding.slot if feeding is not None else None
    return last if ledger is None else Slots.of(dataset, ledger.schedule, last, now).due or last


# --- the order -------------------------------------------------------------------------------------------------------


def awaited_input(dataset: Dataset, status: DatasetStatus, here: Ledgers) -> str | None:
    """Return an input that the run should wait for, or None. It is about to run for the first time, or to reach a state
    of an ancestor that another input reflects already.
    """
    inputs = here.inputs(dataset)
    moved = behind(status, inputs)
    late = (other for other in inputs if references(other) and (_is_new(other) or _lags(other, moved, here)))
    return next((other.name for other in late if on_the_way(other, here)), None)


def _is_new(dataset: Dataset) -> bool:
    chain = dataset.status.ledger
    return chain is None or all(each.block is None for each in chain.inputs)


def _lags(late: Dataset, moved: list[Dataset], here: Ledgers) -> bool:
    """Return whether an input in ``moved`` reflects more of a shared ancestor than ``late`` does."""
    shared = here.ancestors(late)
    return any(
        here.reflects(other, name) > here.reflects(late, name)
        for other in moved
        if other.name != late.name
        for name in (other.name, *here.ancestors(other))
        if name in shared
    )


def on_the_way(dataset: Dataset, here: Ledgers, seen: dict[str, bool] | None = None) -> bool:
    """Return whether a derivative runs or will run by itself, now or after its inputs have run."""
    seen = {} if seen is None else seen
    if dataset.name not in seen:
        seen[dataset.name] = False  # ends the recursion in a cycle
        seen[dataset.name] = _comes(dataset, here, seen)
    return seen[dataset.name]


def _comes(dataset: Dataset, here: Ledgers, seen: dict[str, bool]) -> bool:
    ledger, ready = dataset.spec.ledger, dataset.status.condition("Ready")
    if ledger is None or not references(dataset) or dataset.deleting or dataset.spec.suspend:
        return False
    if lacking_inputs(dataset, here) is not None or dataset.status.holds("Stalled"):
        return False
    if ready is None or is_open(TRANSFORM, dataset.status):
        return True
    if due(dataset, dataset.status, here).cause is not None:
        return True
    if ledger.following.suspend or ledger.schedule is not None or ledger.following.min_records > 1:
        return False
    return any(on_the_way(other, here, seen) for other in here.inputs(dataset))


# --- the job ---------------------------------------------------------------------------------------------------------


def transform_task(here: Ledgers) -> TaskType:
    """Return the task type of transformations, with a cause that takes these ledgers into account."""

    def cause(dataset: Dataset, status: DatasetStatus, _now: datetime) -> str | None:
        ledger, last = dataset.spec.ledger, status.transforming
        if last is None or not is_open(TRANSFORM, status):
            return due(dataset, status, here).cause
        return None if ledger is None or ledger.following.suspend else last.cause

    return replace(TRANSFORM, cause=cause)


def _job(inputs: TaskInputs, _task_run: TaskRun, basics: Mapping[str, Any]) -> TransformJob:
    ledger, settings = inputs.dataset.spec.ledger, inputs.context.settings
    assert ledger is not None, "there is no cause without one"
    return TransformJob(
        **basics,
        inputs=input_refs(inputs.dataset, Ledgers(inputs.context, inputs.dataset.namespace)),
        on_change=ledger.following.on_change,
        lineage=open_lineage(inputs.dataset, settings),
        foreign=engine_ref(inputs.dataset, inputs.engine, settings),
        spark=spark_settings(inputs.engine),
    )


def _ran(task_run: TaskRun, result: JobResult, now: datetime) -> TransformState:
    found = result.transform
    counts = found.model_dump(include={"version", "records"}) if found is not None else {}
    return TransformState.model_validate(task_run.model_dump() | counts | {"time": now})


TRANSFORM: Final = TaskType(
    verb="transform",
    reason="TransformStalled",
    problem="its transformation did not run, and will when an input, spec.ledger or a request changes",
    running=progressing("Transforming", "a job derives what is new in the inputs"),
    cause=lambda dataset, status, now: None,
    job=_job,
    absorb=absorb,
    record=_ran,
    state=TransformState,
    reasons=CHANGES,
)
"""The cause depends on other Datasets: see :func:`transform_task`."""
