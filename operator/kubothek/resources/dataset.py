"""Dataset: a versioned table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.resources.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.resources.rules import Immutable, Rule, TransitionRule
from kubothek.resources.values import ColumnName, Columns, Quantity, Reference, parse_quantity


class Table(Strict):
    """The layout of the table."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.partitionOn) || "
            "self.partitionOn.all(name, self.partitionOn.exists_one(other, other == name))",
            message="table.partitionOn names a column twice: remove one",
            holds=lambda self: len(set(self.partition_on)) == len(self.partition_on),
        ),
        Rule(
            cel="!has(self.schema) || !has(self.partitionOn) || "
            "self.partitionOn.all(name, self.schema.exists(c, c.name == name))",
            message="table.partitionOn names a column that table.schema does not have: add it to the schema",
            holds=lambda self: (
                self.columns is None or set(self.partition_on) <= {column.name for column in self.columns}
            ),
        ),
        Rule(
            cel="!has(self.schema) || !has(self.partitionOn) || self.schema.size() > self.partitionOn.size()",
            message="table.schema has no column besides those of table.partitionOn: files would be empty, add one",
            holds=lambda self: self.columns is None or len(self.columns) > len(self.partition_on),
        ),
        Rule(
            cel="quantity(string(self.targetFileSize)).compareTo(quantity('1Mi')) >= 0 && "
            "quantity(string(self.targetFileSize)).compareTo(quantity('4Gi')) <= 0",
            message="table.targetFileSize must be between 1Mi and 4Gi",
            holds=lambda self: parse_quantity("1Mi") <= parse_quantity(self.target_file_size) <= parse_quantity("4Gi"),
        ),
    )

    partition_on: Annotated[
        tuple[ColumnName, ...],
        Field(max_length=16),
        Immutable("table.partitionOn cannot change, as every file is laid out by it: create another Dataset"),
    ] = ()
    """Immutable. The columns whose values name the directories, outermost first. A column with few values that most
    queries filter on is a good one."""
    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. How large files should get."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    columns: Columns = None
    """A checked contract: a commit whose columns differ is refused. Without it the first commit decides."""


class DatasetSpec(Strict):
    """What the table is and where it lives."""

    uuid: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9+_\-]+$")] | None = None
    """Immutable. The name of the dataset in the store, as Kartothek knows it; default: the name of the resource."""
    store_ref: Annotated[
        Reference,
        Immutable("spec.storeRef cannot change, as the data would stay behind: create another Dataset"),
    ]
    """Immutable. The ObjectStore that holds the data."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine for jobs of this Dataset; default: the Engine called `default`, else the
    operator's own."""
    table: Table = Table()
    """The layout of the table; see each field for when an edit takes effect."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Takes effect at once. Retain: deleting this resource leaves the data as it is. Delete: a job deletes the data
    first; until the grace period of the store has passed, `restore` brings it back."""
    restore: bool = False
    """A job on edit. True: if the data was deleted less than the grace period ago, bring it back."""
    suspend: bool = False
    """Takes effect at once. Start no new jobs for this Dataset, its Commits included. What runs goes on. A suspended
    Dataset that is deleted leaves its data as it is."""


class TableState(Lenient):
    """The size of a table at one version."""

    version: int | None = None
    """The version; absent before the first commit."""
    rows: int = 0
    """Number of rows."""
    files: int = 0
    """Number of data files."""
    bytes: int = 0
    """Size of the data files."""
    partitions: int = 0
    """Number of partitions: directories with at least one file."""
    last_commit_time: Time | None = None
    """When this version was committed."""
    etag: str | None = None
    """The ETag of the dataset's head at this version."""


class Deed(Attempts):
    """A job that is needed once: deletion or restoration."""

    done: bool = False
    """Whether it succeeded, or there was nothing to do."""
    problem: str | None = None
    """Why it was given up: `Reason: text`."""


class DatasetStatus(Status, TableState):
    """What is known about the table. All numbers are those of the current version."""

    uuid: str | None = None
    """The name of the dataset in the store."""
    size: str | None = None
    """The size of the data files, for people."""
    deleted: bool = False
    """Whether the store holds a tombstone: the data was deleted, and can be restored within the grace period."""
    problem: str | None = None
    """Why the dataset cannot be written, as the last inspection found: `Reason: text`."""
    inspected_time: Time | None = None
    """When the inspection began that last saw the dataset."""
    deletion: Deed | None = None
    """How far the deletion of the data is."""
    restoration: Deed | None = None
    """How far the restoration of the data is."""


class Dataset(Resource):
    """A Dataset is a versioned Parquet table in an ObjectStore, in the format of Kartothek. Commits change it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Resource.rules,
        Rule(
            cel="!has(self.spec.uuid) || !self.spec.uuid.startsWith('++')",
            message="spec.uuid begins with '++', which is kept for the heads of cubes: choose another",
            holds=lambda self: self.spec.uuid is None or not self.spec.uuid.startswith("++"),
        ),
    )
    transitions: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="(has(self.spec.uuid) ? self.spec.uuid : self.metadata.name) == "
            "(has(oldSelf.spec.uuid) ? oldSelf.spec.uuid : oldSelf.metadata.name)",
            message="spec.uuid cannot change, as the data would stay behind: create another Dataset",
            holds=lambda old, new: old.uuid == new.uuid,
        ),
    )

    kind: Literal["Dataset"] = "Dataset"
    spec: DatasetSpec
    status: DatasetStatus = DatasetStatus()

    @property
    def uuid(self) -> str:
        """The name of the dataset in the store."""
        return self.spec.uuid or self.name
