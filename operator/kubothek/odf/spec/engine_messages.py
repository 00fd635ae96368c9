"""The messages between a coordinator and an engine (EN-12 … EN-19), in the same form as the events of a chain.

Each message is a FlatBuffers buffer of its own; answers are wrapped, as a union cannot be a root. As in ``events``,
these classes are the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from kubothek.odf.spec.decode import Decoder
from kubothek.odf.spec.encode import Encoder
from kubothek.odf.spec.events import OffsetInterval
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.sources import Transform
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown

_Message = TypeVar("_Message")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVocabulary:
    """The names of the common columns."""

    offset_column: str
    operation_type_column: str
    system_time_column: str
    event_time_column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """A watermark (``event_time``), and the system time at which it was known."""

    system_time: Timestamp
    event_time: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRequestInput:
    """An input; ``offset_interval`` says which records of the files are new, None: none."""

    dataset_id: DatasetId
    dataset_alias: str
    query_alias: str
    vocab: DatasetVocabulary
    offset_interval: OffsetInterval | None = None
    data_paths: tuple[str, ...]
    schema_file: str
    explicit_watermarks: tuple[Watermark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRequest:
    """One run of a transformation."""

    dataset_id: DatasetId
    dataset_alias: str
    system_time: Timestamp
    vocab: DatasetVocabulary
    transform: Transform
    query_inputs: tuple[TransformRequestInput, ...]
    next_offset: int
    prev_checkpoint_path: str | None = None
    new_checkpoint_path: str
    new_data_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryRequest:
    """A query over files, with no state (PP-02)."""

    input_data_paths: tuple[str, ...]
    transform: Transform
    output_data_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResponseProgress:
    """The engine is still running."""

    kind: ClassVar[str] = "Progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResponseSuccess:
    """The new records, and the new watermark."""

    kind: ClassVar[str] = "Success"
    new_offset_interval: OffsetInterval | None = None
    new_watermark: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResponseInvalidQuery:
    """The query is wrong."""

    kind: ClassVar[str] = "InvalidQuery"
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResponseInternalError:
    """The engine failed."""

    kind: ClassVar[str] = "InternalError"
    message: str
    backtrace: str | None = None


TransformResponse: TypeAlias = (
    TransformResponseProgress
    | TransformResponseSuccess
    | TransformResponseInvalidQuery
    | TransformResponseInternalError
    | Unknown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResponseRoot:
    """The answer of an engine to a TransformRequest."""

    value: TransformResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryResponseProgress:
    """The engine is still running."""

    kind: ClassVar[str] = "Progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryResponseSuccess:
    """The number of written records; with none, the output is ignored."""

    kind: ClassVar[str] = "Success"
    num_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryResponseInvalidQuery:
    """The query is wrong."""

    kind: ClassVar[str] = "InvalidQuery"
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryResponseInternalError:
    """The engine failed."""

    kind: ClassVar[str] = "InternalError"
    message: str
    backtrace: str | None = None


RawQueryResponse: TypeAlias = (
    RawQueryResponseProgress
    | RawQueryResponseSuccess
    | RawQueryResponseInvalidQuery
    | RawQueryResponseInternalError
    | Unknown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQueryResponseRoot:
    """The answer of an engine to a RawQueryRequest."""

    value: RawQueryResponse


def encode_message(message: Any) -> bytes:
    """Encode a message for engines of the 0.34 era. Raises InputError for what the format cannot hold."""
    return Encoder(alignment=1).finish(message)


def decode_message(kind: type[_Message], data: bytes) -> _Message:
    """Decode a message. Raises FormatInvalid."""
    message: _Message = Decoder(data).root(kind)
    return message
