"""Columns as Xskipper names them: without regard to case, and a field of a struct by its dotted path."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid


def find(schema: pa.Schema, column: str) -> pa.Field[Any]:
    """Return the field of this name or path. Raises SkippingInvalid if there is none, or several in lower case."""
    return _walked(list(schema), column)[-1]


def path_of(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """Return the names from the top level down to the field, in the schema's own case. Raises SkippingInvalid."""
    return tuple(field.name for field in _walked(list(schema), column))


def leaf(batch: pa.RecordBatch | pa.Table, path: tuple[str, ...], data_type: pa.DataType) -> pa.Array[Any]:
    """Return the values of a field as this type, not dictionary-encoded; all NULL if the batch lacks the field.

    Raises ArrowInvalid for values that the type cannot hold.
    """
    position = batch.schema.get_field_index(path[0])
    if position < 0:
        return _nulls(batch, data_type)
    found: Any = batch.column(position)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    for name in path[1:]:
        if not pa.types.is_struct(found.type) or found.type.get_field_index(name) < 0:
            return _nulls(batch, data_type)
        found = pc.struct_field(found, [name])
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    array: pa.Array[Any] = found if found.type == data_type else found.cast(data_type)
    return array


def _nulls(batch: pa.RecordBatch | pa.Table, data_type: Any) -> pa.Array[Any]:
    found: pa.Array[Any] = pa.nulls(batch.num_rows, data_type)
    return found


def _walked(fields: list[pa.Field[Any]], column: str) -> list[pa.Field[Any]]:
    if dotted := [field.name for field in fields if field.name.lower() == column.lower() and "." in field.name]:
        raise SkippingInvalid(f"{dotted[0]!r} has a dot in its name, which means a field of a struct")
    found: list[pa.Field[Any]] = []
    for name in column.split("."):
        same = [field for field in fields if field.name.lower() == name.lower()]
        if not same:
            there_are = ", ".join(repr(field.name) for field in fields) or "no fields in it"
            raise SkippingInvalid(f"there is no {column!r}; there are {there_are}")
        if len(same) > 1:
            raise SkippingInvalid(f"{column!r} is ambiguous: {', '.join(repr(field.name) for field in same)}")
        found += same
        fields = list(same[0].type) if pa.types.is_struct(same[0].type) else []
    return found
