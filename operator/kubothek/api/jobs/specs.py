"""Job specs: one model per verb."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from kubothek.api.files import Csv
from kubothek.api.jobs.cubes import CubeJob, CubeQuestion, CubeRef
from kubothek.api.jobs.parts import (
    BaseJob,
    Clustering,
    DatasetRef,
    FilterSeen,
    InputRef,
    OpenLineage,
    Plain,
    RemoteRef,
    SkippingSpec,
    SourceSpec,
    SparkSettings,
    StatementSpec,
    StoreRef,
)
from kubothek.api.merge import MatchedClause, NotMatchedClause, UnsourcedClause
from kubothek.api.values import Column

OnChange = Literal["Stop", "Continue", "Reset"]
"""What a derivative does when its inputs or its SQL changed: see :class:`kubothek.api.transforms.Transform`."""


class CommitJob(BaseJob):
    """Commit one change to one dataset."""

    verb: Literal["commit"] = "commit"
    dataset: DatasetRef
    commit_id: str
    digest: str
    """Digest of the Commit's fields that define the change; distinguishes a reused id from a repeated one."""
    operation: Literal["Append", "Replace", "Overwrite", "Merge", "Delete", "Update", "Rollback"] = "Append"
    source: SourceSpec | None = None
    """For Append, Replace, Overwrite and Merge: files; None if the rows are those of ``statement``."""
    statement: StatementSpec | None = None
    """For Append, Replace, Overwrite and Merge: a SELECT, instead of ``source``."""
    key: tuple[str, ...] = ()
    """For Merge: the columns that identify a row; and its clauses."""
    when_matched: tuple[MatchedClause, ...] = ()
    when_not_matched: tuple[NotMatchedClause, ...] = ()
    when_not_matched_by_source: tuple[UnsourcedClause, ...] = ()
    where: str | None = None
    """For Replace, Delete and Update, in the language of :mod:`kubothek.table.expressions`."""
    new_values: dict[str, str] = Field(default_factory=dict)
    """For Update: literals by column."""
    row_level: bool = False
    purge: bool = False
    """For Delete: all earlier versions expire."""
    to_version: int | None = None
    to_time: datetime | None = None
    to_tag: str | None = None
    allow_schema_change: bool = False
    on_conflict: Literal["Fail", "Retry"] = "Fail"
    push_source: str | None = None
    """For Append to a ledger: its push source. None: the dataset is not a ledger."""
    lineage: OpenLineage | None = None
    """The collector of the run of a statement."""
    spark: SparkSettings = SparkSettings()


class StalledFile(Plain):
    """The version of a file at which a source stopped, and the ``problem``: ``Reason: text``.

    ``version`` is that of the table at that time.
    """

    key: str
    etag: str
    version: int
    problem: str


class IntakeJob(BaseJob):
    """Ingest new files of one standing source of a dataset."""

    verb: Literal["intake"] = "intake"
    dataset: DatasetRef
    name: str
    """The source."""
    source: SourceSpec
    """The format and the store of its files, without paths."""
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
    """Inspect a store with its Datasets and Cubes: probe, heads, claims; complete what a crash left half done."""

    verb: Literal["inspect"] = "inspect"
    cubes: tuple[CubeRef, ...] = ()
    datasets: tuple[DatasetRef, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    """Known digests of states (``DatasetState.digest``) by uuid, of cubes by that of their head. The result omits
    states with these digests, to have room for changes."""


class DeleteJob(BaseJob):
    """Delete a dataset by one tombstone commit. Garbage collection deletes its data after the grace period."""

    verb: Literal["delete"] = "delete"
    dataset: DatasetRef


class LedgerJob(BaseJob):
    """Append the events of a Dataset's spec to its chain; create the chain if there is none."""

    verb: Literal["ledger"] = "ledger"
    dataset: DatasetRef
    kind: Literal["Root", "Derivative"] = "Root"
    metadata: tuple[dict[str, Any], ...] = ()
    """The events, in the form of a DatasetSnapshot."""
    inputs: tuple[InputRef, ...] = ()
    """For a derivative."""
    on_change: OnChange = "Stop"
    """What to do if the chain has another transformation."""
    types: Literal["Kamu", "Spec"] = "Kamu"
    spec_version: str | None = None
    """The version of the specification of new blocks; None: what the chain has; a new chain: the newest."""
    view: bool = True
    """Whether the state is kept as a table."""
    identity_dir: str | None = None
    """The mount path of the Secret with the private key; None: the chain exists."""
    foreign: bool = False
    """Whether an external engine runs the transformation: then our engine does not check its SQL."""


class SourceContainer(Plain):
    """A source's container: the job prepares it before its run, and reads its output afterwards."""

    image: str
    launcher_dir: str
    """The directory of the launcher that it starts with."""
    output_dir: str
    """The directory of its output."""

    @property
    def command(self) -> list[str]:
        """Its command: the shell of the launcher, as its image may have none."""
        at = self.launcher_dir
        return [f"{at}/ld.so", "--library-path", at, f"{at}/sh", f"{at}/run"]


class PollJob(BaseJob):
    """Read the polling source of a dataset's chain until it has nothing new."""

    verb: Literal["poll"] = "poll"
    dataset: DatasetRef
    env_dir: str | None = None
    """The mount path of the Secret with the variables of urls and headers."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that the source may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False
    fetch_uncacheable: bool = False
    """Whether a source without cache validators (such as ETag) is read at every poll."""
    container: SourceContainer | None = None
    """The container, if the source is one."""
    spark: SparkSettings = SparkSettings()


class SyncJob(BaseJob):
    """Pull a dataset from a Repository, or push it to one."""

    verb: Literal["sync"] = "sync"
    dataset: DatasetRef
    remote: RemoteRef
    direction: Literal["Pull", "Push"]
    force: bool = False
    """Whether to drop blocks that only the target has."""
    rows: bool | None = None
    """For Pull: whether records are verified as well; None: if there is a table of them."""
    view: bool = True
    """For Pull: whether a new dataset gets a table."""


class ForeignEngineRef(Plain):
    """An external engine: its address, and the directory that it shares with the job.

    ``container`` is its name in the job's own pod, whose status has the digest of its image; None: it runs elsewhere.
    """

    image: str
    address: str
    volume_dir: str
    timeout_seconds: float
    container: str | None = None


class TransformJob(BaseJob):
    """Bring a derivative up to date with its inputs."""

    verb: Literal["transform"] = "transform"
    dataset: DatasetRef
    inputs: tuple[InputRef, ...] = ()
    on_change: OnChange = "Stop"
    """What to do if an input has another schema or another history."""
    foreign: ForeignEngineRef | None = None
    """The external engine that runs the transformation; None: our own engine."""
    lineage: OpenLineage | None = None
    spark: SparkSettings = SparkSettings()
    """For our own engine: Spark processes input data from ``from_bytes`` on."""


class IndexJob(BaseJob):
    """Reconcile the indices of a table with its Dataset, and repair them."""

    verb: Literal["index"] = "index"
    dataset: DatasetRef


class SkipJob(BaseJob):
    """Reconcile the skipping metadata of a table with its Dataset."""

    verb: Literal["skip"] = "skip"
    dataset: DatasetRef
    seen: tuple[FilterSeen, ...] = ()
    """Filters of recent queries, by which ``auto`` chooses indices, besides the values of the table."""
    spark: SparkSettings = SparkSettings()


class PlainFiles(Plain):
    """Files that Kubothek does not own: those of ``store`` below ``prefix`` that match ``glob``."""

    store: StoreRef
    prefix: str
    glob: str | None = None
    format: Literal["Parquet", "ORC", "CSV", "JSONLines"] = "Parquet"
    csv: Csv = Csv()
    columns: tuple[Column, ...] = ()


class SkipFilesJob(BaseJob):
    """Bring the metadata of plain files up to date, or delete it. ``store`` is that of the metadata."""

    verb: Literal["skip-files"] = "skip-files"
    name: str
    """The name of the metadata in the store: ``<namespace>.<name>`` of the SkippingIndex."""
    files: PlainFiles
    skipping: SkippingSpec
    drop: bool = False
    spark: SparkSettings = SparkSettings()


class RestoreJob(BaseJob):
    """Undo the deletion of a dataset, within the grace period."""

    verb: Literal["restore"] = "restore"
    dataset: DatasetRef


class QueryLocation(Plain):
    """The file for a query's rows: ``<path>/<uid>-<attempt>.<ending>`` in the store."""

    store: StoreRef
    path: str
    format: Literal["Parquet", "CSV", "JSONLines"]


class QueryDataset(Plain):
    """The dataset for a query's rows, and its store."""

    store: StoreRef
    dataset: DatasetRef
    commit_id: str
    key: tuple[str, ...] = ()
    """The columns by which the rows are merged; empty: the rows replace all rows."""
    run: int | None = None
    """The number of the run of a standing query, which must not read the dataset."""


class QueryJob(BaseJob):
    """Run one SELECT over the datasets of ``store``, or query a cube of it.

    The rows go to exactly one of ``location`` and ``becomes``.
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
    lineage: OpenLineage | None = None
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
    """Rebuild derived objects of a table that are missing or out of date; find lost data files."""

    verb: Literal["heal"] = "heal"
    dataset: DatasetRef


class VerifyJob(BaseJob):
    """Verify that a dataset is what was committed, without changing data."""

    verb: Literal["verify"] = "verify"
    dataset: DatasetRef
    level: Literal["Chain", "Physical", "Full"] = "Full"
    since_version: int | None = None
    since_block: int | None = None
    until_version: int | None = None
    """None: the current version."""
    until_block: int | None = None
    recursive: bool = False
    """Whether to verify the inputs of a derivative too, up to the roots."""
    spark: SparkSettings = SparkSettings()


class TagJob(BaseJob):
    """Reconcile the tags of a table, versions by name, with its Dataset."""

    verb: Literal["tag"] = "tag"
    dataset: DatasetRef
    tags: dict[str, int] = Field(default_factory=dict)


class RetentionSpec(Plain):
    """The versions that a policy keeps: the newest ``versions``, and those current within ``seconds``; neither: all."""

    versions: int | None = None
    seconds: float | None = None


class CollectTarget(Plain):
    """A dataset to collect. ``policies`` are all that select it: a version that any of them keeps is kept."""

    name: str
    """The name of the Dataset."""
    dataset: DatasetRef
    policies: tuple[RetentionSpec, ...]


class CollectJob(BaseJob):
    """Delete, or only count, objects that no kept version needs, of some datasets of a store in sequence."""

    verb: Literal["collect"] = "collect"
    targets: tuple[CollectTarget, ...] = ()
    leftovers: str | None = None
    """Prefix of owners whose deleted datasets are collected as well; None: no deleted datasets."""
    enforce: bool = False
    max_deletes: int = 1_000_000
    grace_seconds: float = 86400.0
    """The longest grace period of all policies that select Datasets of this store; the job records it in the store."""
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
