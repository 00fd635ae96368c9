"""Merge of the newest observed state of a Dataset or Cube, from inspections and runs, into its status."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from kubothek.api import jobs
from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube, CubeState, CubeStatus
from kubothek.api.dataset import TASK_FIELDS, Dataset, DatasetStatus, TableState, TaskRun
from kubothek.api.jobs import DatasetState, JobResult
from kubothek.api.members import SEPARATOR
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.skipping import SkippingStatus
from kubothek.api.sources import Intake
from kubothek.api.sync import Sync
from kubothek.api.values import percent, render_bytes
from kubothek.controller.context import Context
from kubothek.controller.run_index import completed, unfinished
from kubothek.controller.scheduling.attempts import job_name

Run = Commit | Query | Compaction | Sync

_OWN_JOBS: Final = {**TASK_FIELDS, "intake": "intake"}
"""A Dataset's own jobs that report the state of its table: verb, and field of the status."""
AILMENTS = 16
"""Maximum number of ailments in a status."""


def table_state(state: DatasetState) -> TableState:
    """Return the head that a job observed, in the form that statuses keep."""
    return TableState.model_validate(
        {
            "version": state.version,
            "rows": state.totals.rows,
            "files": state.totals.files,
            "bytes": state.totals.bytes,
            "partitions": state.totals.partitions,
            "partition_on": state.partition_on,
            "last_commit_time": state.last_commit_time,
            "etag": state.etag,
            "indices": [index.model_dump() for index in state.indices],
            "skipping": skipping_status(state),
            "dialect": state.dialect,
            "tags": [{"name": name, "version": version} for name, version in sorted(state.tags.items())],
            "health": state.health.model_dump() if state.health is not None else None,
            "ledger": _chain(state.ledger) if state.ledger is not None else None,
            "iceberg": state.iceberg.model_dump() if state.iceberg is not None else None,
            "writers": state.writers,
        }
    )


def _chain(seen: jobs.LedgerState) -> dict[str, Any]:
    """Return the ledger state for a status. Inputs have their SQL aliases as names until their Datasets are known."""
    inputs = [each.model_dump() | {"name": each.alias} for each in seen.inputs]
    return seen.model_dump() | {"inputs": inputs}


def skipping_status(state: DatasetState) -> SkippingStatus | None:
    """Return the skipping metadata that a job observed."""
    found = state.skipping
    if found is None:
        return None
    coverage = percent(found.files, state.totals.files)
    return SkippingStatus.model_validate(found.model_dump() | {"coverage": coverage})


def project(dataset: Dataset, store: ObjectStore, context: Context) -> DatasetStatus:
    """Return the status with the newest observed state.

    An inspection is authoritative for the moment at which it began, even if its version is lower than the known one: a
    bucket may have been replaced. Of the states that runs and the Dataset's own jobs left after that, the highest
    version is the newest.
    """
    status = dataset.status
    for began, seen in _answers(dataset, store, context):
        if _is_news(status, began, seen.digest):
            status = examined(status, seen, inspected_time=began, inspected_digest=seen.digest)
    since = _since(dataset, status.inspected_time)
    left = chain(_left_by_runs(dataset, since, context), _left_by_tasks(dataset, since, context))
    version, table = max(left, key=itemgetter(0), default=(0, None))
    if table is not None and version > (status.version or 0):
        status = with_table(status, table, problem=None, deleted=False)
    return status.model_copy(update={"uuid": dataset.uuid, "size": render_bytes(status.bytes)})


def absorb(status: DatasetStatus, seen: DatasetState, **changes: Any) -> DatasetStatus:
    """Return the status with the state that a job observed in place of the previous one."""
    return with_table(status, table_state(seen), problem=seen.problem, deleted=seen.deleted, **changes)


def examined(status: DatasetStatus, seen: DatasetState, **changes: Any) -> DatasetStatus:
    """Return the status with the result of an inspection or a healing: only those look for missing and lost objects."""
    return absorb(status, seen, ailments=seen.ailments[:AILMENTS], corrupt=seen.corrupt, **changes)


def with_table(status: DatasetStatus, table: TableState, **changes: Any) -> DatasetStatus:
    """Return the status with another table. Without a digest, any result of the next inspection counts as new."""
    fields = {name: getattr(table, name) for name in TableState.model_fields}
    known = {"size": render_bytes(table.bytes), "inspected_digest": None}
    return status.model_copy(update=fields | known | changes)


def _answers(dataset: Dataset, store: ObjectStore, context: Context) -> Iterator[tuple[datetime, DatasetState]]:
    """Yield what the last two inspections reported of the dataset, older first, with their start times."""
    for began, result in _inspections(dataset, store, context):
        for state in result.datasets:
            if state.uuid == dataset.uuid:
                yield began, state


def _inspections(asker: Dataset | Cube, store: ObjectStore, context: Context) -> Iterator[tuple[datetime, JobResult]]:
    """Yield the last two inspections that knew of the resource, older first, with their start times."""
    inspection = store.status.last_inspection
    if inspection is None:
        return
    begins = (
        (inspection.attempt - 1, inspection.previous_started),
        (inspection.attempt, inspection.started),
    )
    for number, began in begins:
        view = context.job(asker.namespace, job_name(f"{store.name}-inspect", number)) if began else None
        if began is None or view is None or view.result is None or view.owner_uid not in ("", store.metadata.uid):
            continue
        if _asked_for(asker, began):
            yield began, view.result


def _is_news(status: DatasetStatus | CubeStatus, began: datetime, digest: str) -> bool:
    """Return whether an inspection that began at ``began`` is newer than the status and has another digest."""
    return digest != status.inspected_digest and (status.inspected_time is None or began > status.inspected_time)


def _asked_for(asker: Dataset | Cube, began: datetime) -> bool:
    """Return whether an inspection that began at ``began`` covered this resource, not an earlier one of its uuid."""
    created = asker.metadata.creation_timestamp
    return created is None or created.replace(microsecond=0) <= began


def _left_by_runs(dataset: Dataset, since: datetime | None, context: Context) -> Iterator[tuple[int, TableState]]:
    """Yield version and state in which each run left the Dataset since then."""
    for run in _runs(dataset, since, context):
        table, ended = _left(run, dataset), _ended(run)
        if table is not None and table.version is not None and _is_since(since, ended):
            yield table.version, table


def _left_by_tasks(dataset: Dataset, since: datetime | None, context: Context) -> Iterator[tuple[int, TableState]]:
    """Yield version and state in which each of the Dataset's own jobs left it since then."""
    for verb, field in _OWN_JOBS.items():
        task_run: TaskRun | Intake | None = getattr(dataset.status, field)
        view = (
            context.job(dataset.namespace, job_name(f"{dataset.name}-{verb}", task_run.attempt)) if task_run else None
        )
        if view is None or view.result is None or view.owner_uid not in ("", dataset.metadata.uid):
            continue
        seen = view.result.dataset
        if seen is not None and seen.version is not None and _is_since(since, view.since):
            yield seen.version, table_state(seen)


def _is_since(since: datetime | None, ended: datetime | None) -> bool:
    return ended is not None and (since is None or ended >= since)


def _runs(dataset: Dataset, since: datetime | None, context: Context) -> Iterator[Run]:
    """Yield the runs that may have changed the dataset since then."""
    namespace, subject = dataset.namespace, ("Dataset", dataset.name)
    yield from completed(Commit, namespace, subject, since, context)
    if dataset.cube is not None:
        yield from completed(Commit, namespace, ("Cube", dataset.cube), since, context)
    yield from completed(Query, namespace, subject, since, context)
    yield from unfinished(Query, namespace, subject, context)  # standing ones
    yield from completed(Compaction, namespace, subject, since, context)
    yield from context.list(Sync, namespace)


def _left(run: Run, dataset: Dataset) -> TableState | None:
    """Return the state in which a run left the Dataset, if the run changed it."""
    if isinstance(run, Commit) and run.subject.kind == "Cube":
        if run.subject.name != dataset.cube:
            return None
        ours = (member for member in run.status.members if dataset.uuid.endswith(f"{SEPARATOR}{member.name}"))
        return next((member.table for member in ours), None)
    reference = run.spec.result.dataset_ref if isinstance(run, Query) else run.spec.dataset_ref
    return run.status.table if reference is not None and reference.name == dataset.name else None


def _ended(run: Run) -> datetime | None:
    return run.status.last_sync_time if isinstance(run, Sync) else run.status.completion_time


def _since(resource: Dataset | Cube, inspected: datetime | None) -> datetime | None:
    """Return the later of the last inspection and the creation of the resource: a run that ends after it is news."""
    created = resource.metadata.creation_timestamp
    since = max((moment for moment in (inspected, created) if moment is not None), default=None)
    return None if since is None else since.replace(microsecond=0)


# --- cubes -----------------------------------------------------------------------------------------------------------


def cube_state(state: jobs.CubeState) -> CubeState:
    """Return the cube that a job observed, in the form that statuses keep."""
    there = state.version is not None
    return CubeState.model_validate(
        {
            "version": state.version,
            "last_commit_time": state.last_commit_time,
            "shape": {
                "seed": state.seed,
                "dimension_columns": state.dimension_columns,
                "partition_columns": state.partition_columns,
                "index_columns": state.index_columns,
                "datasets": state.members,
            }
            if there
            else None,
        }
    )


def project_cube(cube: Cube, store: ObjectStore, context: Context) -> CubeStatus:
    """Return the status with the newest observed state of the cube; as :func:`project` for a Dataset."""
    status = cube.status
    for began, result in _inspections(cube, store, context):
        seen = next((state for state in result.cubes if state.prefix == cube.prefix), None)
        if seen is not None and _is_news(status, began, seen.digest):
            changes = {"problem": seen.problem, "inspected_time": began, "inspected_digest": seen.digest}
            status = _with_cube(status, cube_state(seen), **changes)
    best: CubeState | None = None
    since = _since(cube, status.inspected_time)
    for commit in completed(Commit, cube.namespace, ("Cube", cube.name), since, context):
        left = commit.status.cube
        newest = best.version if best is not None else status.version
        if left is not None and (left.version or 0) > (newest or 0):
            best = left
    if best is not None:
        status = _with_cube(status, best, problem=None)
    return status.model_copy(update={"uuid_prefix": cube.prefix})


def _with_cube(status: CubeStatus, state: CubeState, **changes: Any) -> CubeStatus:
    fields = {name: getattr(state, name) for name in CubeState.model_fields}
    return status.model_copy(update=fields | {"inspected_digest": None} | changes)
