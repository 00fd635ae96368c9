"""Changes of a cube by a Commit, and queries of one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.files import Path, Source
from kubothek.api.members import PartName
from kubothek.api.meta import Strict
from kubothek.api.rules import Rule, UniqueBy
from kubothek.api.values import ColumnName, Reference

CubeOperation = Literal["Build", "Extend", "Append", "Update", "RemovePartitions", "Delete", "Copy", "Index", "Cleanup"]

_WITH_ROWS = ("Build", "Extend", "Append", "Update")
_OF_SOME = ("RemovePartitions", "Delete", "Copy", "Index", "Cleanup")
_Filter = Annotated[str, StringConstraints(min_length=1, max_length=16384)]
_Parts = Annotated[tuple[PartName, ...], Field(min_length=1, max_length=32)]
_Columns = Annotated[tuple[ColumnName, ...], Field(max_length=64)]


def _requires(field: str, attribute: str, operations: tuple[str, ...], *, absent: str = "!has(self.{})") -> Rule:
    listed = ", ".join(f"'{operation}'" for operation in operations)
    return Rule(
        cel=f"{absent.format(field)} || self.operation in [{listed}]",
        message=f"cube.{field} goes with {' and '.join(operations)}: remove it, or correct the operation",
        holds=lambda self: not getattr(self, attribute) or self.operation in operations,
    )


class MemberSource(Source):
    """Where the rows of a dataset of a cube come from: exactly one of `paths` and `urls`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Source.rules,
        Rule(
            cel="!has(self.sql)",
            message="changes of a cube read files: let a Query write the rows to a file, and name that in source.paths",
            holds=lambda self: self.sql is None,
        ),
    )

    # The API server estimates the cost of rules by the maximum, over all datasets together.
    paths: Annotated[tuple[Path, ...] | None, Field(min_length=1, max_length=40)] = None
    """Files, relative to the url of the store."""


class CubeRows(Strict):
    """The new rows of one dataset of a cube."""

    name: PartName
    """The dataset, by its name in the cube."""
    source: MemberSource
    """Where the rows come from; without a `storeRef` from the ObjectStore of the Cube."""


class CubeCopy(Strict):
    """The target of a copy of a cube."""

    store_ref: Reference | None = None
    """The ObjectStore; default: that of the Cube, where the copy needs another prefix."""
    uuid_prefix: PartName | None = None
    """The prefix of the copy; default: the same."""
    rename: Annotated[dict[str, PartName] | None, Field(max_length=32)] = None
    """New names of datasets by the old ones."""
    overwrite: bool = False
    """True: replace an existing cube."""


class CubeChange(Strict):
    """One change of a cube, atomic over its datasets."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operation in ['Build', 'Extend', 'Append', 'Update']) == "
            "(has(self.datasets) && self.datasets.size() > 0)",
            message="Build, Extend, Append and Update require cube.datasets with a source each; other operations do "
            "not accept it",
            holds=lambda self: (self.operation in _WITH_ROWS) == bool(self.datasets),
        ),
        Rule(
            cel="(self.operation in ['Update', 'RemovePartitions']) == has(self.where)",
            message="Update and RemovePartitions require cube.where, a filter of the partitions to remove, TRUE for "
            "all; other operations do not accept it",
            holds=lambda self: (self.operation in ("Update", "RemovePartitions")) == (self.where is not None),
        ),
        Rule(
            cel="(self.operation == 'Copy') == has(self.to)",
            message="Copy requires cube.to; other operations do not accept it",
            holds=lambda self: (self.operation == "Copy") == (self.to is not None),
        ),
        Rule(
            cel="!has(self.to) || has(self.to.storeRef) || has(self.to.uuidPrefix)",
            message="cube.to names neither another storeRef nor another uuidPrefix: a copy needs a place of its own",
            holds=lambda self: self.to is None or bool(self.to.store_ref or self.to.uuid_prefix),
        ),
        Rule(
            cel="(self.operation == 'Index') == (has(self.columns) && self.columns.size() > 0)",
            message="Index requires cube.columns; other operations do not accept it",
            holds=lambda self: (self.operation == "Index") == bool(self.columns),
        ),
        _requires("members", "members", _OF_SOME),
        _requires("overwrite", "overwrite", ("Build", "Extend"), absent="!self.{}"),
        _requires("dryRun", "dry_run", ("Cleanup",), absent="!self.{}"),
    )

    cube_ref: Reference
    """The Cube to change."""
    operation: CubeOperation
    """What to do. Build: create the seed and other datasets. Extend: add datasets. Append: add rows, which in queries
    replace existing cells. Update: remove partitions and add rows. RemovePartitions: remove whole partitions. Delete:
    delete some datasets, or all. Copy: copy the cube. Index: add indices. Cleanup: delete objects under the prefix that
    no version needs."""
    datasets: Annotated[tuple[CubeRows, ...], Field(max_length=32), UniqueBy("name")] = ()
    """For Build, Extend, Append and Update: the rows of each dataset."""
    members: _Parts | None = None
    """For the other operations: the datasets to change; default: all."""
    where: _Filter | None = None
    """For Update and RemovePartitions: the partitions to remove, as a filter on partition columns of the cube:
    `month = 3`. Columns that a dataset lacks do not count for it; a dataset without any is emptied. `TRUE` is all."""
    columns: _Columns = ()
    """For Index: the columns that get an index, in any dataset."""
    to: CubeCopy | None = None
    """For Copy: the target."""
    overwrite: bool = False
    """For Build and Extend. True: replace existing datasets."""
    dry_run: bool = False
    """For Cleanup. True: only report what would be deleted."""


class CubeQuestion(Strict):
    """A query of cells of a cube, with columns from all of its datasets."""

    uuid_prefix: PartName
    """The prefix of the cube in the store; any program may have created it."""
    conditions: _Filter | None = None
    """A filter of the rows, on columns of any dataset: `month = 3 AND carrier IN ('AA', 'UA')`. A condition on a
    payload column of a dataset other than the seed excludes cells without rows there, unless it is `IS NULL`."""
    dimension_columns: Annotated[tuple[ColumnName, ...] | None, Field(min_length=1, max_length=16)] = None
    """The dimensions of the result; default: all. Fewer of them are a projection."""
    partition_by: _Columns = ()
    """Group the rows by the values of these columns. Each column must have an index or be a partition column."""
    payload_columns: Annotated[tuple[ColumnName, ...] | None, Field(max_length=1000)] = None
    """The other columns of the result; default: all."""
    datasets: _Parts | None = None
    """The datasets to read, which include the seed; default: all."""
    newest_only: bool = False
    """False: conditions on payload first filter the rows of their dataset, and a cell has the newest of the matching
    rows. True: conditions apply to the newest row of a cell only."""
    explain: bool = False
    """True: the result is the plan instead of the rows: a row for each dataset and step of planning."""
