"""What job specs of several verbs are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Plain(BaseModel):
    """Plain data: unknown fields are refused, as operator and image may differ; nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreRef(Plain):
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


class Column(Plain):
    """One column of an explicit schema: an Arrow type by its usual name, e.g. ``int64``, ``timestamp[us, tz=UTC]``."""

    name: str
    type: str
    nullable: bool = True


class CsvOptions(Plain):
    """How to read CSV; the defaults read what spreadsheets and R write."""

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    null_values: tuple[str, ...] = ("", "NA", "NULL", "null")


class SourceSpec(Plain):
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


class IndexSpec(Plain):
    """A secondary index that a table is to have."""

    column: str
    kind: Literal["Kartothek", "Native"] = "Native"


class SkippingIndexSpec(Plain):
    """A skipping index. ``type`` and ``params`` as in the manifest; ``key``: the name of the key that encrypts it."""

    type: str
    columns: tuple[str, ...]
    params: dict[str, str] = {}
    key: str | None = None


class SkippingSpec(Plain):
    """The skipping indices that files are to have; with ``auto``, others are chosen as well."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    auto: bool = False
    footer_key: str | None = None
    plaintext_footer: bool = False


class FilterSeen(Plain):
    """How many of the recent queries filtered a column in one way: ``Equal``, ``Range``, ``Prefix`` …"""

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


class Clustering(Plain):
    """The order that a compaction puts the rows of a partition in: by the columns, or along a curve through them."""

    by: tuple[str, ...]
    curve: bool = False


class Claim(Plain):
    """Who asks to own the dataset: ``<clusterId>/<namespace>/<name>``, and its incarnation: the uid of the Dataset."""

    owner: str
    incarnation: str


class DatasetRef(Plain):
    """A dataset as a job needs it."""

    uuid: str
    claim: Claim
    table: TableSpec = TableSpec()
    adopt: bool = False
    """Whether the claim may take over a dataset that another library made."""
    clustering: Clustering | None = None
    """Of spec.maintenance.compaction."""


class RemoteRef(Plain):
    """A dataset in a Repository as a job needs it. The Repository's Secret is mounted at ``secret_dir``."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    secret_dir: str | None = None
    ca_bundle: str | None = None
    """Certificates in PEM that are trusted in place of the usual ones."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that ``url`` may name; ``("*",)`` and file URLs only outside a cluster (``allow_local``)."""
    allow_local: bool = False


class InputRef(Plain):
    """An input of a derivative: ``reference`` as its manifest has it, and the dataset that it is in the same store."""

    reference: str
    uuid: str


class OpenLineage(Plain):
    """Where runs are told of, as OpenLineage has it: the collector's url, and the namespace of the jobs."""

    url: str
    namespace: str


class SparkSettings(Plain):
    """How the driver sizes its Spark session; ``from_bytes`` is the source size above which Spark carries the work."""

    from_bytes: int = 32 * 1024 * 1024
    conf: dict[str, str] = {}


class BaseJob(Plain):
    """What all jobs share. ``uid`` and ``attempt`` name the run; ``job`` is unique per attempt."""

    job: str
    uid: str
    attempt: int = 1
    store: StoreRef
