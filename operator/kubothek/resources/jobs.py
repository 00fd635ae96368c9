"""What passes between the control plane and the data plane: a job spec in, a job result out, both plain JSON.

``reconcile`` writes job specs and reads results; ``jobs`` does the reverse. Neither knows the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

RESULT_LIMIT_BYTES = 4096
"""Kubernetes keeps this much of a container's termination message."""


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreRef(_Plain):
    """An ObjectStore as a job needs it. ``name`` is the ObjectStore's; its Secret is mounted at ``credentials_dir``."""

    name: str
    url: str
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    keys_dir: str | None = None
    """Where the Secret with the keys of encrypted metadata is mounted."""
    conditional_writes: bool | None = None
    """What the last inspection found; None: the job has to probe the store itself."""


class Column(_Plain):
    """One column of an explicit schema: an Arrow type by its usual name, e.g. ``int64``, ``timestamp[us]``."""

    name: str
    type: str
    nullable: bool = True


class CsvOptions(_Plain):
    """How to read CSV; the defaults read what spreadsheets and R write."""

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    null_values: tuple[str, ...] = ("", "NA", "NULL", "null")


class SourceSpec(_Plain):
    """Where rows come from: keys in a store, or URLs. Exactly one of ``paths`` and ``urls`` is set."""

    store: StoreRef | None = None
    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    format: Literal["CSV", "JSONLines", "Parquet"]
    compression: Literal["Auto", "None", "Gzip", "Zip"] = "Auto"
    csv: CsvOptions = CsvOptions()
    columns: tuple[Column, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that ``urls`` may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False


class IndexSpec(_Plain):
    """A secondary index that a table is to have."""

    column: str
    kind: Literal["Kartothek", "Native"] = "Native"


class SkippingIndexSpec(_Plain):
    """A skipping index. ``type`` and ``params`` as in the manifest; ``key``: the name of the key that encrypts it."""

    type: str
    columns: tuple[str, ...]
    params: dict[str, str] = {}
    key: str | None = None


class SkippingSpec(_Plain):
    """The skipping indices that files are to have; with ``auto``, others are chosen as well."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    auto: bool = False
    footer_key: str | None = None
    plaintext_footer: bool = False


class FilterSeen(_Plain):
    """How many of the recent queries filtered a column in one way: ``Equal``, ``Range``, ``Prefix`` …"""

    column: str
    kind: str
    queries: int = 1


class TableSpec(_Plain):
    """The layout of a dataset's table."""

    partition_on: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    num_buckets: int = 0
    target_file_bytes: int = 128 * 1024 * 1024
    row_group_rows: int = 1024 * 1024
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    dictionary_columns: tuple[str, ...] | None = None
    """None: all, as far as it pays."""
    columns: tuple[Column, ...] = ()
    """The contract of spec.table.schema: empty = whatever the first commit brings."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    indices: tuple[IndexSpec, ...] | None = None
    """None: those that the table has."""
    skipping: SkippingSpec | None = None
    """None: that which the table has."""
    dialect: Literal["Kartothek", "Plateau"] | None = None
    """None: the one that the table has."""


class Clustering(_Plain):
    """The order that a compaction puts the rows of a partition in: by the columns, or along a curve through them."""

    by: tuple[str, ...]
    curve: bool = False


class Claim(_Plain):
    """Who asks to own the dataset: ``<clusterId>/<namespace>/<name>``, and its incarnation: the uid of the Dataset."""

    owner: str
    incarnation: str


class DatasetRef(_Plain):
    """A dataset as a job needs it."""

    uuid: str
    claim: Claim
    table: TableSpec = TableSpec()
    adopt: bool = False
    """Whether the claim may take over a dataset that another library made."""
    clustering: Clustering | None = None
    """Of spec.maintenance.compaction."""


class SparkSettings(_Plain):
    """How the driver sizes its Spark session; ``from_bytes`` is the source size above which Spark carries the work."""

    from_bytes: int = 32 * 1024 * 1024
    conf: dict[str, str] = {}


class _Job(_Plain):
    """What all jobs share. ``uid`` and ``attempt`` name the run; ``job`` is unique per attempt."""

    job: str
    uid: str
    attempt: int = 1
    store: StoreRef


class CommitJob(_Job):
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
    """Of Replace, Delete and Update, in the language of :mod:`kubothek.lake.predicates`."""
    new_values: dict[str, str] = {}
    """Of Update: literals by column."""
    row_level: bool = False
    purge: bool = False
    """Of Delete: all versions before it expire."""
    to_version: int | None = None
    to_time: datetime | None = None
    to_tag: str | None = None
    allow_schema_change: bool = False
    on_conflict: Literal["Fail", "Retry"] = "Fail"
    spark: SparkSettings = SparkSettings()


class CubeMemberRef(_Plain):
    """A dataset of a cube as a job needs it. ``partition_on`` None: as the cube is partitioned, or as it is."""

    name: str
    dataset: DatasetRef
    partition_on: tuple[str, ...] | None = None


class CubeRef(_Plain):
    """A cube as a job needs it. Without ``dimension_columns`` it is what the store has."""

    prefix: str
    seed: str = "seed"
    dimension_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()
    suppress_index_on: tuple[str, ...] = ()
    members: tuple[CubeMemberRef, ...] = ()


class CubeRows(_Plain):
    """The new rows of one dataset of a cube."""

    name: str
    source: SourceSpec


class CubeTarget(_Plain):
    """Where a cube is copied to; ``rename`` is new names of datasets by the old ones."""

    store: StoreRef
    prefix: str
    rename: dict[str, str] = {}
    overwrite: bool = False


class CubeJob(_Job):
    """Commit one change to one cube: to all of its datasets, or to none."""

    verb: Literal["cube"] = "cube"
    cube: CubeRef
    by: str
    """Who makes the change: ``<clusterId>/<namespace>/<name>`` of the Cube."""
    commit_id: str
    digest: str
    operation: Literal["Build", "Extend", "Append", "Update", "RemovePartitions", "Delete", "Copy", "Index", "Cleanup"]
    rows: tuple[CubeRows, ...] = ()
    """Of Build, Extend, Append and Update."""
    members: tuple[str, ...] | None = None
    """Of the others: which datasets; None: all."""
    where: str | None = None
    """Of Update and RemovePartitions: which partitions go."""
    columns: tuple[str, ...] = ()
    """Of Index."""
    target: CubeTarget | None = None
    """Of Copy."""
    overwrite: bool = False
    dry_run: bool = False
    spark: SparkSettings = SparkSettings()


class StalledFile(_Plain):
    """The version of a file at which a source stopped, and why: ``Reason: text``.

    ``version`` is that of the table for which it was read.
    """

    key: str
    etag: str
    version: int
    problem: str


class IntakeJob(_Job):
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
    spark: SparkSettings = SparkSettings()


class InspectJob(_Job):
    """Look at a store and at all Datasets and Cubes of it at once: probe, heads, claims; heals what a crash left half
    done.
    """

    verb: Literal["inspect"] = "inspect"
    cubes: tuple[CubeRef, ...] = ()
    datasets: tuple[DatasetRef, ...] = ()


class DeleteJob(_Job):
    """Delete a dataset: one tombstone commit. Its data is swept after the grace period."""

    verb: Literal["delete"] = "delete"
    dataset: DatasetRef


class IndexJob(_Job):
    """Give a table the indices that its Dataset names, and put right what is wrong with them."""

    verb: Literal["index"] = "index"
    dataset: DatasetRef


class SkipJob(_Job):
    """Give the files of a table the skipping metadata that its Dataset asks for."""

    verb: Literal["skip"] = "skip"
    dataset: DatasetRef
    seen: tuple[FilterSeen, ...] = ()
    """What ``auto`` goes by, besides the values of the table."""
    spark: SparkSettings = SparkSettings()


class PlainFiles(_Plain):
    """Files that Kubothek does not own: those of ``store`` below ``prefix`` that match ``glob``."""

    store: StoreRef
    prefix: str
    glob: str | None = None
    format: Literal["Parquet", "ORC", "CSV", "JSONLines"] = "Parquet"
    csv: CsvOptions = CsvOptions()
    columns: tuple[Column, ...] = ()


class SkipFilesJob(_Job):
    """Bring the metadata of plain files up to date, or delete it. ``store`` is that of the metadata."""

    verb: Literal["skip-files"] = "skip-files"
    name: str
    """Under which the metadata is kept: ``<namespace>.<name>`` of the SkippingIndex."""
    files: PlainFiles
    skipping: SkippingSpec
    drop: bool = False
    spark: SparkSettings = SparkSettings()


class RestoreJob(_Job):
    """Take a dataset's tombstone back, within the grace period."""

    verb: Literal["restore"] = "restore"
    dataset: DatasetRef


class QueryLocation(_Plain):
    """Where a query's rows go as a file: ``<path>/<uid>-<attempt>.<ending>`` in the store."""

    store: StoreRef
    path: str
    format: Literal["Parquet", "CSV", "JSONLines"]


class QueryDataset(_Plain):
    """The dataset that a query's rows become, and the store that it is in."""

    store: StoreRef
    dataset: DatasetRef
    commit_id: str


class CubeQuestion(_Plain):
    """Which cells of a cube, and which columns of them; see ``resources.cube_changes.CubeQuestion``."""

    prefix: str
    conditions: str | None = None
    dimension_columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ()
    payload_columns: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    newest_only: bool = False
    explain: bool = False


class QueryJob(_Job):
    """Run one SELECT over the datasets of ``store``, or ask a cube of it; exactly one of ``location`` and ``becomes``
    takes the rows.
    """

    verb: Literal["query"] = "query"
    sql: str | None = None
    cube: CubeQuestion | None = None
    as_of_version: int | None = None
    as_of_time: str | None = None
    as_of_tag: str | None = None
    location: QueryLocation | None = None
    becomes: QueryDataset | None = None
    memory_bytes: int = 1024 * 1024 * 1024
    time_limit_seconds: float = 3600.0


class CompactJob(_Job):
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


class HealJob(_Job):
    """Make anew what is derived from a table's data and is missing or lags; find out which data files are lost."""

    verb: Literal["heal"] = "heal"
    dataset: DatasetRef


class TagJob(_Job):
    """Give a table the tags that its Dataset names: versions by name."""

    verb: Literal["tag"] = "tag"
    dataset: DatasetRef
    tags: dict[str, int] = {}


class RetentionSpec(_Plain):
    """Which versions one policy keeps: so many, and those that were current within so many seconds; neither: all."""

    versions: int | None = None
    seconds: float | None = None


class CollectTarget(_Plain):
    """A dataset to collect. ``policies`` are all that select it: what any keeps is kept."""

    name: str
    """Of the Dataset."""
    dataset: DatasetRef
    policies: tuple[RetentionSpec, ...]


class CollectJob(_Job):
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
    | DeleteJob
    | RestoreJob
    | IndexJob
    | SkipJob
    | SkipFilesJob
    | IntakeJob
    | QueryJob
    | CompactJob
    | HealJob
    | TagJob
    | CollectJob
)
Job = Annotated[AnyJob, Field(discriminator="verb")]


class Totals(_Plain):
    """The size of a dataset at one version; ``bytes`` of its data files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0


class IndexState(_Plain):
    """A secondary index that a table has. Partial: it needs the work of an IndexJob; Stale: it has to be rebuilt."""

    column: str
    kind: Literal["Kartothek", "Native"]
    state: Literal["Ready", "Waiting", "Partial", "Stale"] = "Ready"
    rows: int = 0


class SkippingState(_Plain):
    """The skipping metadata of a table, which describes ``files`` of its data files."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    footer_key: str | None = None
    plaintext_footer: bool = False
    files: int = 0
    bytes: int = 0


class Bin(_Plain):
    """Files below ``below`` bytes (None: any), and not in the step before."""

    below: int | None = None
    files: int = 0


class HealthState(_Plain):
    """How a table is at ``version``, worked out from commit records; see ``resources.maintenance.Health``."""

    version: int
    small_files: int = 0
    small_percent: int = 0
    worst_partition_small_files: int = 0
    sizes: tuple[Bin, ...] = ()
    versions: int = 0
    history_files: int = 0
    history_bytes: int = 0
    garbage_files: int = 0
    garbage_bytes: int = 0


class DatasetState(_Plain):
    """A dataset's head, as a job saw it. ``version`` None = no head yet."""

    uuid: str
    version: int | None = None
    etag: str | None = None
    totals: Totals = Totals()
    last_commit_time: str | None = None
    owner: str | None = None
    problem: str | None = None
    """Reason and message ``Reason: text`` if the dataset cannot be written by the asking claim or is not whole."""
    deleted: bool = False
    indices: tuple[IndexState, ...] = ()
    skipping: SkippingState | None = None
    dialect: Literal["Kartothek", "Plateau"] = "Kartothek"
    tags: dict[str, int] = {}
    health: HealthState | None = None
    ailments: tuple[str, ...] = ()
    """What a HealJob would make anew, each as a few words."""
    corrupt: str | None = None
    """Which data files are lost, of which versions, and which version is whole."""


class CubeState(_Plain):
    """A cube's head, as a job saw it. ``version`` None = nothing of it is there yet; ``members`` are names."""

    prefix: str
    version: int | None = None
    last_commit_time: str | None = None
    seed: str = ""
    dimension_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    problem: str | None = None
    """Reason and message ``Reason: text`` if the cube cannot be written or is not what the asker says."""


class StoreState(_Plain):
    """What the probe of a store found."""

    conditional_writes: bool
    clock_skew_seconds: float = 0.0


class MemberOutcome(_Plain):
    """What a change of a cube did to one of its datasets."""

    name: str
    version: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0


class CommitOutcome(_Plain):
    """What a commit did; ``already_applied`` when it had happened before. ``version`` None: it makes none."""

    version: int | None
    already_applied: bool = False
    rows: int = 0
    files: int = 0
    bytes: int = 0
    members: tuple[MemberOutcome, ...] = ()
    """Of a change of a cube."""


class QueryRead(_Plain):
    """What was read of one dataset."""

    dataset: str
    version: int
    files: int = 0
    considered: int = 0
    """Files that skipping had to decide about, and ``skipped``, how many of them were not opened."""
    skipped: int = 0
    filters: tuple[str, ...] = ()
    """The first few of what it filtered by: ``column:Equal`` …"""


class QueryOutcome(_Plain):
    """What a query's rows became: the key ``location`` in its store, or the ``version`` of a dataset."""

    location: str | None = None
    version: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    reads: tuple[QueryRead, ...] = ()
    """The first few."""


class IntakeOutcome(_Plain):
    """What a look at a source found and did; times in ISO 8601.

    ``version`` is that of the last commit, None if there was none; ``commits``, ``files`` and ``rows`` are of this job,
    ``taken`` is how many files were ever taken.
    """

    version: int | None = None
    commits: int = 0
    files: int = 0
    rows: int = 0
    taken: int = 0
    last_file: str | None = None
    last_commit_time: str | None = None
    waiting_files: int = 0
    waiting_bytes: int = 0
    oldest_waiting: str | None = None
    current_until: str
    quarantined: int = 0
    refused: int = 0
    """How many files went into quarantine now, and ``refusal``, why the first of them: ``Reason: text``."""
    refusal: str | None = None
    stalled: StalledFile | None = None


class CompactOutcome(_Plain):
    """What a compaction did, or would do; ``version`` None if there was nothing to do."""

    version: int | None = None
    already_applied: bool = False
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    given_way: int = 0
    """Partitions of which files were left out, as another commit took some of them meanwhile."""


class KindCount(_Plain):
    """Objects of one kind."""

    kind: str
    objects: int = 0
    bytes: int = 0


LEFTOVERS = "~"
"""What stands in place of a target's name for all deleted datasets together: it comes after all names."""


class CollectOutcome(_Plain):
    """What was deleted, or would be, of the targets up to ``after``."""

    after: str
    """The last target that is through."""
    datasets: int = 0
    failed: int = 0
    problems: tuple[str, ...] = ()
    """The first few: ``name: Reason: text``."""
    collected: tuple[KindCount, ...] = ()


class SkipFilesOutcome(_Plain):
    """What was found, and done: ``described`` of ``files``. ``location`` is Xskipper's directory in the store."""

    location: str
    files: int = 0
    described: int = 0
    added: int = 0
    removed: int = 0
    bytes: int = 0
    indices: tuple[SkippingIndexSpec, ...] = ()
    left_out: tuple[str, ...] = ()
    """The first few files that could not be described, and why."""


class HealOutcome(_Plain):
    """What was made anew, each as a few words."""

    repaired: tuple[str, ...] = ()


class JobResult(_Plain):
    """The end of a job: one of success, or a failure with reason, message and whether to try again."""

    outcome: Literal["Succeeded", "Failed"]
    reason: str
    message: str = Field(max_length=2048)
    retryable: bool = False
    commit: CommitOutcome | None = None
    query: QueryOutcome | None = None
    intake: IntakeOutcome | None = None
    compact: CompactOutcome | None = None
    collect: CollectOutcome | None = None
    heal: HealOutcome | None = None
    skip_files: SkipFilesOutcome | None = None
    dataset: DatasetState | None = None
    datasets: tuple[DatasetState, ...] = ()
    cube: CubeState | None = None
    cubes: tuple[CubeState, ...] = ()
    store: StoreState | None = None
    truncated: bool = False
    """True when ``datasets``, ``cubes``, or details of the only one, did not fit: the full result is in the store."""


class Progress(_Plain):
    """How far a job is. ``stage`` is a word for people, such as Reading."""

    stage: str
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0


class ExitCode:
    """Exit codes of a job's process; they tell what to retry from what to report, also when the result is lost."""

    DONE = 0
    INTERNAL = 1
    INVALID = 10
    CONFLICT = 20
    FENCED = 21
    TRANSIENT = 30


JOB = TypeAdapter[AnyJob](Job)
"""Parses a job spec by its ``verb``."""
