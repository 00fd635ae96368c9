"""Compaction: one rewrite of small files, now."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kubothek.api.dataset import TableState
from kubothek.api.maintenance import Thresholds
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Time
from kubothek.api.rules import Immutable
from kubothek.api.runs import EDITABLE
from kubothek.api.sizes import Sizes
from kubothek.api.values import ColumnName, Quantity, Reference

_FIXED = Immutable(f"a Compaction is one run and cannot be edited, but for {EDITABLE}: create another Compaction")


class CompactionSpec(Thresholds):
    """What to rewrite. Immutable, but for `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

    dataset_ref: Annotated[Reference, _FIXED]
    """Immutable. The Dataset whose files are rewritten."""
    target_file_size: Annotated[Quantity | None, _FIXED] = None
    """Immutable. How large files should get; default: table.targetFileSize. Files below half of it are small."""
    min_files: Annotated[int, Field(ge=2, le=100000), _FIXED] = 2
    """Immutable. How many small files a partition, or each bucket of it, must have to be rewritten."""
    min_small_percent: Annotated[int, Field(ge=0, le=100), _FIXED] = 0
    """Immutable. How many percent of the files of a partition, or of a bucket of it, must be small."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16), _FIXED] = ()
    """Immutable. Put the rows of each partition in order by these columns across its files. All files that are not in
    this order yet count in place of small ones. Default, without `zOrderBy`: as spec.maintenance.compaction of the
    Dataset says."""
    z_order_by: Annotated[tuple[ColumnName, ...], Field(max_length=8), _FIXED] = ()
    """Immutable. The same along a curve through all of these columns."""
    where: Annotated[str | None, StringConstraints(min_length=1, max_length=16384), _FIXED] = None
    """Immutable. Which partitions, as a filter on partition columns: `month >= 3`; default: all."""
    dry_run: Annotated[bool, _FIXED] = False
    """Immutable. True: only say what would be rewritten."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine that does it; default: the one of the Dataset."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, in place of those of the Engine."""
    suspend: bool = False
    """May be edited. Start no job. A job that runs goes on."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. How many times the job is tried again when it fails in a way that may pass; default: that of the
    Engine. Raising it revives a Compaction that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. How long after its end the Compaction is deleted, with its pods; default: never. What Argo CD,
    Flux or Helm applied stays, as they would only apply it again."""


class CompactionProgress(Lenient):
    """How far the job is."""

    stage: str
    """Starting, Planning, Rewriting or Committing."""
    tasks_done: int = 0
    """Number of tasks that are finished."""
    tasks_total: int = 0
    """Number of tasks."""


class CompactionStatus(Status, Attempts):
    """How far the compaction is, and what it did, or would do."""

    progress: CompactionProgress | None = None
    """How far the running job is."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """Where the log of its last attempt is, if the operator was told where logs are kept."""
    completion_time: Time | None = None
    """When it was complete."""
    version: int | None = None
    """The version that it made; none if there was nothing to do."""
    partitions: int | None = None
    """Number of partitions that were rewritten."""
    files_before: int | None = None
    """Number of files that were read."""
    files_after: int | None = None
    """Number of files that took their place."""
    bytes_before: int | None = None
    """Size of the files that were read."""
    bytes_after: int | None = None
    """Size of the files that took their place."""
    given_way: int | None = None
    """Number of partitions of which files were left out, as another commit took some of them meanwhile."""
    table: TableState | None = None
    """The table as the job left it."""


class Compaction(Resource):
    """A Compaction makes fewer, larger files of the small ones of a Dataset, once, and changes no row. A Dataset can do
    so by itself: spec.maintenance.
    """

    kind: Literal["Compaction"] = "Compaction"
    spec: CompactionSpec
    status: CompactionStatus = CompactionStatus()

    @property
    def id(self) -> str:
        """What makes it happen once; another Compaction of this name is another change."""
        return f"compaction:{self.namespace}/{self.name}:{self.metadata.uid}"

    @property
    def finished(self) -> bool:
        """Whether nothing will start for this Compaction any more."""
        return self.status.holds("Complete") or self.status.holds("Failed")
