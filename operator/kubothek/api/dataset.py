"""Dataset: a versioned table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.ledger import Ledger, LedgerState
from kubothek.api.maintenance import Health, Maintenance
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.api.skipping import SkippingAchieved, SkippingStatus
from kubothek.api.sources import Intake, SourceState, StandingSource
from kubothek.api.table import Table
from kubothek.api.transforms import Lineage
from kubothek.api.values import Reference, TagName

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
"""Reasons for which a Dataset is not ready, though its table can be written."""


class Tag(Strict):
    """A name for a version."""

    name: TagName
    """The name."""
    version: Annotated[int, Field(ge=1)]
    """The version; one that can still be read."""


class Sharing(Strict):
    """Whether a gateway of the namespace gives the Dataset out."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.public || self.exposed",
            message="sharing.public goes with sharing.exposed: set exposed to true, or remove public",
            holds=lambda self: self.exposed or not self.public,
        ),
    )

    exposed: bool = False
    """Takes effect at once. True: a gateway serves it to those who may `get`, `push` to or `ingest` into it."""
    public: bool = False
    """Takes effect at once. True: whoever reaches the gateway may pull and query it, without a token."""


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


class RunHistory(Strict):
    """How many runs of a Dataset that have ended are kept."""

    complete: Annotated[int | None, Field(ge=1)] = None
    """Of each kind (Commit, Compaction, Verification), how many that are complete; default: all."""
    failed: Annotated[int | None, Field(ge=1)] = None
    """The same of those that failed; default: all."""


class DatasetSpec(Strict):
    """What the table is and where it lives."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_ordered_by("sortBy", "sort_by"),
        *_ordered_by("zOrderBy", "z_order_by"),
        Rule(
            cel="!has(self.ledger) || !has(self.sources) || self.sources.size() == 0",
            message="spec.sources goes without a ledger, whose sources are events: move them into ledger.metadata",
            holds=lambda self: self.ledger is None or not self.sources,
        ),
        Rule(
            cel="!has(self.ledger) || !self.adopt",
            message="adopt goes without a ledger: a chain is taken over by `kubothek import`",
            holds=lambda self: self.ledger is None or not self.adopt,
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
    ledger: Ledger | None = None
    """Immutable. (That it is there, not all that it says: see each field.) With it the Dataset is one of Open Data
    Fabric: a chain of events that anyone can verify, fed by sources; the table is its current state."""
    adopt: bool = False
    """Takes effect at the next inspection. True: if kartothek, plateau or another program made the dataset of this
    uuid, take it over as it is, with its columns, partitions and indices; table.partitionOn can then be left out. A
    dataset with several tables, or without a list of its partitions, is converted first: `kubothek adopt --convert`."""
    sources: Annotated[tuple[StandingSource, ...], Field(max_length=16), UniqueBy("name")] = ()
    """Takes effect at the next look. Where files land that become commits by themselves."""
    maintenance: Maintenance = Maintenance()
    """Takes effect at the next look, if its field does not say otherwise. What the operator does for the table by
    itself."""
    run_history: RunHistory = RunHistory()
    """Takes effect at the end of the next run. How many runs that have ended are kept; older ones are deleted, with
    their pods. Those that Argo CD, Flux or Helm applied do not count, and stay."""
    tags: Annotated[tuple[Tag, ...] | None, Field(max_length=64), UniqueBy("name")] = None
    """A job on edit. Versions that are kept whatever a GCPolicy says, readable by these names; an empty list drops
    those that are there. Left out: whatever `kubothek tag` does."""
    sharing: Sharing | None = None
    """Takes effect at once. With it gateways give the ledger to other parties; left out, or taken away: to nobody."""
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
    partition_on: tuple[str, ...] | None = None
    """The columns whose values name the directories, as the table in the store has them."""
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
    ledger: LedgerState | None = None
    """Its chain, if it has one."""


class OneShot(Attempts):
    """A job that is needed once: deletion or restoration."""

    done: bool = False
    """Whether it succeeded, or there was nothing to do."""
    problem: str | None = None
    """Why it was given up: `Reason: text`."""


class TaskRun(OneShot):
    """A job that makes the table what it should be: one for each cause."""

    cause: str = ""
    """What it was started for, such as a digest of what is wanted and what is there; empty when nothing was left to
    do."""
    due_time: Time | None = None
    """Since when there is a cause for it."""


class CompactionState(TaskRun):
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


class PollState(TaskRun):
    """The last poll; its cause is a digest of the events, with the time of a slot and the last request, if any."""

    slot: Time | None = None
    """The last slot of the schedule."""
    time: Time | None = None
    """When it was over."""
    records: int = 0
    """How many records it appended."""
    commits: int = 0
    """In how many commits; 0 if there was nothing new."""
    has_more: bool = False
    """Whether the container of the source said that there is more: another poll follows at once."""


class TransformState(TaskRun):
    """The last run of a derivative; its cause is a digest of the events and of the inputs as they were then, with the
    time of a slot and the last request, if any.
    """

    slot: Time | None = None
    """The last slot of the schedule."""
    waiting_since: Time | None = None
    """Since when there is something new in the inputs that no run was started for."""
    time: Time | None = None
    """When it was over."""
    version: int | None = None
    """The version that it made, if there was anything new."""
    records: int = 0
    """How many records it appended: retractions and corrections count as well."""


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
    """When the inspection began that last had something new to tell of the dataset: those after it found the same."""
    inspected_digest: str | None = None
    """A digest of what it told; absent when something else has changed the table since."""
    deletion: OneShot | None = None
    """How far the deletion of the data is."""
    restoration: OneShot | None = None
    """How far the restoration of the data is."""
    indexing: TaskRun | None = None
    """How far the job is that makes the indices what spec.table says."""
    skipping_achieved: SkippingAchieved | None = None
    """What recent Queries of this namespace had of the skipping metadata."""
    describing: TaskRun | None = None
    """How far the job is that makes the skipping metadata what spec.table says."""
    tagging: TaskRun | None = None
    """How far the job is that makes the tags what spec.tags says."""
    compaction: CompactionState | None = None
    """The last compaction that spec.maintenance.compaction asked for."""
    defining: TaskRun | None = None
    """How far the job is that makes the chain hold the events of spec.ledger."""
    polling: PollState | None = None
    """The last poll of the chain's source."""
    transforming: TransformState | None = None
    """The last run of a derivative."""
    lineage: Lineage | None = None
    """Where its chain comes from, and who reads it."""
    healing: TaskRun | None = None
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
