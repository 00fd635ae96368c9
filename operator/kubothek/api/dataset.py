"""Dataset: a versioned table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StringConstraints

from kubothek.api.ledger import Ledger, LedgerState
from kubothek.api.maintenance import Maintenance
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.observed import Health, IcebergStatus, IndexStatus
from kubothek.api.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.api.skipping import SkippingAchieved, SkippingStatus
from kubothek.api.sources import Intake, SourceState, StandingSource
from kubothek.api.table import Table
from kubothek.api.transforms import Lineage
from kubothek.api.values import Reference, TagName
from kubothek.api.writers import Writer

SOURCE_TROUBLES = (
    "Corrupt",
    "LayoutMismatch",
    "SourceStalled",
    "SourceRetrying",
    "HealingStalled",
    "TagStalled",
    "IndexStalled",
    "SkippingStalled",
    "CompactionStalled",
    "ExportStalled",
    "InvalidSchedule",
    "LedgerStalled",
    "AwaitingChain",
    "TransformStalled",
    "TransformInvalid",
    "TransformChanged",
    "InputDiverged",
    "InputMissing",
    "InputNotReady",
    "RecordMissing",
    "SchemaMismatch",
    "Cycle",
    "ImageNotAllowed",
)
"""Reasons for which a Dataset is not ready although its table can be written."""


class Tag(Strict):
    """A name for a version."""

    name: TagName
    """The name."""
    version: Annotated[int, Field(ge=1)]
    """The version; it must still be readable."""


class Sharing(Strict):
    """Access to the Dataset through gateways of the namespace."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.public || self.exposed",
            message="sharing.public goes with sharing.exposed: set exposed to true, or remove public",
            holds=lambda self: self.exposed or not self.public,
        ),
    )

    exposed: bool = False
    """Takes effect at once. True: a gateway serves it to users with the right to `get`, `push` or `ingest`."""
    public: bool = False
    """Takes effect at once. True: anyone who reaches the gateway may pull and query it without a token."""


class IcebergExport(Strict):
    """Iceberg metadata beside the data files, by which other engines read every version and tag."""

    enabled: bool | None = None
    """Takes effect at the next inspection. True: every commit exports, whichever program commits. False: none does;
    existing metadata stays as it is. Default: true for a Dataset whose sharing.exposed is true."""
    unsupported_columns: Literal["Omit", "Refuse"] = "Omit"
    """Takes effect at the next inspection. Columns of types that Iceberg lacks, such as unsigned integers. Omit: leave
    them out. Refuse: do not export the table."""
    version_hint: bool | None = None
    """Takes effect at the next inspection. True: exports also write `version-hint.text`, by which engines find the
    table from files alone; one request more for each commit. Engines that use a catalogue do not need it. Default:
    true, unless a gateway serves the Dataset (sharing.exposed)."""


class Export(Strict):
    """Metadata for engines that read other formats."""

    iceberg: IcebergExport = IcebergExport()
    """The export for readers of Apache Iceberg tables."""


def _ordered_by(field: str, attribute: str) -> tuple[Rule, ...]:
    """Return the rules for the columns by which a compaction sorts rows."""
    listed = f"!has(self.maintenance.compaction) || !has(self.maintenance.compaction.{field})"
    names = f"self.maintenance.compaction.{field}"

    def named(spec: DatasetSpec) -> set[str]:
        return set() if (compaction := spec.maintenance.compaction) is None else set(getattr(compaction, attribute))

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


class RunHistory(Strict):
    """Retention of runs of a Dataset that have ended."""

    complete: Annotated[int | None, Field(ge=1)] = None
    """Complete runs to keep of each kind (Commit, Compaction, Verification); default: all."""
    failed: Annotated[int | None, Field(ge=1)] = None
    """Failed runs to keep of each kind; default: all."""


class DatasetSpec(Strict):
    """The location and layout of the table, and what the operator does with it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_ordered_by("sortBy", "sort_by"),
        *_ordered_by("zOrderBy", "z_order_by"),
        Rule(
            cel="!has(self.ledger) || !has(self.sources) || self.sources.size() == 0",
            message="spec.sources goes without a ledger, whose sources are events: move them into ledger.metadata",
            holds=lambda self: self.ledger is None or not self.sources,
        ),
        Rule(
            cel="!has(self.export) || !(has(self.export.iceberg.enabled) ? self.export.iceberg.enabled : "
            "has(self.sharing) && self.sharing.exposed) || self.export.iceberg.unsupportedColumns == 'Omit' || "
            "!has(self.table) || !has(self.table.schema) || self.table.schema.all(c, !c.type.startsWith('uint'))",
            message="export.iceberg refuses the unsigned integers of table.schema, which Iceberg lacks: declare them "
            "as int64, or set unsupportedColumns to Omit",
            holds=lambda self: (
                self.export is None
                or not self.exports_iceberg
                or self.export.iceberg.unsupported_columns == "Omit"
                or not any(column.type.startswith("uint") for column in self.table.columns or ())
            ),
        ),
        Rule(
            cel="!has(self.ledger) || !self.adopt",
            message="adopt goes without a ledger: a chain is taken over by `kubothek import`",
            holds=lambda self: self.ledger is None or not self.adopt,
        ),
        Rule(
            cel="!has(self.ledger) || !has(self.writers) || self.writers.size() == 0",
            message="spec.writers goes without a ledger, whose rows change with its chain: remove it, and push rows "
            "through a gateway",
            holds=lambda self: self.ledger is None or not self.writers,
        ),
        Rule(
            cel="!has(self.ledger) || !has(self.table) || !has(self.table.schema)",
            message="table.schema goes without a ledger, whose chain says the columns: remove it",
            holds=lambda self: self.ledger is None or self.table.columns is None,
        ),
    )
    transitions: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="has(self.ledger) == has(oldSelf.ledger)",
            message="spec.ledger cannot come or go, as a chain holds all of a table's history or none: create another "
            "Dataset",
            holds=lambda old, new: (old.ledger is None) == (new.ledger is None),
        ),
    )

    uuid: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9+_\-]+$")] | None = None
    """Immutable. The Kartothek UUID: the name of the dataset in the store; default: the name of the resource."""
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
    ledger: Ledger | None = None
    """Immutable. (Only its presence: see each field for when an edit takes effect.) It makes the Dataset one of Open
    Data Fabric: a verifiable chain of events to which sources append. The table is its current state."""
    adopt: bool = False
    """Takes effect at the next inspection. True: adopt an existing dataset of this uuid by kartothek, plateau or
    another program as it is, with its columns, partitions and indices; table.partitionOn is then optional. Convert a
    dataset with several tables, or without a list of its partitions, first: `kubothek adopt --convert`."""
    sources: Annotated[tuple[StandingSource, ...], Field(max_length=16), UniqueBy("name")] = ()
    """Takes effect at the next inspection. Sources whose files the operator commits automatically."""
    writers: Annotated[tuple[Writer, ...], Field(max_length=16)] = ()
    """Takes effect at the next inspection, which an edit requests. Clients of the library that may commit to the table
    beside manifests; with any, the inspection also creates a missing table. Default: none. It guards against mistakes:
    the credentials of the store decide who can write to it."""
    maintenance: Maintenance = Maintenance()
    """Takes effect at the next inspection, if its field does not say otherwise. Automatic maintenance of the table."""
    run_history: RunHistory = RunHistory()
    """Takes effect at the end of the next run. Retention of runs that have ended; older ones are deleted with their
    pods. Runs that Argo CD, Flux or Helm applied do not count, and stay."""
    tags: Annotated[tuple[Tag, ...] | None, Field(max_length=64), UniqueBy("name")] = None
    """A job on edit. Names of versions, which no GCPolicy expires; an empty list drops existing tags. Default:
    `kubothek tag` manages the tags."""
    sharing: Sharing | None = None
    """Takes effect at once. Access to the ledger through gateways; default: none."""
    export: Export | None = None
    """Takes effect at the next inspection. Metadata for engines that read other formats."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Takes effect at once. Retain: deleting this resource keeps the data. Delete: a job deletes the data first; within
    the grace period of the store, `restore` undoes that."""
    restore: bool = False
    """A job on edit. True: restore data that was deleted less than the grace period ago."""
    suspend: bool = False
    """Takes effect at once. True: start no jobs for this Dataset and its Commits; running jobs continue. Deleting a
    suspended Dataset keeps its data."""

    @property
    def is_exposed(self) -> bool:
        """Whether a gateway serves the Dataset."""
        return self.sharing is not None and self.sharing.exposed

    @property
    def exports_iceberg(self) -> bool:
        """Whether commits write Iceberg metadata; by default, if a gateway serves the Dataset."""
        enabled = (self.export or Export()).iceberg.enabled
        return self.is_exposed if enabled is None else enabled


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
    partition_on: tuple[str, ...] | None = None
    """The columns whose values name the directories of the table in the store."""
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
    """The state of its files."""
    ledger: LedgerState | None = None
    """Its chain, if it has one."""
    iceberg: IcebergStatus | None = None
    """Its Iceberg metadata, if commits export it."""
    writers: tuple[str, ...] = ()
    """Clients of the library that the table admits."""


class OneShot(Attempts):
    """A job that is needed once: deletion or restoration."""

    done: bool = False
    """Whether it succeeded, or there was nothing to do."""
    problem: str | None = None
    """Why it failed permanently: `Reason: text`."""


class TaskRun(OneShot):
    """A job that reconciles the table with its spec: one for each cause."""

    cause: str = ""
    """Its cause, such as a digest of desired and observed state; empty when nothing is left to do."""
    due_time: Time | None = None
    """When the cause appeared."""


class CompactionState(TaskRun):
    """The last automatic compaction; its cause is the time of a slot, or a version, with a digest of the requested sort
    order, if any.
    """

    time: Time | None = None
    """When it ended."""
    version: int | None = None
    """The version that it created, if it had work."""
    files_before: int = 0
    """Number of files that it read."""
    files_after: int = 0
    """Number of files that replaced them."""
    bytes_saved: int = 0
    """By how many bytes those are smaller."""


class PollState(TaskRun):
    """The last poll; its cause is a digest of the events, with the time of a slot and the last request, if any."""

    slot: Time | None = None
    """The last slot of the schedule."""
    time: Time | None = None
    """When it ended."""
    records: int = 0
    """Number of records that it appended."""
    commits: int = 0
    """Number of its commits; 0 if there was nothing new."""
    has_more: bool = False
    """Whether the container of the source reported more data: another poll follows at once."""


class TransformState(TaskRun):
    """The last run of a derivative; its cause is a digest of the events and inputs at that time, with the time of a
    slot and the last request, if any.
    """

    slot: Time | None = None
    """The last slot of the schedule."""
    waiting_since: Time | None = None
    """When the oldest new data of the inputs appeared for which no run has started."""
    time: Time | None = None
    """When it ended."""
    version: int | None = None
    """The version that it created, if there was anything new."""
    records: int = 0
    """Number of records that it appended, including retractions and corrections."""


TASK_FIELDS: Final = {
    "ledger": "defining",
    "poll": "polling",
    "transform": "transforming",
    "heal": "healing",
    "tag": "tagging",
    "index": "indexing",
    "skip": "describing",
    "compact": "compaction",
}
"""The tasks of a Dataset: field of its status with the task run, by verb of the task's jobs."""


class DatasetStatus(Status, TableState):
    """The observed state of the table. All numbers are those of the current version."""

    uuid: str | None = None
    """The name of the dataset in the store."""
    size: str | None = None
    """The size of the data files, human-readable."""
    deleted: bool = False
    """Whether the store holds a tombstone: the data was deleted, and can be restored within the grace period."""
    problem: str | None = None
    """Why the dataset cannot be written, as the last inspection found: `Reason: text`."""
    inspected_time: Time | None = None
    """Start of the last inspection that found a change of the dataset."""
    inspected_digest: str | None = None
    """A digest of the state that it found; absent after a later change."""
    deletion: OneShot | None = None
    """The deletion of the data."""
    restoration: OneShot | None = None
    """The restoration of the data."""
    indexing: TaskRun | None = None
    """The job that reconciles the indices with spec.table."""
    skipping_achieved: SkippingAchieved | None = None
    """The effect of the skipping metadata on recent Queries of this namespace."""
    describing: TaskRun | None = None
    """The job that reconciles the skipping metadata with spec.table."""
    tagging: TaskRun | None = None
    """The job that reconciles the tags with spec.tags."""
    compaction: CompactionState | None = None
    """The last compaction by spec.maintenance.compaction."""
    defining: TaskRun | None = None
    """The job that appends the events of spec.ledger to the chain."""
    polling: PollState | None = None
    """The last poll of the chain's source."""
    transforming: TransformState | None = None
    """The last run of a derivative."""
    lineage: Lineage | None = None
    """The ledgers from which its chain derives, and those that derive from it."""
    healing: TaskRun | None = None
    """The job that rebuilds derived objects, such as indices, that are missing or out of date."""
    ailments: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Derived objects that the last inspection found missing or out of date, each in a few words."""
    corrupt: str | None = None
    """Which data files are lost, of which versions, and which version is complete."""
    intake: Intake | None = None
    """The last ingestion job of one of the sources."""
    sources: tuple[SourceState, ...] = ()
    """The ingestion state of each source."""


class Dataset(Resource):
    """A Dataset is a versioned Parquet table in an ObjectStore, in the format of Kartothek. Commits change it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *Resource.rules,
        Rule(
            cel="!has(self.spec.uuid) || !self.spec.uuid.startsWith('++')",
            message="spec.uuid begins with '++', which is kept for the heads of cubes: choose another",
            holds=lambda self: self.spec.uuid is None or not self.spec.uuid.startswith("++"),
        ),
        Rule(
            cel="!has(self.spec.writers) || self.spec.writers.size() == 0 || !has(self.spec.uuid) || "
            "!self.spec.uuid.contains('++')",
            message="spec.writers goes without '++' in spec.uuid: a dataset of a cube changes with its Cube. Remove it",
            holds=lambda self: not self.spec.writers or self.spec.uuid is None or "++" not in self.spec.uuid,
        ),
        Rule(
            cel="!has(self.spec.ledger) || !has(self.spec.uuid) || !self.spec.uuid.contains('++')",
            message="spec.uuid has '++', as a dataset of a cube, and a ledger is none: its rows change with its chain, "
            "not with a cube. Choose another uuid",
            holds=lambda self: self.spec.ledger is None or self.spec.uuid is None or "++" not in self.spec.uuid,
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
        """The name of its Cube, if any: then only changes of the Cube change its rows."""
        owner = self.controller
        return owner.name if owner is not None and owner.kind == "Cube" else None

    @property
    def writable(self) -> bool:
        """Whether jobs can write to the table. Problems with a reason of ``SOURCE_TROUBLES`` do not prevent writes."""
        return self.ready_but_for(SOURCE_TROUBLES)
