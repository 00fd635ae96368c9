"""Job specs: a model a verb."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from kubothek.api.jobs.cubes import CubeJob, CubeQuestion, CubeRef
from kubothek.api.jobs.parts import (
    BaseJob,
    Clustering,
    Column,
    CsvOptions,
    DatasetRef,
    FilterSeen,
    InputRef,
    OpenLineage,
    Plain,
    RemoteRef,
    SkippingSpec,
    SourceSpec,
    SparkSettings,
    StoreRef,
)

OnChange = Literal["Stop", "Continue", "Reset"]
"""What a derivative does when its inputs or its SQL are not what they were: see ``resources.transforms.Transform``."""


class CommitJob(BaseJob):
    """Commit one change to one dataset."""

    verb: Literal["commit"] = "commit"
    dataset: DatasetRef
    commit_id: str
    digest: str
    """Digest of the part of the Commit's spec that says what it does; tells a reused id from a repeated one."""
    operation: Literal["Append", "Replace", "Overwrite", "Delete", "Update", "Rollback"] = "Append"
    source: SourceSpec | None = None
    """Of Append, Replace and Overwrite."""
    where: str | None = None
    """Of Replace, Delete and Update, in the language of :mod:`kubothek.table.expressions`."""
    new_values: dict[str, str] = Field(default_factory=dict)
    """Of Update: literals by column."""
    row_level: bool = False
    purge: bool = False
    """Of Delete: all versions before it expire."""
    to_version: int | None = None
    to_time: datetime | None = None
    to_tag: str | None = None
    allow_schema_change: bool = False
    on_conflict: Literal["Fail", "Retry"] = "Fail"
    push_source: str | None = None
    """Of an Append to a ledger: who takes the rows. None: the dataset is no ledger."""
    spark: SparkSettings = SparkSettings()


class StalledFile(Plain):
    """The version of a file at which a source stopped, and why: ``Reason: text``.

    ``version`` is that of the table for which it was read.
    """

    key: str
    etag: str
    version: int
    problem: str


class IntakeJob(BaseJob):
    """Take what landed for one standing source of a dataset."""

    verb: Literal["intake"] = "intake"
    dataset: DatasetRef
    name: str
    """The source."""
    source: SourceSpec
    """How its files are read, and the store in which they land; without paths."""
    prefix: str = ""
    glob: str = ""
    operation: Literal["Append", "Replace"] = "Append"
    max_files: int
    max_bytes: int
    quarantine: bool = False
    reading: str
    """Digest of everything that decides whether a file can be read."""
    stalled: StalledFile | None = None
    """Where the last look stopped, if its files were read in the same way."""
    deadline_seconds: int | None = None
    """After which its pod is stopped."""
    spark: SparkSettings = SparkSettings()


class InspectJob(BaseJob):
    """Look at a store and at all Datasets and Cubes of it at once: probe, heads, claims; heals what a crash left half
    done.
    """

    verb: Literal["inspect"] = "inspect"
    cubes: tuple[CubeRef, ...] = ()
    datasets: tuple[DatasetRef, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    """Digests of states (``DatasetState.digest``) by uuid, of cubes by that of their head: what is found so is not told
    again, so that the answer has room for what is new."""


class DeleteJob(BaseJob):
    """Delete a dataset: one tombstone commit. Its data is swept after the grace period."""

    verb: Literal["delete"] = "delete"
    dataset: DatasetRef


class LedgerJob(BaseJob):
    """Make the chain of a dataset hold the events that its Dataset asks for; there is none yet: create it."""

    verb: Literal["ledger"] = "ledger"
    dataset: DatasetRef
    kind: Literal["Root", "Derivative"] = "Root"
    metadata: tuple[dict[str, Any], ...] = ()
    """The events, as a DatasetSnapshot has them."""
    inputs: tuple[InputRef, ...] = ()
    """Of a derivative."""
    on_change: OnChange = "Stop"
    """What to do if the chain has another transformation."""
    types: Literal["Kamu", "Spec"] = "Kamu"
    view: bool = True
    """Whether the state is kept as a table."""
    identity_dir: str | None = None
    """Where the Secret with the private key is mounted; None: there is a chain already."""
    foreign: bool = False
    """Whether another engine than ours is to run the transformation, which alone knows its SQL."""


class SourceContainer(Plain):
    """A container that runs before the poll, whose job prepares it and then reads what it left."""

    image: str
    launcher_dir: str
    """What it begins with."""
    output_dir: str
    """Where it leaves its output."""

    @property
    def command(self) -> list[str]:
        """How it begins: with a shell that the launcher brings along, as its image may have none."""
        at = self.launcher_dir
        return [f"{at}/ld.so", "--library-path", at, f"{at}/sh", f"{at}/run"]


class PollJob(BaseJob):
    """Read the polling source of a dataset's chain until it has nothing new."""

    verb: Literal["poll"] = "poll"
    dataset: DatasetRef
    env_dir: str | None = None
    """Where the Secret with the variables of urls and headers is mounted."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that the source may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False
    fetch_uncacheable: bool = False
    """Whether a source is read again that does not say if it changed."""
    container: SourceContainer | None = None
    """What fetches, if the source is a container."""
    spark: SparkSettings = SparkSettings()


class SyncJob(BaseJob):
    """Make a dataset what it is in a Repository, or the other way round."""

    verb: Literal["sync"] = "sync"
    dataset: DatasetRef
    remote: RemoteRef
    direction: Literal["Pull", "Push"]
    force: bool = False
    """Whether blocks that only the target has are given up."""
    rows: bool | None = None
    """Of Pull: whether records are verified as well; None: where there is a table of them."""
    view: bool = True
    """Of Pull: whether a new dataset gets a table."""


class ForeignEngineRef(Plain):
    """An engine of another party: where it listens, and the directory that it shares with the job. ``container`` is its
    name in the job's own pod, which knows the digest of its image; None: it runs elsewhere.
    """

    image: str
    address: str
    volume_dir: str
    timeout_seconds: float
    container: str | None = None


class TransformJob(BaseJob):
    """Bring a derivative up to what its inputs are now."""

    verb: Literal["transform"] = "transform"
    dataset: DatasetRef
    inputs: tuple[InputRef, ...] = ()
    on_change: OnChange = "Stop"
    """What to do if an input has another schema or another history."""
    foreign: ForeignEngineRef | None = None
    """What runs the transformation; None: our own engine."""
    lineage: OpenLineage | None = None
    spark: SparkSettings = SparkSettings()
    """Of our own engine: what a run takes of the inputs, above the size from which Spark carries it."""


class IndexJob(BaseJob):
    """Give a table the indices that its Dataset names, and put right what is wrong with them."""

    verb: Literal["index"] = "index"
    dataset: DatasetRef


class SkipJob(BaseJob):
    """Give the files of a table the skipping metadata that its Dataset asks for."""

    verb: Literal["skip"] = "skip"
    dataset: DatasetRef
    seen: tuple[FilterSeen, ...] = ()
    """What ``auto`` goes by, besides the values of the table."""
    spark: SparkSettings = SparkSettings()


class PlainFiles(Plain):
    """Files that Kubothek does not own: those of ``store`` below ``prefix`` that match ``glob``."""

    store: StoreRef
    prefix: str
    glob: str | None = None
    format: Literal["Parquet", "ORC", "CSV", "JSONLines"] = "Parquet"
    csv: CsvOptions = CsvOptions()
    columns: tuple[Column, ...] = ()


class SkipFilesJob(BaseJob):
    """Bring the metadata of plain files up to date, or delete it. ``store`` is that of the metadata."""

    verb: Literal["skip-files"] = "skip-files"
    name: str
    """Under which the metadata is kept: ``<namespace>.<name>`` of the SkippingIndex."""
    files: PlainFiles
    skipping: SkippingSpec
    drop: bool = False
    spark: SparkSettings = SparkSettings()


class RestoreJob(BaseJob):
    """Take a dataset's tombstone back, within the grace period."""

    verb: Literal["restore"] = "restore"
    dataset: DatasetRef


class QueryLocation(Plain):
    """Where a query's rows go as a file: ``<path>/<uid>-<attempt>.<ending>`` in the store."""

    store: StoreRef
    path: str
    format: Literal["Parquet", "CSV", "JSONLines"]


class QueryDataset(Plain):
    """The dataset that a query's rows become, and the store that it is in."""

    store: StoreRef
    dataset: DatasetRef
    commit_id: str


class QueryJob(BaseJob):
    """Run one SELECT over the datasets of ``store``, or ask a cube of it; exactly one of ``location`` and ``becomes``
    takes the rows.
    """

    verb: Literal["query"] = "query"
    sql: str | None = None
    cube: CubeQuestion | None = None
    as_of_version: int | None = None
    as_of_time: str | None = None
    as_of_tag: str | None = None
    as_at: str | None = None
    location: QueryLocation | None = None
    becomes: QueryDataset | None = None
    memory_bytes: int = 1024 * 1024 * 1024
    time_limit_seconds: float = 3600.0


class CompactJob(BaseJob):
    """Rewrite small files of a table as fewer larger ones, in one commit that changes no row."""

    verb: Literal["compact"] = "compact"
    dataset: DatasetRef
    commit_id: str
    digest: str
    where: str | None = None
    target_file_bytes: int | None = None
    """None: that of the table."""
    min_files: int = 2
    min_small_percent: int = 0
    clustering: Clustering | None = None
    """None: that of the dataset."""
    dry_run: bool = False
    spark: SparkSettings = SparkSettings()


class HealJob(BaseJob):
    """Make anew what is derived from a table's data and is missing or lags; find out which data files are lost."""

    verb: Literal["heal"] = "heal"
    dataset: DatasetRef


class VerifyJob(BaseJob):
    """Find out whether a dataset is what was committed; it changes no data."""

    verb: Literal["verify"] = "verify"
    dataset: DatasetRef
    level: Literal["Chain", "Physical", "Full"] = "Full"
    since_version: int | None = None
    since_block: int | None = None
    until_version: int | None = None
    """None: the present one."""
    until_block: int | None = None
    recursive: bool = False
    """Whether the inputs of a derivative are verified in the same way, and theirs, up to the roots."""
    spark: SparkSettings = SparkSettings()


class TagJob(BaseJob):
    """Give a table the tags that its Dataset names: versions by name."""

    verb: Literal["tag"] = "tag"
    dataset: DatasetRef
    tags: dict[str, int] = Field(default_factory=dict)


class RetentionSpec(Plain):
    """Which versions one policy keeps: so many, and those that were current within so many seconds; neither: all."""

    versions: int | None = None
    seconds: float | None = None


class CollectTarget(Plain):
    """A dataset to collect. ``policies`` are all that select it: what any keeps is kept."""

    name: str
    """Of the Dataset."""
    dataset: DatasetRef
    policies: tuple[RetentionSpec, ...]


class CollectJob(BaseJob):
    """Delete, or only count, what no kept version of some datasets of a store needs; one after the other."""

    verb: Literal["collect"] = "collect"
    targets: tuple[CollectTarget, ...] = ()
    leftovers: str | None = None
    """What deleted datasets have left goes as well, of those claimed by an owner whose name begins so; None: it stays.
    """
    enforce: bool = False
    max_deletes: int = 1_000_000
    grace_seconds: float = 86400.0
    """The longest grace period of all policies that select Datasets of this store: put into the store, and obeyed."""
    spark: SparkSettings = SparkSettings()

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if not self.targets and self.leftovers is None:
            raise ValueError("there is nothing to collect: name targets, or whose leftovers")
        return self


AnyJob = (
    CommitJob
    | CubeJob
    | InspectJob
    | LedgerJob
    | PollJob
    | SyncJob
    | TransformJob
    | DeleteJob
    | RestoreJob
    | IndexJob
    | SkipJob
    | SkipFilesJob
    | IntakeJob
    | QueryJob
    | CompactJob
    | HealJob
    | VerifyJob
    | TagJob
    | CollectJob
)


Job = Annotated[AnyJob, Field(discriminator="verb")]


JOB = TypeAdapter[AnyJob](Job)
"""Parses a job spec by its ``verb``."""
