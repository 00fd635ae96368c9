"""Columns of a ledger's table and of its slices: the same names, and types that convert exactly both ways.

The table has Kartothek's stored types (:mod:`kubothek.table.schema`): wider numbers, and times in UTC without a zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kubothek.errors import RowsChanged


def storable(schema: pa.Schema) -> pa.Schema:
    """Return columns of slices with types for a table: times in lists and structs become like those outside."""
    return pa.schema(
        [field.with_type(_storable(field.type)) if pa.types.is_nested(field.type) else field for field in schema]
    )


def as_in_slices(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of the table in the types of slices, with the columns of ``schema``; missing columns are NULL.

    Raises RowsChanged for a value that no slice can have.
    """
    arrays: list[Any] = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            arrays.append(_back(batch.column(position), field.type))
        except pa.ArrowInvalid as error:
            raise RowsChanged(
                f"column {field.name!r} of the table has a value that no slice can hold as {field.type}: {error}; "
                "another program changed the table, see kubothek heal"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def common_to(columns: Sequence[str], schema: pa.Schema | None) -> list[str]:
    """Return those of the columns that the table has."""
    return [name for name in columns if schema is not None and name in schema.names]


def _storable(found: Any) -> pa.DataType:
    if pa.types.is_timestamp(found):
        return pa.timestamp("us")
    if pa.types.is_list(found):
        return pa.list_(found.value_field.with_type(_storable(found.value_type)))
    if pa.types.is_struct(found):
        return pa.struct([field.with_type(_storable(field.type)) for field in found])
    kept: pa.DataType = found
    return kept


def _back(column: Any, wanted: pa.DataType) -> Any:
    if column.type == wanted:
        return column
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, _back(column, wanted.storage_type))
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(wanted.unit)).cast(wanted)
    if pa.types.is_float32(wanted) or pa.types.is_float16(wanted):
        return column.cast(wanted, safe=False)  # exact: the value came from this type
    return column.cast(wanted)
