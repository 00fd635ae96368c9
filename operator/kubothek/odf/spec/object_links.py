"""Columns that link to large objects beside the slices, and the summary of them in AddData (RFC-017).

A link is the hash of an object, as text; the object is ``data/<hash>``, as a slice is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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


def link_columns(schema: DataSchema | None) -> tuple[str, ...]:
    """Return the names of the columns whose values are links. Raises FormatInvalid for attributes that are not JSON."""
    fields = () if schema is None else schema.fields
    return tuple(field.name for field in fields if _kind(_extended(field)) == LINK)


def nested_links(schema: DataSchema | None) -> tuple[str, ...]:
    """Return the names of the columns that have links within their values. RFC-017 marks columns only.

    Raises FormatInvalid for attributes that are not JSON.
    """
    columns = () if schema is None else schema.fields
    return tuple(
        column.name for column in columns if any(_kind(_extended(field)) == LINK for field in _within(column.type))
    )


def _within(kind: DataType) -> Iterator[DataField]:
    match kind:
        case DataTypeOption():
            yield from _within(kind.inner)
        case DataTypeList():
            yield from _within(kind.item_type)
        case DataTypeMap():
            yield from (*_within(kind.key_type), *_within(kind.value_type))
        case DataTypeStruct():
            for field in kind.fields:
                yield from (field, *_within(field.type))


def links_objects(event: MetadataEvent) -> bool:
    """Return whether an event shows that a chain has objects that only its records name."""
    try:
        if isinstance(event, SetDataSchema):
            return bool(link_columns(event.schema) or nested_links(event.schema))
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
    for field in schema.fields:
        extended = _extended(field)
        if extended is None or (kind := _kind(extended)) not in (LINK, "Multihash", "Did"):
            continue
        inner = field.type.inner if isinstance(field.type, DataTypeOption) else field.type
        if not isinstance(inner, DataTypeString):
            yield field.name, f"{kind} is a kind of String, not of {inner.kind}"
        elif kind == LINK and _kind(extended.get("linkType")) != "Multihash":
            yield field.name, f"{kind} needs a linkType of kind Multihash"


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
