"""Dataset: a versioned table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.resources.maintenance import Health, Maintenance
from kubothek.resources.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.resources.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.resources.skipping import Skipping, SkippingAchieved, SkippingStatus
from kubothek.resources.sources import Intake, SourceState, StandingSource
from kubothek.resources.values import ColumnName, Columns, Quantity, Reference, TagName, parse_quantity

SOURCE_TROUBLES = (
    "Corrupt",
    "SourceStalled",
    "SourceRetrying",
    "HealingStalled",
    "TagStalled",
    "IndexStalled",
    "SkippingStalled",
    "CompactionStalled",
    "InvalidSchedule",
)
"""Reasons for which a Dataset is not ready, though its table can be written."""


class Index(Strict):
    """A secondary index: which files hold which values of a column that does not partition the table."""

    column: ColumnName
    """The column; of type bool, int64, uint64, double, string, binary, date32 or timestamp."""
    kind: Literal["Kartothek", "Native"] = "Native"
    """Native: for any number of values, and cheap to update; only Kubothek uses it. Kartothek: kartothek and plateau
    use and update it as well; every commit writes the whole index anew, so it is for columns with few values."""


def _distinct_inner_columns(field: str, attribute: str) -> tuple[Rule, ...]:
    """What a list of columns must be that says how files are laid out inside."""
    listed = f"!has(self.{field}) || "
    return (
        Rule(
            cel=f"{listed}self.{field}.all(name, self.{field}.exists_one(other, other == name))",
            message=f"table.{field} names a column twice: remove one",
            holds=lambda table: len(set(names := getattr(table, attribute) or ())) == len(names),
        ),
        Rule(
            cel=f"{listed}!has(self.partitionOn) || self.{field}.all(name, !(name in self.partitionOn))",
            message=f"table.{field} names a column of table.partitionOn, which no file contains: remove it",
            holds=lambda table: not set(getattr(table, attribute) or ()) & set(table.partition_on),
        ),
    )


def _known_columns(field: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || !has(self.schema) || self.{field}.all(name, self.schema.exists(c, c.name == name))",
        message=f"table.{field} names a column that table.schema does not have: add it to the schema",
        holds=lambda table: table.columns is None or set(getattr(table, attribute)) <= {c.name for c in table.columns},
    )


def _skipped_by(table: Table) -> set[str]:
    """The columns of its skipping indices."""
    indices = table.skipping.indices if table.skipping is not None else ()
    return {column for index in indices for column in (index.column, index.y_column) if column is not None}


class Table(Strict):
    """The layout of the table."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_distinct_inner_columns("sortBy", "sort_by"),
        *_distinct_inner_columns("bucketBy", "bucket_by"),
        *_distinct_inner_columns("dictionaryColumns", "dictionary_columns"),
        _known_columns("sortBy", "sort_by"),
        _known_columns("bucketBy", "bucket_by"),
        Rule(
            cel="(has(self.bucketBy) && self.bucketBy.size() > 0) == has(self.numBuckets)",
            message="table.bucketBy and table.numBuckets go together: add the one, or remove the other",
            holds=lambda self: bool(self.bucket_by) == (self.num_buckets is not None),
        ),
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
        Rule(
            cel="!has(self.indices) || !has(self.partitionOn) || "
            "self.indices.all(index, !self.partitionOn.exists(name, name == index.column))",
            message="table.indices names a column of table.partitionOn, which needs no index: remove it",
            holds=lambda self: not {index.column for index in self.indices or ()} & set(self.partition_on),
        ),
        Rule(
            cel="!has(self.indices) || !has(self.schema) || "
            "self.indices.all(index, self.schema.exists(c, c.name == index.column))",
            message="table.indices names a column that table.schema does not have: add it to the schema",
            holds=lambda self: (
                self.columns is None
                or {index.column for index in self.indices or ()} <= {column.name for column in self.columns}
            ),
        ),
        Rule(
            cel="!has(self.skipping) || !has(self.skipping.indices) || !has(self.partitionOn) || "
            "self.skipping.indices.all(i, !(i.column in self.partitionOn) && "
            "(!has(i.yColumn) || !(i.yColumn in self.partitionOn)))",
            message="table.skipping names a column of table.partitionOn, by which files are skipped anyway: remove it",
            holds=lambda self: not _skipped_by(self) & set(self.partition_on),
        ),
        Rule(
            cel="!has(self.skipping) || !has(self.skipping.indices) || !has(self.schema) || "
            "self.skipping.indices.all(i, self.schema.exists(c, c.name == i.column) && "
            "(!has(i.yColumn) || self.schema.exists(c, c.name == i.yColumn)))",
            message="table.skipping names a column that table.schema does not have: add it to the schema",
            holds=lambda self: self.columns is None or _skipped_by(self) <= {column.name for column in self.columns},
        ),
    )

    partition_on: Annotated[
        tuple[ColumnName, ...],
        Field(max_length=16),
        Immutable("table.partitionOn cannot change, as every file is laid out by it: create another Dataset"),
    ] = ()
    """Immutable. The columns whose values name the directories, outermost first. A column with few values that most
    queries filter on is a good one."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns by which the rows of each file ascend, the first one first; nulls
    come last. Filters on the first one then skip most row groups and, in large partitions, most files."""
    bucket_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns whose values decide, by a hash, into which of `numBuckets` files of
    its partition a row goes. A query for one value of all of them reads one bucket; docs/layout.md has the hash."""
    num_buckets: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Takes effect at the next write. The number of buckets of a partition; goes with `bucketBy`."""
    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. How large files should get."""
    row_group_rows: Annotated[int, Field(ge=1, le=1073741824)] = 1048576
    """Takes effect at the next write. How many rows a row group, which readers skip or read whole, has at most."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    dictionary_columns: Annotated[tuple[ColumnName, ...], Field(max_length=64)] | None = None
    """Takes effect at the next write. The columns that are dictionary-encoded, which pays for those with few different
    values. Left out: all, each as long as it pays."""
    indices: Annotated[tuple[Index, ...] | None, Field(max_length=16), UniqueBy("column")] = None
    """A job on edit. The secondary indices of the table; an empty list drops those that are there. Left out: whatever
    indices the table has are kept up to date."""
    skipping: Skipping | None = None
    """A job on edit. What is kept of each data file, so that queries open only those that can hold a match; empty
    drops it. Left out: what the table has is kept up by every commit."""
    dialect: Literal["Kartothek", "Plateau"] | None = None
    """A job on edit. Which library besides Kubothek can write to a table with a Kartothek index on strings; both can
    read it. Left out: as it is, which is Kartothek for a new table."""
    columns: Columns = None
    """A checked contract: a commit whose columns differ is refused. Without it the first commit decides."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    """Takes effect at the next write. Strict: rows have exactly the columns of the table. Compatible: they may bring
    new columns, which older rows then have as null, lack columns, which are null then, and have decimals with more
    digits. With `table.schema`, only the columns that it names can come."""


class Tag(Strict):
    """A name for a version."""

    name: TagName
    """The name."""
    version: Annotated[int, Field(ge=1)]
    """The version; one that can still be read."""


def _ordered_by(field: str, attribute: str) -> tuple[Rule, ...]:
    """What the columns must be by which a compaction puts rows in order."""
    listed = f"!has(self.maintenance.compaction) || !has(self.maintenance.compaction.{field})"
    names = f"self.maintenance.compaction.{field}"

    def named(spec: DatasetSpec) -> set[str]:
        return set() if (wish := spec.maintenance.compaction) is None else set(getattr(wish, attribute))

    return (
        Rule(
            cel=f"!has(self.maintenance) || {listed} || !has(self.table) || !has(self.table.partitionOn) || "
            f"{names}.all(name, !(name in self.table.partitionOn))",
            message=f"maintenance.compaction.{field} names a column of table.partitionOn, which no file contains: "
            "remove it",
            holds=lambda spec: not named(spec) & set(spec.table.partition_on),
        ),
        Rule(
            cel=f"!has(self.maintenance) || {listed} || !has(self.table) || !has(self.table.schema) || "
            f"{names}.all(name, self.table.schema.exists(c, c.name == name))",
            message=f"maintenance.compaction.{field} names a column that table.schema does not have: add it to the "
            "schema",
            holds=lambda spec: spec.table.columns is None or named(spec) <= {c.name for c in spec.table.columns},
        ),
    )


class DatasetSpec(Strict):
    """What the table is and where it lives."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_ordered_by("sortBy", "sort_by"),
        *_ordered_by("zOrderBy", "z_order_by"),
    )

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
    adopt: bool = False
    """Takes effect at the next inspection. True: if kartothek, plateau or another program made the dataset of this
    uuid, take it over as it is, with its columns, partitions and indices; table.partitionOn can then be left out. A
    dataset with several tables, or without a list of its partitions, is converted first: `kubothek adopt --convert`."""
    sources: Annotated[tuple[StandingSource, ...], Field(max_length=16), UniqueBy("name")] = ()
    """Takes effect at the next look. Where files land that become commits by themselves."""
    maintenance: Maintenance = Maintenance()
    """Takes effect at the next look, if its field does not say otherwise. What the operator does for the table by
    itself."""
    tags: Annotated[tuple[Tag, ...] | None, Field(max_length=64), UniqueBy("name")] = None
    """A job on edit. Versions that are kept whatever a GCPolicy says, readable by these names; an empty list drops
    those that are there. Left out: whatever `kubothek tag` does."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Takes effect at once. Retain: deleting this resource leaves the data as it is. Delete: a job deletes the data
    first; until the grace period of the store has passed, `restore` brings it back."""
    restore: bool = False
    """A job on edit. True: if the data was deleted less than the grace period ago, bring it back."""
    suspend: bool = False
    """Takes effect at once. Start no new jobs for this Dataset, its Commits included. What runs goes on. A suspended
    Dataset that is deleted leaves its data as it is."""


class IndexStatus(Lenient):
    """A secondary index of a table."""

    column: str
    """The column."""
    kind: Literal["Kartothek", "Native"] = "Native"
    """Its kind."""
    state: Literal["Ready", "Waiting", "Partial", "Stale"] = "Ready"
    """Waiting: it is made with the first value of the column that is not NULL. Partial: lookups are slow until a job
    has tidied it up, as after another program added files. Stale: it cannot be read, and a job builds it anew."""
    rows: int = 0
    """Values of a Kartothek index, entries of a native one: a value counts for each file that holds it."""


class TagStatus(Lenient):
    """A name for a version."""

    name: str
    """The name."""
    version: int
    """The version."""


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
    indices: tuple[IndexStatus, ...] = ()
    """Its secondary indices."""
    skipping: SkippingStatus | None = None
    """Its skipping metadata, if there is any."""
    dialect: Literal["Kartothek", "Plateau"] = "Kartothek"
    """The dialect of its Kartothek indices on strings."""
    tags: tuple[TagStatus, ...] = ()
    """Its tags."""
    health: Health | None = None
    """How its files are."""


class Deed(Attempts):
    """A job that is needed once: deletion or restoration."""

    done: bool = False
    """Whether it succeeded, or there was nothing to do."""
    problem: str | None = None
    """Why it was given up: `Reason: text`."""


class Errand(Deed):
    """A job that makes the table what it should be: one for each cause."""

    cause: str = ""
    """What it was started for, such as a digest of what is wanted and what is there; empty when nothing was left to
    do."""
    due_time: Time | None = None
    """Since when there is a cause for it."""


class CompactionState(Errand):
    """The last compaction that the Dataset started by itself; its cause is the time of a slot, or a version, with a
    digest of the order that was asked for, if any.
    """

    time: Time | None = None
    """When it was over."""
    version: int | None = None
    """The version that it made, if it found anything to do."""
    files_before: int = 0
    """Files that it read."""
    files_after: int = 0
    """Files that it made of them."""
    bytes_saved: int = 0
    """By how much those are smaller."""


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
    indexing: Errand | None = None
    """How far the job is that makes the indices what spec.table says."""
    skipping_achieved: SkippingAchieved | None = None
    """What recent Queries of this namespace had of the skipping metadata."""
    describing: Errand | None = None
    """How far the job is that makes the skipping metadata what spec.table says."""
    tagging: Errand | None = None
    """How far the job is that makes the tags what spec.tags says."""
    compaction: CompactionState | None = None
    """The last compaction that spec.maintenance.compaction asked for."""
    healing: Errand | None = None
    """How far the job is that makes anew what is derived from the data and is missing or lags."""
    ailments: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """What is missing or lags, as the last inspection found: each in a few words."""
    corrupt: str | None = None
    """Which data files are lost, of which versions, and which version is whole."""
    intake: Intake | None = None
    """The last look at one of the sources."""
    sources: tuple[SourceState, ...] = ()
    """How far each source is."""


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

    @property
    def cube(self) -> str | None:
        """The name of the Cube that it belongs to: then only changes of that one change its rows."""
        owner = self.controller
        return owner.name if owner is not None and owner.kind == "Cube" else None

    @property
    def writable(self) -> bool:
        """Whether jobs can write to the table: trouble with a source is no reason not to."""
        ready = self.status.condition("Ready")
        if ready is None or ready.observed_generation != self.metadata.generation:
            return False
        return ready.status == "True" or ready.reason in SOURCE_TROUBLES
