"""The logical schema of data (RFC-016): columns, their types, and attributes of extensions.

As in ``events``, these classes are the schema: read its docstring first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, TypeAlias

from kubothek.odf.spec.unknown import Unknown

Int32: TypeAlias = Annotated[int, "int32"]
"""A number that is stored signed, with 32 bits."""
UInt32: TypeAlias = Annotated[int, "uint32"]
"""A number that is stored unsigned, with 32 bits."""


class Int16Enum(Enum):
    """An enumeration that is stored with 16 bits; others have 32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraAttributes:
    """Attributes of extensions: the JSON text of an object; its keys are ``<domain>/<name>``. A mapping in YAML."""

    entries: str


class TimeUnit(Int16Enum):
    """The unit of a time."""

    SECOND = "Second"
    MILLISECOND = "Millisecond"
    MICROSECOND = "Microsecond"
    NANOSECOND = "Nanosecond"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeBinary:
    """Bytes; with ``fixed_length``, so many per value."""

    kind: ClassVar[str] = "Binary"
    fixed_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeBool:
    """True or false."""

    kind: ClassVar[str] = "Bool"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeDate:
    """A day of the calendar."""

    kind: ClassVar[str] = "Date"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeDecimal:
    """A decimal number: ``precision`` digits in all, ``scale`` of them after the point."""

    kind: ClassVar[str] = "Decimal"
    precision: UInt32
    scale: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeDuration:
    """An elapsed time; absent ``unit`` means milliseconds."""

    kind: ClassVar[str] = "Duration"
    unit: TimeUnit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeFloat16:
    """A floating-point number (IEEE 754)."""

    kind: ClassVar[str] = "Float16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeFloat32:
    """A floating-point number (IEEE 754)."""

    kind: ClassVar[str] = "Float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeFloat64:
    """A floating-point number (IEEE 754)."""

    kind: ClassVar[str] = "Float64"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeInt8:
    """A signed integer."""

    kind: ClassVar[str] = "Int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeInt16:
    """A signed integer."""

    kind: ClassVar[str] = "Int16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeInt32:
    """A signed integer."""

    kind: ClassVar[str] = "Int32"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeInt64:
    """A signed integer."""

    kind: ClassVar[str] = "Int64"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeUInt8:
    """An unsigned integer."""

    kind: ClassVar[str] = "UInt8"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeUInt16:
    """An unsigned integer."""

    kind: ClassVar[str] = "UInt16"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeUInt32:
    """An unsigned integer."""

    kind: ClassVar[str] = "UInt32"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeUInt64:
    """An unsigned integer."""

    kind: ClassVar[str] = "UInt64"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeList:
    """A list of values of one type; with ``fixed_length``, so many per value."""

    kind: ClassVar[str] = "List"
    item_type: DataType
    fixed_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeMap:
    """Pairs of a key and a value."""

    kind: ClassVar[str] = "Map"
    key_type: DataType
    value_type: DataType
    keys_sorted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeNull:
    """No value at all."""

    kind: ClassVar[str] = "Null"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeOption:
    """A value that can be missing: types without it are required."""

    kind: ClassVar[str] = "Option"
    inner: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeStruct:
    """Named fields."""

    kind: ClassVar[str] = "Struct"
    fields: tuple[DataField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeTime:
    """A time of the day; absent ``unit`` means milliseconds."""

    kind: ClassVar[str] = "Time"
    unit: TimeUnit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeTimestamp:
    """A point in time; absent ``unit`` means milliseconds, absent ``timezone`` UTC."""

    kind: ClassVar[str] = "Timestamp"
    unit: TimeUnit | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypeString:
    """A text."""

    kind: ClassVar[str] = "String"


DataType: TypeAlias = (
    DataTypeBinary
    | DataTypeBool
    | DataTypeDate
    | DataTypeDecimal
    | DataTypeDuration
    | DataTypeFloat16
    | DataTypeFloat32
    | DataTypeFloat64
    | DataTypeInt8
    | DataTypeInt16
    | DataTypeInt32
    | DataTypeInt64
    | DataTypeUInt8
    | DataTypeUInt16
    | DataTypeUInt32
    | DataTypeUInt64
    | DataTypeList
    | DataTypeMap
    | DataTypeNull
    | DataTypeOption
    | DataTypeStruct
    | DataTypeTime
    | DataTypeTimestamp
    | DataTypeString
    | Unknown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A column, or a field of a struct."""

    name: str
    type: DataType
    extra: ExtraAttributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """The columns of a dataset, or of what a source reads."""

    fields: tuple[DataField, ...]
    extra: ExtraAttributes | None = None
