"""Cube: several datasets as one consistent, queryable whole."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.maintenance import Maintenance
from kubothek.api.members import PartName, dataset_name, head_uuid, member_uuid
from kubothek.api.meta import NAME_LIMIT, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.api.sources import StandingSource
from kubothek.api.values import ColumnName, Columns, Quantity, Reference

_SHAPE = Immutable("columns and seed of a cube cannot change, as every file is laid out by them: create another Cube")
_Names = Annotated[tuple[ColumnName, ...], Field(max_length=16)]


def _distinct(field: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(name, self.{field}.exists_one(other, other == name))",
        message=f"{field} names a column twice: remove one",
        holds=lambda spec: len(set(names := getattr(spec, attribute) or ())) == len(names),
    )


def _apart(field: str, attribute: str, other: str, other_attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || !has(self.{other}) || self.{field}.all(name, !(name in self.{other}))",
        message=f"{field} and {other} share a column: a column has one part in a cube, remove it from one of them",
        holds=lambda spec: not set(getattr(spec, attribute) or ()) & set(getattr(spec, other_attribute) or ()),
    )


class MemberTable(Strict):
    """How the files of a dataset of a cube are made. Rows are always in order by partition and dimension columns."""

    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. How large files should get."""
    row_group_rows: Annotated[int, Field(ge=1, le=1073741824)] = 1048576
    """Takes effect at the next write. How many rows a row group, which readers skip or read whole, has at most."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    columns: Columns = None
    """A checked contract: a commit whose columns differ is refused. Without it the first commit decides."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    """Takes effect at the next write. Compatible: rows may bring new columns, lack columns, and have decimals with
    more digits."""


class CubeDataset(Strict):
    """One dataset of a cube."""

    rules: ClassVar[tuple[Rule, ...]] = (_distinct("partitionOn", "partition_on"),)

    name: PartName
    """Its name in the cube. In the store it is called `<uuidPrefix>++<name>`; its Dataset is called `<cube>-<name>`."""
    partition_on: Annotated[
        _Names | None,
        Immutable("partitionOn of a dataset of a cube cannot change, as every file is laid out by it"),
    ] = None
    """Immutable. The columns whose values name its directories; an empty list for none. Default: partitionColumns of
    the cube. For a dataset that lacks one of them. The seed always has partitionColumns."""
    table: MemberTable = MemberTable()
    """How its files are made; see each field for when an edit takes effect."""
    sources: Annotated[tuple[StandingSource, ...], Field(max_length=4), UniqueBy("name")] = ()
    """Takes effect at the next look. Where files land that are appended to it by themselves. It has to be there: the
    first Commit builds it."""


class CubeSpec(Strict):
    """What the cube is and where it lives."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _distinct("dimensionColumns", "dimension_columns"),
        _distinct("partitionColumns", "partition_columns"),
        _distinct("indexColumns", "index_columns"),
        _apart("dimensionColumns", "dimension_columns", "partitionColumns", "partition_columns"),
        _apart("indexColumns", "index_columns", "dimensionColumns", "dimension_columns"),
        _apart("indexColumns", "index_columns", "partitionColumns", "partition_columns"),
        Rule(
            cel="!has(self.suppressIndexOn) || self.adopt || (has(self.dimensionColumns) && "
            "self.suppressIndexOn.all(name, name in self.dimensionColumns))",
            message="suppressIndexOn names a column that is none of dimensionColumns: only those have an index by "
            "themselves",
            holds=lambda spec: spec.adopt or set(spec.suppress_index_on) <= set(spec.dimension_columns or ()),
        ),
        Rule(
            cel="self.adopt || (has(self.dimensionColumns) && self.dimensionColumns.size() > 0 && "
            "has(self.partitionColumns) && self.partitionColumns.size() > 0)",
            message="a cube needs dimensionColumns and partitionColumns: add them, or say adopt: true for one that "
            "is in the store",
            holds=lambda spec: spec.adopt or bool(spec.dimension_columns and spec.partition_columns),
        ),
        Rule(
            cel="self.adopt || (has(self.datasets) && self.datasets.exists(d, d.name == self.seedDataset))",
            message="datasets lacks the seed, which says which cells there are: add one that is called as seedDataset "
            "says",
            holds=lambda spec: spec.adopt or spec.seed_dataset in {d.name for d in spec.datasets},
        ),
        Rule(
            cel="!has(self.datasets) || self.datasets.all(d, d.name != self.seedDataset || !has(d.partitionOn) || "
            "(has(self.partitionColumns) && d.partitionOn == self.partitionColumns))",
            message="partitionOn of the seed is always partitionColumns of the cube: leave it out",
            holds=lambda spec: all(
                d.partition_on in (None, spec.partition_columns) for d in spec.datasets if d.name == spec.seed_dataset
            ),
        ),
    )

    store_ref: Annotated[
        Reference,
        Immutable("spec.storeRef cannot change, as the data would stay behind: create another Cube"),
    ]
    """Immutable. The ObjectStore that holds the data."""
    uuid_prefix: PartName | None = None
    """Immutable. What the names of its datasets in the store begin with; default: the name of the resource."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine for jobs of this cube; default: the Engine called `default`, else the
    operator's own."""
    dimension_columns: Annotated[_Names | None, _SHAPE] = None
    """Immutable. The columns that tell one cell of the cube from another, in the order by which rows are sorted. Every
    dataset has at least one of them, the seed all."""
    partition_columns: Annotated[_Names | None, _SHAPE] = None
    """Immutable. The columns whose values name the directories of the seed, and of all datasets that do not say
    otherwise."""
    index_columns: Annotated[tuple[ColumnName, ...], Field(max_length=64)] = ()
    """Takes effect when the cube is built. Other columns that have an index, in whichever dataset they are. A Commit
    with the operation Index gives one to columns that are there."""
    suppress_index_on: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect when the cube is built. Dimension columns without an index in the seed: for those with a value for
    nearly each row."""
    seed_dataset: Annotated[PartName, _SHAPE] = "seed"
    """Immutable. The dataset that says which cells there are; all others add columns to them."""
    datasets: Annotated[tuple[CubeDataset, ...], Field(max_length=32), UniqueBy("name")] = ()
    """The datasets that the cube has, or is to have. Each appears as a Dataset, and is written through the cube only.
    With `adopt`, those that are in the store belong to it as well, listed or not."""
    maintenance: Maintenance = Maintenance()
    """Takes effect at the next look. What the operator does for each dataset by itself. Labels of the Cube are on all
    of its Datasets, so that a GCPolicy that selects them says how long versions stay."""
    adopt: bool = False
    """Takes effect at the next inspection. True: if kartothek made the cube of this prefix, take it over as it is, with
    its datasets, columns and indices; nothing is written for that but the claims."""
    suspend: bool = False
    """Takes effect at once. Start no new jobs for this cube, its Commits included. What runs goes on."""


class MemberState(Lenient):
    """One dataset of the cube, as its Dataset tells of it."""

    name: str
    """Its name in the cube."""
    dataset: str
    """The name of its Dataset."""
    version: int | None = None
    """Its version; absent before it is built."""
    rows: int = 0
    """Number of rows."""
    files: int = 0
    """Number of data files."""
    bytes: int = 0
    """Size of the data files."""


class Shape(Lenient):
    """What a cube in a store is like."""

    seed: str = ""
    """The dataset that says which cells there are."""
    dimension_columns: tuple[str, ...] = ()
    """What tells one cell from another."""
    partition_columns: tuple[str, ...] = ()
    """What names the directories of the seed."""
    index_columns: tuple[str, ...] = ()
    """Other columns with an index."""
    datasets: tuple[str, ...] = ()
    """The names of its datasets."""


class CubeState(Lenient):
    """A cube at one version."""

    version: int | None = None
    """The version; absent before it is built."""
    last_commit_time: Time | None = None
    """When this version was committed."""
    shape: Shape | None = None
    """Its columns and datasets, as the store has them."""


class CubeStatus(Status, CubeState):
    """What is known about the cube."""

    uuid_prefix: str | None = None
    """What the names of its datasets in the store begin with."""
    members: tuple[MemberState, ...] = ()
    """Its datasets."""
    rows: int = 0
    """Number of rows of the seed: cells of the cube."""
    bytes: int = 0
    """Size of the data files of all datasets."""
    size: str | None = None
    """The same, for people."""
    problem: str | None = None
    """Why the cube cannot be written, as the last inspection found: `Reason: text`."""
    inspected_time: Time | None = None
    """When the inspection began that last had something new to tell of the cube: those after it found the same."""
    inspected_digest: str | None = None
    """A digest of what it told; absent when something else has changed the cube since."""


class Cube(Resource):
    """A Cube is several datasets in an ObjectStore, in the format of Kartothek Cube: a seed that says which cells there
    are, and others that add columns to them. Commits change all of them at once, Queries read them as one table.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        *Resource.rules,
        Rule(
            cel="!has(self.spec.datasets) || self.spec.datasets.all(d, "
            f"self.metadata.name.size() + d.name.size() < {NAME_LIMIT})",
            message=f"<cube>-<dataset> is longer than {NAME_LIMIT} characters, which is how its Dataset is called: "
            "shorten one of both",
            holds=lambda self: all(len(self.name) + len(d.name) < NAME_LIMIT for d in self.spec.datasets),
        ),
        Rule(
            cel="!has(self.spec.datasets) || self.spec.datasets.all(d, self.spec.datasets.exists_one(o, "
            "o.name.lowerAscii().replace('_', '-').replace('+', '-') == "
            "d.name.lowerAscii().replace('_', '-').replace('+', '-')))",
            message="two datasets would have a Dataset of the same name, as it has no capitals, '_' or '+': rename one",
            holds=lambda self: (
                len({dataset_name(self.name, d.name) for d in self.spec.datasets}) == len(self.spec.datasets)
            ),
        ),
    )
    transitions: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="(has(self.spec.uuidPrefix) ? self.spec.uuidPrefix : self.metadata.name) == "
            "(has(oldSelf.spec.uuidPrefix) ? oldSelf.spec.uuidPrefix : oldSelf.metadata.name)",
            message="spec.uuidPrefix cannot change, as the data would stay behind: create another Cube",
            holds=lambda old, new: old.prefix == new.prefix,
        ),
    )

    kind: Literal["Cube"] = "Cube"
    spec: CubeSpec
    status: CubeStatus = CubeStatus()

    @property
    def writable(self) -> bool:
        """Whether jobs can write to its datasets: trouble that is no reason not to is told as DatasetTrouble."""
        ready = self.status.condition("Ready")
        if ready is None or ready.observed_generation != self.metadata.generation:
            return False
        return ready.status == "True" or ready.reason == "DatasetTrouble"

    @property
    def prefix(self) -> str:
        """What the names of its datasets in the store begin with."""
        return self.spec.uuid_prefix or self.name

    @property
    def head(self) -> str:
        """What stands for the cube itself among the datasets of a store."""
        return head_uuid(self.prefix)

    def uuid_of(self, member: str) -> str:
        """The name of a dataset of the cube in the store."""
        return member_uuid(self.prefix, member)
