"""ODF schemas to Arrow and back (RFC-016, "ODF Schema from/to Arrow Conversion").

ODF types are logical. What only Arrow distinguishes (64-bit offsets, views, milliseconds of dates, width of decimals)
is an attribute of the column, and is written only where it differs from what readers assume without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kubothek.errors import FormatInvalid, InputError, UnsupportedVersion
from kubothek.odf.spec.arrow_schema import decode_schema
from kubothek.odf.spec.data_schema import (
    DataField,
    DataSchema,
    DataType,
    DataTypeBinary,
    DataTypeBool,
    DataTypeDate,
    DataTypeDecimal,
    DataTypeDuration,
    DataTypeFloat16,
    DataTypeFloat32,
    DataTypeFloat64,
    DataTypeInt8,
    DataTypeInt16,
    DataTypeInt32,
    DataTypeInt64,
    DataTypeList,
    DataTypeMap,
    DataTypeNull,
    DataTypeOption,
    DataTypeString,
    DataTypeStruct,
    DataTypeTime,
    DataTypeTimestamp,
    DataTypeUInt8,
    DataTypeUInt16,
    DataTypeUInt32,
    DataTypeUInt64,
    ExtraAttributes,
    TimeUnit,
)
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import SetDataSchema
from kubothek.odf.spec.unknown import Unknown

BUFFER: Final = "arrow.apache.org/bufferEncoding"
DATE: Final = "arrow.apache.org/dateEncoding"
DECIMAL: Final = "arrow.apache.org/decimalEncoding"
_WIDE: Final = {BUFFER: {"kind": "Contiguous", "offsetBitWidth": 64}}
_VIEW: Final = {BUFFER: {"kind": "View", "offsetBitWidth": 32}}
_WIDE_VIEW: Final = {BUFFER: {"kind": "View", "offsetBitWidth": 64}}
_MILLISECONDS: Final = {DATE: {"unit": "Millisecond"}}
_UNITS: Final[dict[TimeUnit, Any]] = {
    TimeUnit.SECOND: "s",
    TimeUnit.MILLISECOND: "ms",
    TimeUnit.MICROSECOND: "us",
    TimeUnit.NANOSECOND: "ns",
}
_UNIT_OF: Final = {text: unit for unit, text in _UNITS.items()}
_DEEPEST: Final = 40
_DIGITS_128: Final = 38
_DIGITS_256: Final = 76
_SIMPLE: Final[dict[type, pa.DataType]] = {
    DataTypeBool: pa.bool_(),
    DataTypeFloat16: pa.float16(),
    DataTypeFloat32: pa.float32(),
    DataTypeFloat64: pa.float64(),
    DataTypeInt8: pa.int8(),
    DataTypeInt16: pa.int16(),
    DataTypeInt32: pa.int32(),
    DataTypeInt64: pa.int64(),
    DataTypeUInt8: pa.uint8(),
    DataTypeUInt16: pa.uint16(),
    DataTypeUInt32: pa.uint32(),
    DataTypeUInt64: pa.uint64(),
    DataTypeNull: pa.null(),
}
_LAYOUTS: Final[dict[type, tuple[Callable[..., pa.DataType], ...]]] = {
    DataTypeString: (pa.string, pa.large_string, pa.string_view),
    DataTypeBinary: (pa.binary, pa.large_binary, pa.binary_view),
    DataTypeList: (pa.list_, pa.large_list, pa.list_view, pa.large_list_view),
}
"""Of each type with a buffer: contiguous with 32 bits, with 64 bits, a view with 32 bits, with 64 bits."""

Attributes: TypeAlias = Mapping[str, Any]


def attributes_of(extra: ExtraAttributes | None) -> Attributes:
    """Return the attributes as plain data. Raises FormatInvalid."""
    if extra is None:
        return {}
    try:
        found = json.loads(extra.entries)
    except (ValueError, RecursionError) as error:
        raise FormatInvalid(f"attributes of a schema are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise FormatInvalid(f"attributes of a schema are {type(found).__name__}, not an object of JSON")
    if _is_deeper(found, _DEEPEST):
        raise FormatInvalid(f"attributes of a schema are nested deeper than {_DEEPEST} levels")
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)


def columns_of(event: SetDataSchema) -> pa.Schema:
    """Return the columns of an event in Arrow's types; its ODF schema counts, if it has both.

    Raises FormatInvalid, UnsupportedVersion.
    """
    if event.schema is not None:
        return to_arrow(event.schema)
    if event.raw_arrow_schema is not None:
        return decode_schema(event.raw_arrow_schema)
    raise FormatInvalid("SetDataSchema has neither schema nor rawArrowSchema")


# --- to Arrow --------------------------------------------------------------------------------------------------------


def to_arrow(schema: DataSchema) -> pa.Schema:
    """Return the Arrow schema of the columns, without metadata.

    Raises FormatInvalid for types and encodings that contradict each other, UnsupportedVersion for a type that this
    version does not know.
    """
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: DataField) -> Any:
    try:
        kind, nullable = _nullable_type(field.type, attributes_of(field.extra))
    except (FormatInvalid, UnsupportedVersion) as error:
        raise type(error)(f"column {field.name!r}: {error}") from None
    return pa.field(field.name, kind, nullable)


def _nullable_type(kind: DataType, attributes: Attributes) -> tuple[pa.DataType, bool]:
    if isinstance(kind, DataTypeOption):
        if isinstance(kind.inner, DataTypeOption):
            raise FormatInvalid("an Option within an Option is no type")
        return _arrow_type(kind.inner, attributes), True
    return _arrow_type(kind, attributes), isinstance(kind, DataTypeNull)


def _arrow_type(kind: DataType, attributes: Attributes) -> pa.DataType:
    if (simple := _SIMPLE.get(type(kind))) is not None:
        return simple
    match kind:
        case DataTypeBinary(fixed_length=int(length)):
            return pa.binary(_size(length))
        case DataTypeString() | DataTypeBinary():
            return _layout(kind, attributes)()
        case DataTypeDecimal():
            return _decimal(kind, attributes)
        case DataTypeDate():
            return pa.date64() if _part(attributes, DATE, "unit", "day").lower() == "millisecond" else pa.date32()
        case DataTypeDuration():
            return pa.duration(unit_of(kind))
        case DataTypeTime():
            unit = unit_of(kind)
            return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        case DataTypeTimestamp():
            return pa.timestamp(unit_of(kind), kind.timezone or "UTC")
        case Unknown():
            raise UnsupportedVersion(f"{NEWER} (data type {kind.tag}); {REMEDY}")
    return _arrow_nested(kind, attributes)


def _arrow_nested(kind: DataType, attributes: Attributes) -> pa.DataType:
    match kind:
        case DataTypeList(fixed_length=int(length)):
            return pa.list_(_item("item", kind.item_type), _size(length))
        case DataTypeList():
            return _layout(kind, attributes)(_item("item", kind.item_type))
        case DataTypeMap():
            made: Any = pa.map_
            found: pa.DataType = made(
                _item("key", kind.key_type), _item("value", kind.value_type), bool(kind.keys_sorted)
            )
            return found
        case DataTypeStruct():
            return pa.struct([_arrow_field(field) for field in kind.fields])
    raise FormatInvalid(f"{kind.kind} is no type of a value")


def unit_of(kind: DataTypeDuration | DataTypeTime | DataTypeTimestamp) -> Any:
    """Return Arrow's name of the unit; the default is milliseconds (specification 0.38)."""
    return _UNITS[kind.unit or TimeUnit.MILLISECOND]


def _item(name: str, kind: DataType) -> Any:
    item, nullable = _nullable_type(kind, {})
    return pa.field(name, item, nullable)


def _size(length: int) -> int:
    if not 0 <= length < 1 << 31:
        raise FormatInvalid(f"a fixed length of {length} is not from 0 to 2^31-1")
    return length


def _layout(kind: DataType, attributes: Attributes) -> Callable[..., pa.DataType]:
    layouts = _LAYOUTS[type(kind)]
    if BUFFER not in attributes:
        return layouts[0]
    view = _part(attributes, BUFFER, "kind", "").lower() == "view"
    width = attributes[BUFFER].get("offsetBitWidth") or 32
    contiguous = _part(attributes, BUFFER, "kind", "").lower() == "contiguous"
    place = 2 * view + (width == 64)
    if width not in (32, 64) or not (view or contiguous) or place >= len(layouts):
        raise FormatInvalid(f"{kind.kind} with {BUFFER} {json.dumps(attributes[BUFFER])} is no type of Arrow")
    return layouts[place]


def _decimal(kind: DataTypeDecimal, attributes: Attributes) -> pa.DataType:
    width: Any = 128 if kind.precision <= _DIGITS_128 else 256
    if DECIMAL in attributes:
        width = attributes[DECIMAL].get("bitWidth") if isinstance(attributes[DECIMAL], dict) else None
    make: Any = {128: pa.decimal128, 256: pa.decimal256}.get(width)
    if make is None or not 1 <= kind.precision <= (_DIGITS_128 if width == 128 else _DIGITS_256):
        raise FormatInvalid(f"a Decimal of {kind.precision} digits in {width} bits is no type of Arrow")
    if not -128 <= kind.scale <= 127:
        raise FormatInvalid(f"a Decimal of scale {kind.scale} is no type of Arrow")
    found: pa.DataType = make(kind.precision, kind.scale)
    return found


def _part(attributes: Attributes, key: str, name: str, default: str) -> str:
    value = attributes.get(key, {})
    if not isinstance(value, dict) or not isinstance(found := value.get(name, default), str):
        raise FormatInvalid(f"attribute {key} is {json.dumps(value)}, not an object with {name}")
    return found


# --- from Arrow ------------------------------------------------------------------------------------------------------


def from_arrow(schema: pa.Schema, before: DataSchema | None = None) -> DataSchema:
    """Return the ODF schema of the columns; ``before``: the schema whose attributes stay. Raises InputError."""
    known = {} if before is None else {field.name: field for field in before.fields}
    fields = tuple(_odf_field(field, known.get(field.name)) for field in schema)
    return DataSchema(fields=fields, extra=None if before is None else before.extra)


def _odf_field(field: Any, before: DataField | None = None) -> DataField:
    kind, encoding = _odf_type(field.type)
    made = DataField(
        name=field.name,
        type=DataTypeOption(inner=kind) if field.nullable else kind,
        extra=ExtraAttributes(entries=_json(encoding)) if encoding else None,
    )
    return made if before is None else _annotated_field(made, before)


def _annotated_field(field: DataField, before: DataField) -> DataField:
    """Return the field with the attributes that it had before, and all fields within it with theirs."""
    there = attributes_of(before.extra)
    extra = {key: value for key, value in there.items() if key not in _ENCODINGS} | dict(attributes_of(field.extra))
    return DataField(
        name=field.name,
        type=_annotated(field.type, before.type),
        extra=before.extra if extra == there else ExtraAttributes(entries=_json(extra)) if extra else None,
    )


def _annotated(kind: DataType, before: DataType) -> DataType:
    match kind, before:
        case DataTypeOption(), _:
            return DataTypeOption(inner=_annotated(kind.inner, before))
        case _, DataTypeOption():
            return _annotated(kind, before.inner)
        case DataTypeList(), DataTypeList():
            return replace(kind, item_type=_annotated(kind.item_type, before.item_type))
        case DataTypeMap(), DataTypeMap():
            key, value = _annotated(kind.key_type, before.key_type), _annotated(kind.value_type, before.value_type)
            return replace(kind, key_type=key, value_type=value)
        case DataTypeStruct(), DataTypeStruct():
            known = {field.name: field for field in before.fields}
            fields = (_annotated_field(each, known[each.name]) if each.name in known else each for each in kind.fields)
            return DataTypeStruct(fields=tuple(fields))
    return kind


_ENCODINGS: Final = frozenset({BUFFER, DATE, DECIMAL})


def _odf_type(kind: Any) -> tuple[DataType, Attributes]:
    types = pa.types
    for simple, arrow in _SIMPLE.items():
        if kind == arrow:
            return simple(), {}
    if types.is_fixed_size_binary(kind):
        return DataTypeBinary(fixed_length=kind.byte_width), {}
    for made, checks in _TEXTS.items():
        for check, encoding in zip(checks, ({}, _WIDE, _VIEW), strict=True):
            if check(kind):
                return made(), encoding
    if types.is_date(kind):
        return DataTypeDate(), _MILLISECONDS if types.is_date64(kind) else {}
    if types.is_decimal(kind):
        expected = 128 if kind.precision <= _DIGITS_128 else 256
        encoding = {} if kind.bit_width == expected else {DECIMAL: {"bitWidth": kind.bit_width}}
        return DataTypeDecimal(precision=kind.precision, scale=kind.scale), encoding
    if types.is_duration(kind):
        return DataTypeDuration(unit=_UNIT_OF[kind.unit]), {}
    if types.is_time(kind):
        return DataTypeTime(unit=_UNIT_OF[kind.unit]), {}
    if types.is_timestamp(kind) and kind.tz is not None:
        return DataTypeTimestamp(unit=_UNIT_OF[kind.unit], timezone=kind.tz), {}
    return _odf_nested(kind)


def _odf_nested(kind: Any) -> tuple[DataType, Attributes]:
    types = pa.types
    if types.is_fixed_size_list(kind):
        return DataTypeList(item_type=_odf_item(kind.value_field), fixed_length=kind.list_size), {}
    for check, encoding in _LISTS:
        if check(kind):
            return DataTypeList(item_type=_odf_item(kind.value_field)), encoding
    if types.is_map(kind):
        key, value = _odf_item(kind.key_field), _odf_item(kind.item_field)
        return DataTypeMap(key_type=key, value_type=value, keys_sorted=kind.keys_sorted), {}
    if types.is_struct(kind):
        return DataTypeStruct(fields=tuple(_odf_field(field) for field in kind)), {}
    raise InputError(f"type {kind} has no ODF type")


def _odf_item(field: Any) -> DataType:
    kind, _ = _odf_type(field.type)  # an item has no attributes: its layout is not kept
    return DataTypeOption(inner=kind) if field.nullable else kind


_TEXTS: Final[dict[Callable[[], DataType], tuple[Callable[[Any], bool], ...]]] = {
    DataTypeString: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    DataTypeBinary: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
}
_LISTS: Final[tuple[tuple[Callable[[Any], bool], Attributes], ...]] = (
    (pa.types.is_list, {}),
    (pa.types.is_large_list, _WIDE),
    (pa.types.is_list_view, _VIEW),
    (pa.types.is_large_list_view, _WIDE_VIEW),
)


def _json(value: Attributes) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- comparison ------------------------------------------------------------------------------------------------------


def logical(kind: DataType) -> DataType:
    """Return the type alone: with defaults filled in, without the attributes of fields within it."""
    match kind:
        case DataTypeOption():
            return DataTypeOption(inner=logical(kind.inner))
        case DataTypeList():
            return replace(kind, item_type=logical(kind.item_type))
        case DataTypeMap():
            return replace(
                kind,
                key_type=logical(kind.key_type),
                value_type=logical(kind.value_type),
                keys_sorted=bool(kind.keys_sorted),
            )
        case DataTypeStruct():
            return DataTypeStruct(
                fields=tuple(DataField(name=each.name, type=logical(each.type)) for each in kind.fields)
            )
        case DataTypeTimestamp():
            return replace(kind, unit=kind.unit or TimeUnit.MILLISECOND, timezone=kind.timezone or "UTC")
        case DataTypeTime() | DataTypeDuration():
            return replace(kind, unit=kind.unit or TimeUnit.MILLISECOND)
    return kind


def logical_type(field: pa.Field[Any], *, options: bool = True) -> DataType | pa.DataType:
    """Return the logical type of an Arrow column, to be compared; Arrow's own if ODF has none.

    ``options``  whether it says what may be null, at every level
    """
    try:
        kind = logical(_odf_field(field).type)
    except InputError:
        arrow: pa.DataType = field.type
        return arrow
    return kind if options else without_options(kind)


def without_options(kind: DataType) -> DataType:
    """Return the type with all values required, at every level: what remains equal when a chain goes from Arrow schemas
    to ODF schemas (RFC-016, "Field optionality during schema upgrades").
    """
    match kind:
        case DataTypeOption():
            return without_options(kind.inner)
        case DataTypeList():
            return replace(kind, item_type=without_options(kind.item_type))
        case DataTypeMap():
            return replace(kind, key_type=without_options(kind.key_type), value_type=without_options(kind.value_type))
        case DataTypeStruct():
            return DataTypeStruct(fields=tuple(replace(each, type=without_options(each.type)) for each in kind.fields))
    return kind
