"""Maintenance of a table by its Dataset: healing, tags, indices, skipping metadata and compaction, in this order.

One job runs at a time, and only when no job changes rows or could do so now
(:mod:`kubothek.controller.scheduling.maintenance_priority`). Healing comes first; tags are set before their versions
can expire; files are rewritten last, because their index entries move with them.

A compaction is due when a partition has enough small files. Without a schedule, that is checked for each new version.
With a schedule, it happens once in each window, which begins at a slot and lasts for ``startingDeadline``. The job
itself chooses the files to rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubothek.api.conditions import State, progressing, stalled
from kubothek.api.dataset import CompactionState, Dataset, DatasetStatus, TaskRun
from kubothek.api.jobs import CompactJob, DatasetState, HealJob, JobResult, TagJob
from kubothek.api.maintenance import AutomaticCompaction
from kubothek.api.meta import render_time
from kubothek.api.schedules import Schedule
from kubothek.controller.references import bears_one_writer, clustering_of, digest
from kubothek.controller.scheduling.maintenance_priority import (
    RECHECK_INTERVAL,
    compaction_ahead,
    is_overdue,
    writer_ahead,
)
from kubothek.controller.scheduling.schedule import Slots, fault
from kubothek.controller.status_merge import absorb
from kubothek.controller.tasks.compaction import compact_job
from kubothek.controller.tasks.indexes import INDEX
from kubothek.controller.tasks.skipping import SKIPPING
from kubothek.controller.tasks.task_runs import (
    TaskInputs,
    TaskResult,
    TaskType,
    begun,
    blocker_of,
    finished,
    is_open,
    is_tried,
    is_untried,
    run_task,
    task_run_of,
)
from kubothek.words import count

_UNSUPPORTED_COLUMNS: Final = "SchemaMismatch: Iceberg has no equal"
"""Beginning of the problem of an export that refuses columns; other mismatches of schemas have other remedies."""


def keep_up(inputs: TaskInputs, status: DatasetStatus, *, start: bool) -> TaskResult:
    """Return the next step of the task that is due. None is started unless ``start``."""
    dataset, now = inputs.dataset, inputs.context.now
    start = start and status.version is not None and not status.deleted
    status = _rid_of_what_is_over(dataset, status, now)
    task_type = _turn(inputs, status, start=start)
    if task_type is None:
        return TaskResult(status, again=_next_window(dataset, status, now), blocker=_blocker(dataset, status))
    if not is_open(task_type, status):
        status = begun(task_type, status, task_type.cause(dataset, status, now) or "", now)
    beside = _is_overdue(task_type, inputs, status) and not bears_one_writer(inputs.store)
    free = start and (beside or _ahead(inputs, status) is None)
    result = run_task(task_type, inputs, status, start_jobs=free)
    if not is_open(task_type, result.status):
        following = keep_up(inputs, result.status, start=start)
        return replace(following, actions=(*result.actions, *following.actions))
    again = RECHECK_INTERVAL if result.again is None and start and not free else result.again
    return replace(result, again=again, blocker=result.blocker or _blocker(dataset, result.status))


def _rid_of_what_is_over(dataset: Dataset, status: DatasetStatus, now: datetime) -> DatasetStatus:
    for task_type in TASK_TYPES:
        if not is_open(task_type, status) and task_type.cause(dataset, status, now) is None:
            status = finished(task_type, status)
    return status


def _turn(inputs: TaskInputs, status: DatasetStatus, *, start: bool) -> TaskType | None:
    """Return a task that was already tried; otherwise the first that is open or, if ``start``, has a new cause."""
    for task_type in TASK_TYPES:
        if is_open(task_type, status) and is_tried(task_type, inputs, status):
            return task_type
    for task_type in TASK_TYPES:
        cause, last = task_type.cause(inputs.dataset, status, inputs.context.now), task_run_of(task_type, status)
        is_new = cause is not None and (last is None or last.cause != cause)
        if is_open(task_type, status) or (start and is_new):
            return task_type
    return None


def _is_overdue(task_type: TaskType, inputs: TaskInputs, status: DatasetStatus) -> bool:
    task_run = task_run_of(task_type, status)
    return task_run is not None and is_overdue(task_run.due_time, inputs.context.now)


def _ahead(inputs: TaskInputs, status: DatasetStatus) -> str | None:
    if status.intake is not None and status.intake.source is not None:
        return "a look at a source"
    return writer_ahead(inputs.dataset, inputs.context) or compaction_ahead(inputs.dataset, inputs.context)


def _blocker(dataset: Dataset, status: DatasetStatus) -> State | None:
    """Return the problem of the schedule, that of the first task that was given up, or that of the export."""
    schedule = _schedule(dataset)
    mistake = fault(schedule) if schedule is not None else None
    if mistake is not None:
        return stalled("InvalidSchedule", f"maintenance.compaction.schedule: {mistake}; Commits continue")
    given_up = (blocker for task_type in TASK_TYPES if (blocker := blocker_of(task_type, status)) is not None)
    return next(given_up, None) or _export_stalled(dataset, status)


def _export_stalled(dataset: Dataset, status: DatasetStatus) -> State | None:
    """Return the state of an export that failed, or that lags and is not healed by a job."""
    found, heals = status.iceberg, dataset.spec.maintenance.healing != "Off"
    if found is None or not found.lag or (found.problem is None and heals):
        return None
    problem = found.problem or "maintenance.healing is Off; set it to Auto, or run kubothek heal"
    remedy = "; set export.iceberg.unsupportedColumns to Omit" if problem.startswith(_UNSUPPORTED_COLUMNS) else ""
    behind = f"the Iceberg metadata is {count(found.lag, 'version')} behind"
    return stalled("ExportStalled", f"{behind}: {problem}{remedy}. Commits continue")


# --- healing ---------------------------------------------------------------------------------------------------------


def _ailing(dataset: Dataset, status: DatasetStatus, _now: datetime) -> str | None:
    if dataset.spec.maintenance.healing == "Off" or not status.ailments:
        return None
    return digest(*sorted(status.ailments))


def _healed(status: DatasetStatus, seen: DatasetState) -> DatasetStatus:
    """Return the status after healing. Ailments stay until the next inspection; the same ones are no new cause."""
    return absorb(status, seen, corrupt=seen.corrupt)


def _heal_job(_inputs: TaskInputs, _task_run: TaskRun, basics: Mapping[str, Any]) -> HealJob:
    return HealJob(**basics)


# --- tags ------------------------------------------------------------------------------------------------------------


def _untagged(dataset: Dataset, status: DatasetStatus, _now: datetime) -> str | None:
    wanted = _tags(dataset)
    present = {tag.name: tag.version for tag in status.tags}
    if dataset.spec.tags is None or wanted == present:
        return None
    # A tag for a future version is an error until that version exists.
    early = sorted(name for name, version in wanted.items() if version > (status.version or 0))
    return digest(str(sorted(wanted.items())), str(sorted(present.items())), str(early))


def _tag_job(inputs: TaskInputs, _task_run: TaskRun, basics: Mapping[str, Any]) -> TagJob:
    return TagJob(**basics, tags=_tags(inputs.dataset))


def _tags(dataset: Dataset) -> dict[str, int]:
    return {tag.name: tag.version for tag in dataset.spec.tags or ()}


# --- compaction ------------------------------------------------------------------------------------------------------


def _scattered(dataset: Dataset, status: DatasetStatus, now: datetime) -> str | None:
    """Return the version or slot for which a compaction is due; with a schedule, the last slot until the next one."""
    compaction, health, last = dataset.spec.maintenance.compaction, status.health, status.compaction
    if compaction is None:
        return None
    enough = health is not None and health.worst_partition_small_files >= compaction.min_files
    schedule = _schedule(dataset)
    if schedule is None:
        return f"{health.version}{_order(compaction)}" if health is not None and enough else None
    handled = (last.cause or None) if last is not None and not is_untried(last) else None
    if not enough:
        return handled if last is not None and last.problem is None else None
    slot = _slots(dataset, status, now).due
    return handled if slot is None else render_time(slot)


def _order(compaction: AutomaticCompaction) -> str:
    """Return a digest of the row order, if any: with a new order, the same version is checked again."""
    order = clustering_of(compaction)
    return "" if order is None else f"-{digest(order.model_dump_json())[:8]}"


def _next_window(dataset: Dataset, status: DatasetStatus, now: datetime) -> timedelta | None:
    """Return the time until the next compaction window begins."""
    return _slots(dataset, status, now).wait


def _schedule(dataset: Dataset) -> Schedule | None:
    compaction = dataset.spec.maintenance.compaction
    return None if compaction is None else compaction.schedule


def _slots(dataset: Dataset, status: DatasetStatus, now: datetime) -> Slots:
    """Return the slots of the compaction's schedule after the last one that was used."""
    last, slot = status.compaction, None
    if last is not None and "T" in last.cause:  # a slot, not a version
        slot = datetime.fromisoformat(last.cause).astimezone(UTC)
        slot = slot - timedelta(minutes=1) if is_untried(last) else slot
    return Slots.of(dataset, _schedule(dataset), slot, now)


def _compact_job(inputs: TaskInputs, task_run: TaskRun, basics: Mapping[str, Any]) -> CompactJob:
    dataset = inputs.dataset
    compaction = dataset.spec.maintenance.compaction
    assert compaction is not None, "there is no cause without a compaction"
    commit_id = f"compaction:{dataset.namespace}/{dataset.name}:{task_run.cause}"
    return compact_job(basics, inputs.engine, compaction, commit_id=commit_id)


def _compacted(task_run: TaskRun, result: JobResult, now: datetime) -> CompactionState:
    done = result.compact
    changes: dict[str, object] = {"time": now}
    if done is not None:
        saved = done.bytes_before - done.bytes_after
        counts = done.model_dump(include={"version", "files_before", "files_after"})
        changes |= counts | {"bytes_saved": saved}
    return CompactionState.model_validate(task_run.model_dump() | changes)


TASK_TYPES = (
    TaskType(
        verb="heal",
        reason="HealingStalled",
        problem="missing or outdated indexes and statistics could not be rebuilt",
        running=progressing("Healing", "a job rebuilds missing or outdated indexes and statistics"),
        cause=_ailing,
        job=_heal_job,
        absorb=_healed,
    ),
    TaskType(
        verb="tag",
        reason="TagStalled",
        problem="the tags are not what spec.tags says",
        running=progressing("Tagging", "a job makes the tags what spec.tags says"),
        cause=_untagged,
        job=_tag_job,
        absorb=absorb,
    ),
    INDEX,
    SKIPPING,
    TaskType(
        verb="compact",
        reason="CompactionStalled",
        problem="small files were not rewritten",
        running=progressing("Compacting", "a job rewrites small files"),
        cause=_scattered,
        job=_compact_job,
        absorb=absorb,
        record=_compacted,
        state=CompactionState,
    ),
)
"""In the order in which they run."""
