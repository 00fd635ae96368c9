"""Skipping metadata of a table: a job runs when it differs from the manifest. Also its measured effect on queries.

Commits keep the metadata up to date. ``auto`` chooses indices by the data and by the filters of recent queries. It
chooses again when these filters change, or when the table has grown fourfold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubothek.api.conditions import progressing
from kubothek.api.dataset import Dataset, DatasetStatus, TaskRun
from kubothek.api.jobs import FilterSeen, SkipJob, SkippingSpec
from kubothek.api.observed import QueryRead
from kubothek.api.query import Query
from kubothek.api.skipping import RECENT_QUERIES, QueryUse, SkippingAchieved, SkippingStatus
from kubothek.api.values import percent
from kubothek.controller.context import Context
from kubothek.controller.references import digest, skipping_of, spark_settings
from kubothek.controller.status_merge import absorb
from kubothek.controller.tasks.task_runs import TaskInputs, TaskType

LEAST_QUERIES = 3
"""Minimum number of recent queries that filter a column in one way before ``auto`` creates an index for it."""
_GROWTH = 4


def difference(dataset: Dataset, status: DatasetStatus, _now: datetime) -> str | None:
    """Return a digest of the work that a job has to do on the metadata; None if there is none."""
    wanted = skipping_of(dataset.spec.table.skipping)
    if wanted is None or status.version is None:
        return None
    present = status.skipping or SkippingStatus()
    found = {index.model_dump_json() for index in present.indices}
    asked = {index.model_dump_json() for index in wanted.indices}
    keyed = _keys(wanted) == (present.footer_key, present.plaintext_footer)
    fits = keyed and (asked <= found if wanted.auto else asked == found)
    missing = "" if fits else digest(str(sorted(found)), str(present.footer_key), str(present.plaintext_footer))
    if not wanted.auto:
        return None if fits else digest(wanted.model_dump_json(), missing)
    choice = digest(wanted.model_dump_json(), str(_size_class(status.rows)), *_often(dataset, status))
    last = status.describing
    if fits and last is not None and last.done and last.cause.partition("-")[0] == choice:
        return last.cause  # already done
    return f"{choice}-{missing}"


def _keys(wanted: SkippingSpec) -> tuple[str | None, bool]:
    """Return the encryption settings of files: without an encrypted index, there is no encryption."""
    encrypted = any(index.key is not None for index in wanted.indices)
    return (wanted.footer_key, wanted.plaintext_footer) if encrypted else (None, False)


def _size_class(rows: int) -> int:
    size = 0
    while rows >= _GROWTH:
        rows, size = rows // _GROWTH, size + 1
    return size


def _often(dataset: Dataset, status: DatasetStatus) -> tuple[str, ...]:
    return tuple(f"{seen.column}:{seen.kind}" for seen in filters_seen(dataset, status))


def filters_seen(dataset: Dataset, status: DatasetStatus) -> tuple[FilterSeen, ...]:
    """Return the filters that enough of the recent queries used."""
    recent = status.skipping_achieved.recent if status.skipping_achieved is not None else ()
    by_partition = set(dataset.spec.table.partition_on)
    counts = Counter(text for use in recent for text in set(use.filters))
    return tuple(
        FilterSeen(column=column, kind=kind, queries=count)
        for text, count in sorted(counts.items())
        for column, _, kind in (text.rpartition(":"),)
        if count >= LEAST_QUERIES and column not in by_partition
    )


def with_uses(dataset: Dataset, status: DatasetStatus, context: Context) -> DatasetStatus:
    """Return the status with the effect of the metadata on the newest Queries.

    Deleted Queries stay until newer ones replace them. Each Query counts once, however often this function runs.
    """
    if dataset.spec.table.skipping is None and status.skipping is None:
        return status
    before = status.skipping_achieved or SkippingAchieved()
    uses = {(use.query, use.time): use for use in before.recent}
    for query in context.list(Query, dataset.namespace):
        ended = query.status.completion_time
        if ended is None or query.spec.store_ref != dataset.spec.store_ref:
            continue
        reads = [read for read in query.status.reads if read.dataset == dataset.uuid]
        if reads:
            use = _use(query.name, ended, reads)
            uses[use.query, use.time] = use
    recent = sorted(uses.values(), key=lambda use: (use.time, use.query), reverse=True)[:RECENT_QUERIES]
    asked = [use for use in recent if use.considered]
    considered, skipped = sum(use.considered for use in asked), sum(use.skipped for use in asked)
    achieved = SkippingAchieved(
        queries=len(asked),
        considered=considered,
        skipped=skipped,
        share=percent(skipped, considered),
        recent=tuple(recent),
    )
    return status.model_copy(update={"skipping_achieved": achieved})


def _use(name: str, ended: datetime, reads: list[QueryRead]) -> QueryUse:
    filters = dict.fromkeys(text for read in reads for text in read.filters)
    return QueryUse(
        query=name,
        time=ended,
        considered=sum(read.considered for read in reads),
        skipped=sum(read.skipped for read in reads),
        filters=tuple(filters)[:8],
    )


def _job(inputs: TaskInputs, _task_run: TaskRun, common: Mapping[str, Any]) -> SkipJob:
    status = with_uses(inputs.dataset, inputs.dataset.status, inputs.context)
    return SkipJob(**common, seen=filters_seen(inputs.dataset, status), spark=spark_settings(inputs.engine))


SKIPPING = TaskType(
    verb="skip",
    reason="SkippingStalled",
    problem="the skipping metadata is not what spec.table says",
    running=progressing("Describing", "a job makes the skipping metadata what spec.table says"),
    cause=difference,
    job=_job,
    absorb=absorb,
)
