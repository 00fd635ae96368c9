"""Compaction: one rewrite of small files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kubothek.api.dataset import TableState
from kubothek.api.maintenance import Thresholds
from kubothek.api.meta import Attempts, Lenient, Status, Time
from kubothek.api.rules import Immutable
from kubothek.api.runs import EDITABLE, RunResource
from kubothek.api.sizes import Sizes
from kubothek.api.values import ColumnName, Quantity, Reference

_FIXED = Immutable(f"a Compaction is one run and cannot be edited, but for {EDITABLE}: create another Compaction")


class CompactionSpec(Thresholds):
    """What to rewrite. Immutable, except `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

    dataset_ref: Annotated[Reference, _FIXED]
    """Immutable. The Dataset whose files are rewritten."""
    target_file_size: Annotated[Quantity | None, _FIXED] = None
    """Immutable. Target size of files; default: table.targetFileSize. Files below half of it are small."""
    min_files: Annotated[int, Field(ge=2, le=100000), _FIXED] = 2
    """Immutable. Minimum number of small files in a partition, or in each bucket of it, for a rewrite."""
    min_small_percent: Annotated[int, Field(ge=0, le=100), _FIXED] = 0
    """Immutable. Minimum percentage of small files in a partition, or in a bucket of it, for a rewrite."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16), _FIXED] = ()
    """Immutable. Sort the rows of each partition by these columns across its files. Files that are not in this order
    yet count instead of small ones. Default, without `zOrderBy`: that of spec.maintenance.compaction of the Dataset."""
    z_order_by: Annotated[tuple[ColumnName, ...], Field(max_length=8), _FIXED] = ()
    """Immutable. The same along a space-filling curve through all of these columns."""
    where: Annotated[str | None, StringConstraints(min_length=1, max_length=16384), _FIXED] = None
    """Immutable. The partitions to rewrite, as a filter on partition columns: `month >= 3`; default: all."""
    dry_run: Annotated[bool, _FIXED] = False
    """Immutable. True: only report what would be rewritten."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine for the job; default: that of the Dataset."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, which override those of the Engine."""
    suspend: bool = False
    """May be edited. True: start no job; a running job continues."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. Maximum number of retries after retryable failures; default: that of the Engine. Raising it
    revives a Compaction that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. Seconds after its end until the Compaction and its pods are deleted; default: never. Compactions
    that Argo CD, Flux or Helm applied stay, as these tools would re-apply them."""


class CompactionProgress(Lenient):
    """Progress of the job."""

    stage: str
    """Starting, Planning, Rewriting or Committing."""
    tasks_done: int = 0
    """Number of finished tasks."""
    tasks_total: int = 0
    """Number of tasks."""


class CompactionStatus(Status, Attempts):
    """The progress of the compaction, and what it did, or would do."""

    progress: CompactionProgress | None = None
    """Progress of the running job."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """URL of the log of the last attempt, if the operator has a URL template for logs."""
    completion_time: Time | None = None
    """When it was complete."""
    version: int | None = None
    """The version that it created; none if there was nothing to do."""
    partitions: int | None = None
    """Number of partitions that were rewritten."""
    files_before: int | None = None
    """Number of files that were read."""
    files_after: int | None = None
    """Number of files that replaced them."""
    bytes_before: int | None = None
    """Size of the files that were read."""
    bytes_after: int | None = None
    """Size of the files that replaced them."""
    given_way: int | None = None
    """Number of partitions with files that were skipped, as concurrent commits changed them."""
    table: TableState | None = None
    """The table as the job left it."""


class Compaction(RunResource):
    """A Compaction rewrites the small files of a Dataset as fewer larger ones, once, and changes no row. For automatic
    compactions see spec.maintenance of the Dataset.
    """

    kind: Literal["Compaction"] = "Compaction"
    spec: CompactionSpec
    status: CompactionStatus = CompactionStatus()

    @property
    def id(self) -> str:
        """The idempotency key of the compaction; a re-created Compaction of this name is another change."""
        return f"compaction:{self.namespace}/{self.name}:{self.metadata.uid}"
