"""What a Commit does to a cube, and what a Query asks of one."""

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


def _goes_with(field: str, attribute: str, operations: tuple[str, ...], *, absent: str = "!has(self.{})") -> Rule:
    listed = ", ".join(f"'{operation}'" for operation in operations)
    return Rule(
        cel=f"{absent.format(field)} || self.operation in [{listed}]",
        message=f"cube.{field} goes with {' and '.join(operations)}: remove it, or correct the operation",
        holds=lambda self: not getattr(self, attribute) or self.operation in operations,
    )


class MemberSource(Source):
    """Where the rows of a dataset of a cube come from: exactly one of `paths` and `urls`."""

    # An API server reckons with the most that may come, of all datasets together.
    paths: Annotated[tuple[Path, ...] | None, Field(min_length=1, max_length=40)] = None
    """Files, relative to the url of the store."""


class CubeRows(Strict):
    """The new rows of one dataset of a cube."""

    name: PartName
    """The dataset, by its name in the cube."""
    source: MemberSource
    """Where the rows come from; without a `storeRef` from the ObjectStore of the Cube."""


class CubeCopy(Strict):
    """Where a cube is copied to."""

    store_ref: Reference | None = None
    """The ObjectStore; default: that of the Cube, which then needs another prefix."""
    uuid_prefix: PartName | None = None
    """The prefix of the copy; default: the same."""
    rename: Annotated[dict[str, PartName] | None, Field(max_length=32)] = None
    """New names of datasets by the old ones."""
    overwrite: bool = False
    """True: take the place of what is there."""


class CubeChange(Strict):
    """One change of a cube: of all its datasets at once, or of none."""

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
        _goes_with("members", "members", _OF_SOME),
        _goes_with("overwrite", "overwrite", ("Build", "Extend"), absent="!self.{}"),
        _goes_with("dryRun", "dry_run", ("Cleanup",), absent="!self.{}"),
    )

    cube_ref: Reference
    """The Cube to change."""
    operation: CubeOperation
    """What to do. Build: make the seed, and others. Extend: add datasets. Append: add rows, which take the place of
    cells that are there, in queries. Update: remove partitions and add rows. RemovePartitions: take whole partitions
    away. Delete: take datasets away, or all. Copy: put a copy elsewhere. Index: add indices. Cleanup: delete objects
    under the prefix that no version needs."""
    datasets: Annotated[tuple[CubeRows, ...], Field(max_length=32), UniqueBy("name")] = ()
    """For Build, Extend, Append and Update: the rows of each dataset."""
    members: _Parts | None = None
    """For the other operations: the datasets that are meant; default: all."""
    where: _Filter | None = None
    """For Update and RemovePartitions: which partitions go, as a filter on partition columns of the cube: `month = 3`.
    Each dataset goes by those that it has; one without any is emptied. `TRUE` is all."""
    columns: _Columns = ()
    """For Index: the columns that get an index, in whichever dataset they are."""
    to: CubeCopy | None = None
    """For Copy: where to."""
    overwrite: bool = False
    """For Build and Extend. True: take the place of datasets that are there."""
    dry_run: bool = False
    """For Cleanup. True: only say what would be deleted."""


class CubeQuestion(Strict):
    """Cells of a cube, with columns from all of its datasets."""

    uuid_prefix: PartName
    """The cube, by its prefix in the store, whoever made it."""
    conditions: _Filter | None = None
    """Which rows: `month = 3 AND carrier IN ('AA', 'UA')`, as a filter on columns of any dataset. One on a column of a
    dataset other than the seed, that is neither dimension nor partition, leaves out cells without rows there, unless it
    is `IS NULL`."""
    dimension_columns: Annotated[tuple[ColumnName, ...] | None, Field(min_length=1, max_length=16)] = None
    """The dimensions of the result; default: all. Fewer of them is a projection."""
    partition_by: _Columns = ()
    """Put together the rows that have the same values in these columns, one group after the other. They need an index,
    or to be partition columns."""
    payload_columns: Annotated[tuple[ColumnName, ...] | None, Field(max_length=1000)] = None
    """The other columns of the result; default: all."""
    datasets: _Parts | None = None
    """The datasets that take part, the seed among them; default: all."""
    newest_only: bool = False
    """False: conditions on payload choose rows of their dataset first, and the newest of these is the cell's. True: a
    cell has the values of its newest row only, whatever is asked."""
    explain: bool = False
    """True: the result is not the rows, but what would be read: a row for each dataset and step of planning."""
