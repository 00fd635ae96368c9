"""What a Dataset says about its own upkeep, and what is known of it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Lenient, Strict
from kubothek.api.rules import Rule
from kubothek.api.schedules import Schedule
from kubothek.api.values import ColumnName, Quantity


def _distinct(field: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(name, self.{field}.exists_one(other, other == name))",
        message=f"{field} names a column twice: remove one",
        holds=lambda self: len(set(names := getattr(self, attribute))) == len(names),
    )


class Thresholds(Strict):
    """Which files are worth rewriting, and in which order."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.sortBy) || self.sortBy.size() == 0 || !has(self.zOrderBy) || self.zOrderBy.size() == 0",
            message="sortBy and zOrderBy exclude each other, as rows have one order: remove one",
            holds=lambda self: not (self.sort_by and self.z_order_by),
        ),
        _distinct("sortBy", "sort_by"),
        _distinct("zOrderBy", "z_order_by"),
    )

    target_file_size: Quantity | None = None
    """How large files should get; default: table.targetFileSize. Files below half of it are small."""
    min_files: Annotated[int, Field(ge=2, le=100000)] = 8
    """How many small files a partition, or each bucket of it, must have to be rewritten."""
    min_small_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """How many percent of the files of a partition, or of a bucket of it, must be small."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Put the rows of each partition in order by these columns across its files, so that a filter on the first one
    opens few of them. All files that are not in this order yet count in place of small ones. Without it, and without
    `zOrderBy`, rows are in order by table.sortBy inside each file only."""
    z_order_by: Annotated[tuple[ColumnName, ...], Field(max_length=8)] = ()
    """The same along a curve through all of these columns, so that a filter on any of them opens few files."""


class CompactionWish(Thresholds):
    """When small files become large ones."""

    schedule: Schedule | None = None
    """Once in each window, which begins at a slot and lasts as long as its startingDeadline says, if a partition has
    enough small files; default: after each commit that leaves one with enough."""


class Maintenance(Strict):
    """What the operator does for a table by itself. It gives way to Commits."""

    compaction: CompactionWish | None = None
    """Takes effect at once. Small files become large ones; left out: they stay."""
    healing: Literal["Auto", "Off"] = "Auto"
    """Takes effect at the next inspection. Auto: what can be derived from the data, such as an index file, is made anew
    when it is missing or lags. Lost data files are reported either way."""


class Bin(Lenient):
    """A step of a histogram of file sizes."""

    below: int | None = None
    """Files below so many bytes, and not in the step before; the last step has no limit."""
    files: int = 0
    """How many there are."""


class Health(Lenient):
    """How a table is, worked out from commit records at one version."""

    version: int = 0
    """The version."""
    small_files: int = 0
    """Files of less than half of the size that files should have."""
    small_percent: int = 0
    """Their share of all files."""
    worst_partition_small_files: int = 0
    """The most small files that one partition, or one bucket of it, has; of files that are not in order yet, if
    spec.maintenance.compaction has sortBy or zOrderBy."""
    sizes: Annotated[tuple[Bin, ...], Field(max_length=8)] = ()
    """How large files are; steps without files are left out."""
    versions: int = 0
    """Versions that can be read."""
    history_files: int = 0
    """Files that only older versions need."""
    history_bytes: int = 0
    """Their size: what a GCPolicy could free by letting versions expire."""
    garbage_files: int = 0
    """Files that no version needs, such as those of commits that died or were overtaken: estimated by inspections from
    commit records. A GCPolicy deletes those that are older than the grace period."""
    garbage_bytes: int = 0
    """Their size."""
