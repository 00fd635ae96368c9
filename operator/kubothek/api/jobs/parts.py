"""Parts of job specs that several verbs share.

A part with the same fields as a model of a kind is that model: in a job spec its fields have their Python names.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kubothek.api.files import Csv
from kubothek.api.table import Index
from kubothek.api.values import Column


class Plain(BaseModel):
    """Base of immutable data. Unknown fields are errors, as the versions of operator and image may differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreRef(Plain):
    """An ObjectStore, by its ``name``; its Secret is mounted at ``credentials_dir``."""

    name: str
    url: str
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    keys_dir: str | None = None
    """The mount path of the Secret with the keys of encrypted metadata."""
    conditional_writes: bool | None = None
    """The result of the last inspection; None: the job must probe the store."""


class SourceSpec(Plain):
    """Where rows come from: keys in a store, or URLs. Exactly one of ``paths`` and ``urls`` is set."""

    store: StoreRef | None = None
    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    format: Literal["CSV", "JSONLines", "Parquet"]
    compression: Literal["Auto", "None", "Gzip", "Zip"] = "Auto"
    csv: Csv = Csv()
    columns: tuple[Column, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that ``urls`` may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False


class StatementSpec(Plain):
    """One SELECT over the datasets of a store, and its limits. At most one of the ``as_of`` fields is set."""

    store: StoreRef
    sql: str
    as_of_version: int | None = None
    as_of_time: str | None = None
    as_of_tag: str | None = None
    as_at: str | None = None
    memory_bytes: int = 1024 * 1024 * 1024
    time_limit_seconds: float = 3600.0


class SkippingIndexSpec(Plain):
    """A skipping index. ``type`` and ``params`` are as in the manifest; ``key`` names the key that encrypts it."""

    type: str
    columns: tuple[str, ...]
    params: dict[str, str] = {}
    key: str | None = None


class SkippingSpec(Plain):
    """The desired skipping indices of files; with ``auto`` the job chooses further ones."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    auto: bool = False
    footer_key: str | None = None
    plaintext_footer: bool = False


class FilterSeen(Plain):
    """Number of recent queries that filtered a column in one way: ``Equal``, ``Range``, ``Prefix`` …"""

    column: str
    kind: str
    queries: int = 1


class TableSpec(Plain):
    """The layout of a dataset's table."""

    partition_on: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    num_buckets: int = 0
    target_file_bytes: int = 128 * 1024 * 1024
    row_group_rows: int = 1024 * 1024
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    dictionary_columns: tuple[str, ...] | None = None
    """None: all columns, each as long as its dictionary stays small enough to pay."""
    columns: tuple[Column, ...] = ()
    """The contract of spec.table.schema; empty = the columns of the first commit."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    indices: tuple[Index, ...] | None = None
    """None: keep those of the table."""
    skipping: SkippingSpec | None = None
    """None: keep that of the table."""
    dialect: Literal["Kartothek", "Plateau"] | None = None
    """None: keep that of the table."""


class Clustering(Plain):
    """The sort order of a compaction: by the columns, or along a space-filling ``curve`` through them."""

    by: tuple[str, ...]
    curve: bool = False


class Claim(Plain):
    """A claim to own the dataset: the owner ``<clusterId>/<namespace>/<name>``, and the uid of its Dataset."""

    owner: str
    incarnation: str


class WriterRef(Plain):
    """A client of the library that may commit to a dataset, by its identity, and its operations."""

    name: str
    operations: tuple[str, ...]


class DatasetRef(Plain):
    """A dataset, with its claim and layout."""

    uuid: str
    claim: Claim
    table: TableSpec = TableSpec()
    adopt: bool = False
    """Whether the claim may adopt a dataset of another library."""
    clustering: Clustering | None = None
    """The sort order of spec.maintenance.compaction."""
    iceberg: Literal["Off", "Omit", "Refuse"] | None = None
    """The export of Iceberg metadata after commits, by what happens to columns of types that Iceberg lacks. None: keep
    that of the table."""
    version_hint: bool = True
    """Whether these exports also write version-hint.text."""
    writers: tuple[WriterRef, ...] = ()


class RemoteRef(Plain):
    """A dataset in a Repository, whose Secret is mounted at ``secret_dir``."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    secret_dir: str | None = None
    ca_bundle: str | None = None
    """Trusted certificates in PEM, instead of the system's."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that ``url`` may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False


class InputRef(Plain):
    """An input of a derivative: the ``reference`` in its manifest, and the UUID of that dataset in the same store."""

    reference: str
    uuid: str


class OpenLineage(Plain):
    """The collector of OpenLineage events: its url, and the namespace of the jobs.

    ``job`` is the name of the job; None: that of the dataset that it writes.
    """

    url: str
    namespace: str
    job: str | None = None


class SparkSettings(Plain):
    """Settings of the Spark session; ``from_bytes`` is the source size from which Spark does the work."""

    from_bytes: int = 32 * 1024 * 1024
    conf: dict[str, str] = {}


class BaseJob(Plain):
    """Fields of all jobs. ``uid`` and ``attempt`` name the run; ``job`` is unique per attempt."""

    job: str
    uid: str
    attempt: int = 1
    store: StoreRef
