"""What passes between the control plane and the data plane: a job spec in, a job result out, both plain JSON.

``reconcile`` writes job specs and reads results; ``jobs`` does the reverse. Neither knows the other.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

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


class TableSpec(_Plain):
    """The layout of a dataset's table."""

    partition_on: tuple[str, ...] = ()
    target_file_bytes: int = 128 * 1024 * 1024
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    columns: tuple[Column, ...] = ()
    """The contract of spec.table.schema: empty = whatever the first commit brings."""


class Claim(_Plain):
    """Who asks to own the dataset: ``<clusterId>/<namespace>/<name>``, and its incarnation: the uid of the Dataset."""

    owner: str
    incarnation: str


class DatasetRef(_Plain):
    """A dataset as a job needs it."""

    uuid: str
    claim: Claim
    table: TableSpec = TableSpec()


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
    operation: Literal["Append"] = "Append"
    source: SourceSpec
    on_conflict: Literal["Fail", "Retry"] = "Fail"
    spark: SparkSettings = SparkSettings()


class InspectJob(_Job):
    """Look at a store and at all Datasets of it at once: probe, heads, claims; heals what a crash left half done."""

    verb: Literal["inspect"] = "inspect"
    datasets: tuple[DatasetRef, ...] = ()


class DeleteJob(_Job):
    """Delete a dataset: one tombstone commit. Its data is swept after the grace period."""

    verb: Literal["delete"] = "delete"
    dataset: DatasetRef


class RestoreJob(_Job):
    """Take a dataset's tombstone back, within the grace period."""

    verb: Literal["restore"] = "restore"
    dataset: DatasetRef


Job = Annotated[CommitJob | InspectJob | DeleteJob | RestoreJob, Field(discriminator="verb")]


class Totals(_Plain):
    """The size of a dataset at one version; ``bytes`` of its data files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0


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


class StoreState(_Plain):
    """What the probe of a store found."""

    conditional_writes: bool
    clock_skew_seconds: float = 0.0


class CommitOutcome(_Plain):
    """What a commit did; ``already_applied`` when it had happened before."""

    version: int
    already_applied: bool = False
    rows: int = 0
    files: int = 0
    bytes: int = 0


class JobResult(_Plain):
    """The end of a job: one of success, or a failure with reason, message and whether to try again."""

    outcome: Literal["Succeeded", "Failed"]
    reason: str
    message: str = Field(max_length=2048)
    retryable: bool = False
    commit: CommitOutcome | None = None
    dataset: DatasetState | None = None
    datasets: tuple[DatasetState, ...] = ()
    store: StoreState | None = None
    truncated: bool = False
    """True when ``datasets`` did not fit: the full result is in the store."""


class Progress(_Plain):
    """How far a job is. ``stage`` is a word for people: Starting, Reading, Writing, Committing."""

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


JOB = TypeAdapter[CommitJob | InspectJob | DeleteJob | RestoreJob](Job)
"""Parses a job spec by its ``verb``."""
