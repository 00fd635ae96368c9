"""Inspection of a store with its Cubes and Datasets; it completes what a crash or another program left half done."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from kubothek.api.jobs import CubeRef, CubeState, DatasetRef, DatasetState, InspectJob, JobResult, StoreState
from kubothek.api.members import head_uuid
from kubothek.errors import LakeError, StoreError
from kubothek.jobs import outcome, translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import cube_state, examined
from kubothek.jobs.writers import admit_writers
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, owner_of
from kubothek.table.maintenance import settle

_AT_ONCE: Final = 8
_BATCH: Final = 16
_TEXT_LIMIT: Final = 512
_BY: Final = "inspection"


def run(job: InspectJob, store: Store, reporter: Reporter) -> JobResult:
    """Probe the store, then inspect the Cubes, and then the Datasets in the order of their uuids.

    The result leaves out states that the operator knows already. The job stops when the result is full: ``truncated``
    makes the operator inspect the rest. Raises StoreError when the store itself is the problem.
    """
    reporter.report("Starting")
    found = store.probe()
    result = JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=f"{store.url} can be used",
        store=StoreState(conditional_writes=found.conditional_writes, clock_skew_seconds=found.clock_skew),
    )
    for cube in sorted(job.cubes, key=lambda cube: cube.prefix):
        state = _inspect_cube(cube, store, conditional_writes=found.conditional_writes)
        if job.known.get(head_uuid(cube.prefix)) == state.digest:
            continue
        result = result.model_copy(update={"cubes": (*result.cubes, state)})
        if _is_full(result):
            return result
    waiting, inspected_count = iter(sorted(job.datasets, key=lambda dataset: dataset.uuid)), 0
    while batch := list(islice(waiting, _BATCH)):
        states = inspected(batch, store, conditional_writes=found.conditional_writes)
        news = (state for state in states if job.known.get(state.uuid) != state.digest)
        result = result.model_copy(update={"datasets": (*result.datasets, *news)})
        inspected_count += len(batch)
        reporter.report("Reading", inspected_count, len(job.datasets))
        if _is_full(result):
            break
    return result


def _is_full(result: JobResult) -> bool:
    """Return whether the result has no room for more states."""
    return JobResult.model_validate_json(outcome.render(result)).truncated


def _inspect_cube(cube: CubeRef, store: Store, *, conditional_writes: bool) -> CubeState:
    """Settle the cube if this Cube's Datasets own all its datasets; return its state."""
    log = translate.cube_log(store, cube, by=_BY, conditional_writes=conditional_writes)
    seen = cube_state(log, cube)
    owners = {member.name: member.dataset.claim.owner for member in cube.members}
    uuids = {member.name: member.dataset.uuid for member in cube.members}
    ours = all(name in uuids and owner_of(store, uuids[name]) == owners[name] for name in seen.members)
    if not seen.version or not ours:
        return seen
    try:
        log.settle()
        seen = cube_state(log, cube)
    except StoreError:
        raise
    except LakeError as error:
        seen = seen.model_copy(update={"problem": f"{error.reason}: {error}"})
    return (
        seen
        if seen.problem is None
        else seen.model_copy(update={"problem": outcome.shortened(seen.problem, _TEXT_LIMIT)})
    )


def inspected(
    batch: Sequence[DatasetRef], store: Store, *, conditional_writes: bool, writes: bool = True
) -> list[DatasetState]:
    """Return the states of datasets, in this order. Without ``writes`` nothing is settled or stored."""

    def inspect_one(dataset: DatasetRef) -> DatasetState:
        log = translate.dataset_log(store, dataset, conditional_writes=conditional_writes)
        return _state(store, log, dataset, writes=writes, admits=writes and conditional_writes)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="inspect") as pool:
        return list(pool.map(inspect_one, batch))


def _state(store: Store, log: DatasetLog, dataset: DatasetRef, *, writes: bool, admits: bool) -> DatasetState:
    """Settle the dataset and return its state; a dataset with another owner is only read.

    ``admits``  set what the Dataset permits other writers, who need conditional writes
    """
    seen = translate.dataset_state(log.inspect())
    if seen.problem is not None or seen.deleted or (seen.version is None and not (admits and dataset.writers)):
        return _short(seen)
    try:
        if writes and seen.version is not None:
            settle(log)
        if admits and (dataset.writers or seen.writers):
            admit_writers(store, log, dataset)
        return _short(examined(store, log, dataset, keeps=writes))
    except StoreError:
        raise
    except LakeError as error:
        return _short(seen.model_copy(update={"problem": f"{error.reason}: {error}"}))


def _short(state: DatasetState) -> DatasetState:
    """Shorten the texts of a state, to leave room for other datasets."""
    texts = {"problem": state.problem, "corrupt": state.corrupt}
    return state.model_copy(
        update={name: outcome.shortened(text, _TEXT_LIMIT) for name, text in texts.items() if text is not None}
    )
