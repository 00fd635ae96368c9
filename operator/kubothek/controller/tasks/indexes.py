"""Secondary indices: a job runs when the table's indices differ from the manifest, or need repair.

Commits keep existing indices up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubothek.api.conditions import progressing
from kubothek.api.dataset import Dataset, DatasetStatus, TaskRun
from kubothek.api.jobs import IndexJob
from kubothek.controller.references import digest
from kubothek.controller.status_merge import absorb
from kubothek.controller.tasks.task_runs import TaskInputs, TaskType


def difference(dataset: Dataset, status: DatasetStatus, _now: datetime) -> str | None:
    """Return a digest of the work that a job has to do on the table's indices; None if there is none."""
    table = dataset.spec.table
    present = {index.column: index.kind for index in status.indices}
    wanted = present if table.indices is None else {index.column: index.kind for index in table.indices}
    unwell = sorted(f"{index.column}:{index.state}" for index in status.indices if index.state in ("Partial", "Stale"))
    dialect = table.dialect or status.dialect
    if wanted == present and dialect == status.dialect and not unwell:
        return None
    version = str(status.version) if unwell else ""
    return digest(str(sorted(wanted.items())), str(sorted(present.items())), dialect, status.dialect, version)


def _job(_inputs: TaskInputs, _task_run: TaskRun, common: Mapping[str, Any]) -> IndexJob:
    return IndexJob(**common)


INDEX = TaskType(
    verb="index",
    reason="IndexStalled",
    problem="the indices are not what spec.table says",
    running=progressing("Indexing", "a job makes the secondary indices what spec.table says"),
    cause=difference,
    job=_job,
    absorb=absorb,
)
