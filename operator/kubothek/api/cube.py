"""Cube: several datasets with one version, which queries read as one table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.dataset import Export, Sharing
from kubothek.api.maintenance import Maintenance
from kubothek.api.members import PartName, dataset_name, head_uuid, member_uuid
from kubothek.api.meta import NAME_LIMIT, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.api.sources import StandingSource
from kubothek.api.values import ColumnName, Columns, Quantity, Reference, distinct

_SHAPE = Immutable("columns and seed of a cube cannot change, as every file is laid out by them: create another Cube")
_Names = Annotated[tuple[ColumnName, ...], Field(max_length=16)]


def _apart(field: str, attribute: str, other: str, other_attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || !has(self.{other}) || self.{field}.all(name, !(name in self.{other}))",
        message=f"{field} and {other} share a column: a column has one part in a cube, remove it from one of them",
        holds=lambda spec: not set(getattr(spec, attribute) or ()) & set(getattr(spec, other_attribute) or ()),
    )


class MemberTable(Strict):
    """The file layout of a dataset of a cube. Rows are always sorted by partition and dimension columns."""

    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. Target size of files."""
    row_group_rows: Annotated[int, Field(ge=1, le=1073741824)] = 1048576
    """Takes effect at the next write. Maximum rows of a row group, which readers skip or read whole."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    columns: Columns = None
    """A checked contract: a commit with other columns is refused. Default: the columns of the first commit."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    """Takes effect at the next write. Compatible: rows may have new columns, lack columns, and have decimals with more
    digits."""


class CubeDataset(Strict):
    """One dataset of a cube."""

    rules: ClassVar[tuple[Rule, ...]] = (distinct("partitionOn", "partition_on"),)

    name: PartName
    """Its name in the cube. Its name in the store is `<uuidPrefix>++<name>`; that of its Dataset is `<cube>-<name>`."""
    partition_on: Annotated[
        _Names | None,
        Immutable("partitionOn of a dataset of a cube cannot change, as every file is laid out by it"),
    ] = None
    """Immutable. The columns whose values name its directories; an empty list for none. Default: partitionColumns of
    the cube. Set it for a dataset that lacks one of these columns. The seed always has partitionColumns."""
    table: MemberTable = MemberTable()
    """Its file layout; see each field for when an edit takes effect."""
    sources: Annotated[tuple[StandingSource, ...], Field(max_length=4), UniqueBy("name")] = ()
    """Takes effect at the next inspection. Sources whose files the operator appends automatically. The dataset must
    exist: the first Commit builds it."""


class CubeSpec(Strict):
    """The columns, datasets and location of the cube."""

    rules: ClassVar[tuple[Rule, ...]] = (
        distinct("dimensionColumns", "dimension_columns"),
        distinct("partitionColumns", "partition_columns"),
        distinct("indexColumns", "index_columns"),
        _apart("dimensionColumns", "dimension_columns", "partitionColumns", "partition_columns"),
        _apart("indexColumns", "index_columns", "dimensionColumns", "dimension_columns"),
        _apart("indexColumns", "index_columns", "partitionColumns", "partition_columns"),
        Rule(
            cel="!has(self.suppressIndexOn) || self.adopt || (has(self.dimensionColumns) && "
            "self.suppressIndexOn.all(name, name in self.dimensionColumns))",
            message="suppressIndexOn names a column that is not one of dimensionColumns: only those have an "
            "index by default",
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
    """Immutable. The prefix of the names of its datasets in the store; default: the name of the resource."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine for jobs of this cube; default: the Engine called `default`, else the
    operator's own."""
    dimension_columns: Annotated[_Names | None, _SHAPE] = None
    """Immutable. The columns that identify a cell of the cube, in the order by which rows are sorted. Every dataset has
    at least one of them, the seed all."""
    partition_columns: Annotated[_Names | None, _SHAPE] = None
    """Immutable. The columns whose values name the directories of the seed, and by default of all other datasets."""
    index_columns: Annotated[tuple[ColumnName, ...], Field(max_length=64)] = ()
    """Takes effect when the cube is built. Other columns with an index, in any dataset. A Commit with the operation
    Index adds one to existing columns."""
    suppress_index_on: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect when the cube is built. Dimension columns without an index in the seed, such as those that are
    nearly unique."""
    seed_dataset: Annotated[PartName, _SHAPE] = "seed"
    """Immutable. The dataset that defines the cells; all others add columns to them."""
    datasets: Annotated[tuple[CubeDataset, ...], Field(max_length=32), UniqueBy("name")] = ()
    """The datasets of the cube, existing or planned. Each appears as a Dataset, and only changes of the cube write it.
    With `adopt`, those in the store belong to it as well, listed or not."""
    maintenance: Maintenance = Maintenance()
    """Takes effect at the next inspection. Automatic maintenance of each dataset. Its Datasets have the labels of the
    Cube, so that a GCPolicy can select them."""
    sharing: Sharing | None = None
    """Access to the Datasets of the cube through gateways of the namespace; the rights are those on its Datasets."""
    export: Export | None = None
    """Metadata of each dataset for engines that read other formats."""
    adopt: bool = False
    """Takes effect at the next inspection. True: adopt an existing kartothek cube of this prefix as it is, with its
    datasets, columns and indices. The adoption writes only claims."""
    suspend: bool = False
    """Takes effect at once. True: start no jobs for this cube and its Commits; running jobs continue."""


class MemberState(Lenient):
    """One dataset of the cube, from the status of its Dataset."""

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
    """The columns and datasets of a cube in a store."""

    seed: str = ""
    """The dataset that defines the cells."""
    dimension_columns: tuple[str, ...] = ()
    """The columns that identify a cell."""
    partition_columns: tuple[str, ...] = ()
    """The columns whose values name the directories of the seed."""
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
    """The observed state of the cube."""

    uuid_prefix: str | None = None
    """The prefix of the names of its datasets in the store."""
    members: tuple[MemberState, ...] = ()
    """Its datasets."""
    rows: int = 0
    """Number of rows of the seed: cells of the cube."""
    bytes: int = 0
    """Size of the data files of all datasets."""
    size: str | None = None
    """The same, human-readable."""
    problem: str | None = None
    """Why the cube cannot be written, as the last inspection found: `Reason: text`."""
    inspected_time: Time | None = None
    """Start of the last inspection that found a change of the cube."""
    inspected_digest: str | None = None
    """A digest of the state that it found; absent after a later change."""


class Cube(Resource):
    """A Cube is several datasets in an ObjectStore, in the format of Kartothek Cube: a seed that defines the cells, and
    others that add columns to them. Commits change all of them at once, Queries read them as one table.
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
        """Whether jobs can write to its datasets. Problems with the reason DatasetTrouble do not prevent writes."""
        return self.ready_but_for(("DatasetTrouble",))

    @property
    def prefix(self) -> str:
        """The prefix of the names of its datasets in the store."""
        return self.spec.uuid_prefix or self.name

    @property
    def head(self) -> str:
        """The UUID of the cube's head in the store."""
        return head_uuid(self.prefix)

    def uuid_of(self, member: str) -> str:
        """Return the name of a dataset of the cube in the store."""
        return member_uuid(self.prefix, member)
