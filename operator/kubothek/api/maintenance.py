"""``spec.maintenance`` of a Dataset."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.schedules import Schedule
from kubothek.api.values import ColumnName, Quantity, distinct


class Thresholds(Strict):
    """When a compaction rewrites files, and in which sort order."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.sortBy) || self.sortBy.size() == 0 || !has(self.zOrderBy) || self.zOrderBy.size() == 0",
            message="sortBy and zOrderBy exclude each other, as rows have one order: remove one",
            holds=lambda self: not (self.sort_by and self.z_order_by),
        ),
        distinct("sortBy", "sort_by"),
        distinct("zOrderBy", "z_order_by"),
    )

    target_file_size: Quantity | None = None
    """Target size of files; default: table.targetFileSize. Files below half of it are small."""
    min_files: Annotated[int, Field(ge=2, le=100000)] = 8
    """Minimum number of small files in a partition, or in each bucket of it, for a rewrite."""
    min_small_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Minimum percentage of small files in a partition, or in a bucket of it, for a rewrite."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Sort the rows of each partition by these columns across its files, so that a filter on the first one opens few of
    them. Files that are not in this order yet count instead of small ones. Without it, and without `zOrderBy`, rows are
    sorted by table.sortBy inside each file only."""
    z_order_by: Annotated[tuple[ColumnName, ...], Field(max_length=8)] = ()
    """The same along a space-filling curve through all of these columns, so that a filter on any of them opens few
    files."""


class AutomaticCompaction(Thresholds):
    """Automatic compaction of small files."""

    schedule: Schedule | None = None
    """Compact once in each window, from a slot until its startingDeadline, if a partition has enough small files;
    default: after each commit that leaves a partition with enough."""


class Maintenance(Strict):
    """Automatic maintenance of a table. It yields to Commits."""

    compaction: AutomaticCompaction | None = None
    """Takes effect at once. Automatic compaction of small files; default: none."""
    healing: Literal["Auto", "Off"] = "Auto"
    """Takes effect at the next inspection. Auto: rebuild derived objects, such as index files, that are missing or out
    of date. Lost data files are reported in both cases."""
