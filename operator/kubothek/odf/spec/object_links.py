"""Columns that link to large objects beside the slices, and the summary of them in AddData (RFC-017).

A link is the hash of an object, as text; the object is ``data/<hash>``, as a slice is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from kubothek.errors import FormatInvalid
from kubothek.odf.spec.data_schema import (
    DataField,
    DataSchema,
    DataType,
    DataTypeList,
    DataTypeMap,
    DataTypeOption,
    DataTypeString,
    DataTypeStruct,
)
from kubothek.odf.spec.events import AddData, MetadataEvent, SetDataSchema
from kubothek.odf.spec.logical_types import attributes_of

TYPE: Final = "opendatafabric.org/type"
"""The attribute of a column with an extended type."""
SUMMARY: Final = "opendatafabric.org/linkedObjects"
"""The attribute of AddData that counts links."""
LINK: Final = "ObjectLink"
_COUNTS: Final = ("numObjectsNaive", "sizeNaive")


LinkPath: TypeAlias = tuple[str, ...]
"""The name of a column, and those of fields within it."""


def link_columns(schema: DataSchema | None) -> tuple[LinkPath, ...]:
    """Return the columns, and the fields of structs, whose values are links.

    Raises FormatInvalid for attributes that are not JSON.
    """
    return () if schema is None else tuple(_paths(schema.fields))


def _paths(fields: Sequence[DataField], above: LinkPath = ()) -> Iterator[LinkPath]:
    for field in fields:
        path, kind = (*above, field.name), _without_option(field.type)
        if _kind(_extended(field)) == LINK:
            yield path
        elif isinstance(kind, DataTypeStruct):
            yield from _paths(kind.fields, path)


def listed_links(schema: DataSchema | None) -> tuple[str, ...]:
    """Return the names of the columns that have links within lists or maps, for which there is no logical hash.

    Raises FormatInvalid for attributes that are not JSON.
    """
    columns = () if schema is None else schema.fields
    return tuple(column.name for column in columns if _lists_links(column.type))


def _lists_links(kind: DataType) -> bool:
    match kind:
        case DataTypeOption():
            return _lists_links(kind.inner)
        case DataTypeList():
            return _has_links(kind.item_type)
        case DataTypeMap():
            return _has_links(kind.key_type) or _has_links(kind.value_type)
        case DataTypeStruct():
            return any(_lists_links(field.type) for field in kind.fields)
    return False


def _has_links(kind: DataType) -> bool:
    kind = _without_option(kind)
    return _lists_links(kind) or (isinstance(kind, DataTypeStruct) and any(_paths(kind.fields)))


def _without_option(kind: DataType) -> DataType:
    return kind.inner if isinstance(kind, DataTypeOption) else kind


def links_objects(event: MetadataEvent) -> bool:
    """Return whether an event shows that a chain has objects that only its records name."""
    try:
        if isinstance(event, SetDataSchema):
            return bool(link_columns(event.schema) or listed_links(event.schema))
        return isinstance(event, AddData) and SUMMARY in attributes_of(event.extra)
    except FormatInvalid:
        return True  # unknown, and objects that are deleted do not come back


def links_nothing(event: MetadataEvent) -> bool:
    """Return whether the summary of an event counts no link."""
    if not isinstance(event, AddData):
        return False
    try:
        summary = attributes_of(event.extra).get(SUMMARY)
    except FormatInvalid:
        return False
    return isinstance(summary, dict) and summary.get(_COUNTS[0]) == 0


def column_faults(schema: DataSchema) -> Iterator[tuple[str, str]]:
    """Yield columns, and what is wrong with their extended types; what later versions have is not known as wrong."""
    for column in schema.fields:
        for fault in _faults(column):
            yield column.name, fault


def _faults(field: DataField) -> Iterator[str]:
    extended, inner = _extended(field), _without_option(field.type)
    if extended is not None and (kind := _kind(extended)) in (LINK, "Multihash", "Did"):
        if not isinstance(inner, DataTypeString):
            yield f"{kind} is a kind of String, not of {inner.kind}"
        elif kind == LINK and _kind(extended.get("linkType")) != "Multihash":
            yield f"{kind} needs a linkType of kind Multihash"
    if isinstance(inner, DataTypeStruct):
        for each in inner.fields:
            yield from (f"field {each.name!r}: {fault}" for fault in _faults(each))


def summary_fault(event: AddData) -> str | None:
    """Return what is wrong with the summary of an event. Raises FormatInvalid for attributes that are not JSON."""
    summary = attributes_of(event.extra).get(SUMMARY, {})
    counts = [summary.get(name, 0) for name in _COUNTS] if isinstance(summary, dict) else [None]
    if all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        return None
    return f"{SUMMARY} must be an object with the numbers {' and '.join(_COUNTS)}"


def _extended(field: DataField) -> dict[str, Any] | None:
    found = attributes_of(field.extra).get(TYPE)
    return found if isinstance(found, dict) else None


def _kind(extended: Any) -> str | None:
    return extended.get("kind") if isinstance(extended, dict) else None
