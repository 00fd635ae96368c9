"""The events of a chain and their parts, as the schemas of the specification define them (EV-01).

This is the one source of truth. The order of fields is that of the FlatBuffers schema; the order of a union's members
gives their tags. A name in snake case is the FlatBuffers field, in camel case the YAML one. ``fields`` reads all of it
from these classes, and ``encode``, ``decode`` and ``manifests`` work from there. An optional field is one that may be
None. Numbers are unsigned with 64 bits.

``Unknown`` is a member of every union: what a later version of the specification added at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from kubothek.odf.spec.data_schema import DataSchema, ExtraAttributes
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.sources import FetchStep, MergeStrategy, PrepStep, ReadStep, Transform
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown


class DatasetKind(Enum):
    """The kind of a dataset. Root: data comes from outside. Derivative: from other datasets, by a transformation."""

    ROOT = "Root"
    DERIVATIVE = "Derivative"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetInterval:
    """The first and the last offset, both inclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSlice:
    """A Parquet file of records; ``size`` in bytes."""

    logical_hash: Multihash
    physical_hash: Multihash
    offset_interval: OffsetInterval
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A file with the state of an engine; ``size`` in bytes."""

    physical_hash: Multihash
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How far a source was read: for its next poll, opaque to everything else."""

    source_name: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddData:
    """New data of a root dataset; or only a new checkpoint, watermark or source state."""

    kind: ClassVar[str] = "AddData"
    prev_checkpoint: Multihash | None = None
    prev_offset: int | None = None
    new_data: DataSlice | None = None
    new_checkpoint: Checkpoint | None = None
    new_watermark: Timestamp | None = None
    new_source_state: SourceState | None = None
    extra: ExtraAttributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteTransformInput:
    """The part of an input that a transformation consumed: blocks and offsets after ``prev`` up to ``new``."""

    dataset_id: DatasetId
    prev_block_hash: Multihash | None = None
    new_block_hash: Multihash | None = None
    prev_offset: int | None = None
    new_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteTransform:
    """A run of a transformation, with the new data of a derivative dataset."""

    kind: ClassVar[str] = "ExecuteTransform"
    query_inputs: tuple[ExecuteTransformInput, ...]
    prev_checkpoint: Multihash | None = None
    prev_offset: int | None = None
    new_data: DataSlice | None = None
    new_checkpoint: Checkpoint | None = None
    new_watermark: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """The first event of every chain."""

    kind: ClassVar[str] = "Seed"
    essential: ClassVar[bool] = True
    """Without it nothing can be said of a chain, so it never becomes ``Unknown``."""
    dataset_id: DatasetId
    dataset_kind: DatasetKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPollingSource:
    """The source from which a root dataset fetches its data."""

    kind: ClassVar[str] = "SetPollingSource"
    fetch: FetchStep
    prepare: tuple[PrepStep, ...] | None = None
    read: ReadStep
    preprocess: Transform | None = None
    merge: MergeStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformInput:
    """An input of a transformation, and its name in queries."""

    dataset_ref: str
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransform:
    """The transformation that makes a derivative dataset of its inputs."""

    kind: ClassVar[str] = "SetTransform"
    inputs: tuple[TransformInput, ...]
    transform: Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class SetVocab:
    """The names of the common columns, where they differ from the defaults."""

    kind: ClassVar[str] = "SetVocab"
    offset_column: str | None = None
    operation_type_column: str | None = None
    system_time_column: str | None = None
    event_time_column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentEmbedded:
    """A text file that is embedded in the chain."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentsEmbedded:
    """Attachments inside of the event."""

    kind: ClassVar[str] = "Embedded"
    items: tuple[AttachmentEmbedded, ...]


Attachments: TypeAlias = AttachmentsEmbedded | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttachments:
    """All attachments from this event on."""

    kind: ClassVar[str] = "SetAttachments"
    attachments: Attachments


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInfo:
    """The description of a dataset."""

    kind: ClassVar[str] = "SetInfo"
    description: str | None = None
    keywords: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLicense:
    """The licence of the data."""

    kind: ClassVar[str] = "SetLicense"
    short_name: str
    name: str
    spdx_id: str | None = None
    website_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDataSchema:
    """The columns of all later slices.

    ``raw_arrow_schema``  an Arrow schema as a FlatBuffers root (``arrow_schema``): before specification 0.37 the only
                          field, deprecated since
    ``schema``            the logical schema (RFC-016)
    """

    kind: ClassVar[str] = "SetDataSchema"
    raw_arrow_schema: bytes | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPushSource:
    """How data that is pushed under this name is read and merged."""

    kind: ClassVar[str] = "AddPushSource"
    source_name: str
    read: ReadStep
    preprocess: Transform | None = None
    merge: MergeStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class DisablePushSource:
    """The end of a push source."""

    kind: ClassVar[str] = "DisablePushSource"
    source_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DisablePollingSource:
    """The end of the polling source."""

    kind: ClassVar[str] = "DisablePollingSource"


MetadataEvent: TypeAlias = (
    AddData
    | ExecuteTransform
    | Seed
    | SetPollingSource
    | SetTransform
    | SetVocab
    | SetAttachments
    | SetInfo
    | SetLicense
    | SetDataSchema
    | AddPushSource
    | DisablePushSource
    | DisablePollingSource
    | Unknown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBlock:
    """A block of the chain."""

    system_time: Timestamp
    prev_block_hash: Multihash | None = None
    sequence_number: int
    event: MetadataEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSnapshot:
    """The definition of a new dataset, in YAML only (SN-01): its creation writes a Seed and one block per event."""

    name: str
    kind: DatasetKind
    metadata: tuple[MetadataEvent, ...]
