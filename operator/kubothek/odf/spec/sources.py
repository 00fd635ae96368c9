"""The parts of events that say where data comes from and how it is read, transformed and merged.

As in ``events``, these classes are the schema: read its docstring first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from kubothek.odf.spec.data_schema import DataSchema, Int32
from kubothek.odf.spec.unknown import Unknown

# --- fetch -----------------------------------------------------------------------------------------------------------


class SourceOrdering(Enum):
    """The order in which the files of a glob are read."""

    BY_EVENT_TIME = "ByEventTime"
    BY_NAME = "ByName"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeSourceFromMetadata:
    """Event time from the server's metadata of the file."""

    kind: ClassVar[str] = "FromMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeSourceFromPath:
    """Event time from the file's name: the first group of a regular expression."""

    kind: ClassVar[str] = "FromPath"
    pattern: str
    timestamp_format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeSourceFromSystemTime:
    """Event time is the time of the ingestion."""

    kind: ClassVar[str] = "FromSystemTime"


EventTimeSource: TypeAlias = (
    EventTimeSourceFromMetadata | EventTimeSourceFromPath | EventTimeSourceFromSystemTime | Unknown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCachingForever:
    """A file that was ingested is never fetched again."""

    kind: ClassVar[str] = "Forever"


SourceCaching: TypeAlias = SourceCachingForever | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """A header of the HTTP request."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVar:
    """A variable of a container's environment; without a value, that of the host."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStepUrl:
    """One file from a URL."""

    kind: ClassVar[str] = "Url"
    url: str
    event_time: EventTimeSource | None = None
    cache: SourceCaching | None = None
    headers: tuple[RequestHeader, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStepFilesGlob:
    """Files that match a pattern, one after another."""

    kind: ClassVar[str] = "FilesGlob"
    path: str
    event_time: EventTimeSource | None = None
    cache: SourceCaching | None = None
    order: SourceOrdering | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStepContainer:
    """The standard output of a container."""

    kind: ClassVar[str] = "Container"
    image: str
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


class MqttQos(Enum):
    """The quality of service of a subscription (MQTT 5.0, 4.3)."""

    AT_MOST_ONCE = "AtMostOnce"
    AT_LEAST_ONCE = "AtLeastOnce"
    EXACTLY_ONCE = "ExactlyOnce"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttTopicSubscription:
    """A topic or a pattern of topics; absent ``qos`` means AtMostOnce."""

    path: str
    qos: MqttQos | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStepMqtt:
    """Messages of an MQTT broker (specification 0.35)."""

    kind: ClassVar[str] = "Mqtt"
    host: str
    port: Int32
    username: str | None = None
    password: str | None = None
    topics: tuple[MqttTopicSubscription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStepEthereumLogs:
    """Transaction logs of an Ethereum node (specification 0.36); ``filter`` is a WHERE clause of SQL."""

    kind: ClassVar[str] = "EthereumLogs"
    chain_id: int | None = None
    node_url: str | None = None
    filter: str | None = None
    signature: str | None = None


FetchStep: TypeAlias = (
    FetchStepUrl | FetchStepFilesGlob | FetchStepContainer | FetchStepMqtt | FetchStepEthereumLogs | Unknown
)


# --- prepare ---------------------------------------------------------------------------------------------------------


class CompressionFormat(Enum):
    """The compression of a file."""

    GZIP = "Gzip"
    ZIP = "Zip"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepStepDecompress:
    """Decompression; ``sub_path`` selects a file in an archive."""

    kind: ClassVar[str] = "Decompress"
    format: CompressionFormat
    sub_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepStepPipe:
    """A command that reads the file from its standard input, and writes the result to its standard output."""

    kind: ClassVar[str] = "Pipe"
    command: tuple[str, ...]


PrepStep: TypeAlias = PrepStepDecompress | PrepStepPipe | Unknown


# --- read ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepCsv:
    """Comma-separated values; absent options have the defaults of RD-01."""

    kind: ClassVar[str] = "Csv"
    ddl_schema: tuple[str, ...] | None = None
    separator: str | None = None
    encoding: str | None = None
    quote: str | None = None
    escape: str | None = None
    header: bool | None = None
    infer_schema: bool | None = None
    null_value: str | None = None
    date_format: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepGeoJson:
    """One FeatureCollection."""

    kind: ClassVar[str] = "GeoJson"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepEsriShapefile:
    """A zipped shapefile; ``sub_path`` selects one."""

    kind: ClassVar[str] = "EsriShapefile"
    ddl_schema: tuple[str, ...] | None = None
    sub_path: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepParquet:
    """Apache Parquet."""

    kind: ClassVar[str] = "Parquet"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepJson:
    """An array of objects, at ``sub_path`` (``a.b.c``)."""

    kind: ClassVar[str] = "Json"
    sub_path: str | None = None
    ddl_schema: tuple[str, ...] | None = None
    date_format: str | None = None
    encoding: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepNdJson:
    """One object per line."""

    kind: ClassVar[str] = "NdJson"
    ddl_schema: tuple[str, ...] | None = None
    date_format: str | None = None
    encoding: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStepNdGeoJson:
    """One Feature per line."""

    kind: ClassVar[str] = "NdGeoJson"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


ReadStep: TypeAlias = (
    ReadStepCsv
    | ReadStepGeoJson
    | ReadStepEsriShapefile
    | ReadStepParquet
    | ReadStepJson
    | ReadStepNdJson
    | ReadStepNdGeoJson
    | Unknown
)


# --- transform -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlQueryStep:
    """A query; with an alias, a view for later ones."""

    alias: str | None = None
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalTable:
    """An input that Flink treats as a temporal table."""

    name: str
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSql:
    """SQL; a chain never holds ``query``, only ``queries`` (ST-03)."""

    kind: ClassVar[str] = "Sql"
    engine: str
    version: str | None = None
    query: str | None = None
    queries: tuple[SqlQueryStep, ...] | None = None
    temporal_tables: tuple[TemporalTable, ...] | None = None


Transform: TypeAlias = TransformSql | Unknown


# --- merge -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStrategyAppend:
    """All records are new."""

    kind: ClassVar[str] = "Append"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStrategyLedger:
    """Records with a key that was never seen are new."""

    kind: ClassVar[str] = "Ledger"
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStrategySnapshot:
    """Each batch is the whole state; its differences from the last one are the records."""

    kind: ClassVar[str] = "Snapshot"
    primary_key: tuple[str, ...]
    compare_columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStrategyChangelogStream:
    """Each batch has the operations already: appends, retractions and corrections (specification 0.37, RFC-015)."""

    kind: ClassVar[str] = "ChangelogStream"
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStrategyUpsertStream:
    """Each batch has upserts and deletions; an upsert of a known key is a correction (specification 0.37)."""

    kind: ClassVar[str] = "UpsertStream"
    primary_key: tuple[str, ...]


MergeStrategy: TypeAlias = (
    MergeStrategyAppend
    | MergeStrategyLedger
    | MergeStrategySnapshot
    | MergeStrategyChangelogStream
    | MergeStrategyUpsertStream
    | Unknown
)
