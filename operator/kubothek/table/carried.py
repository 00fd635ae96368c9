"""Conversion of rows for DuckDB and back: numbered columns, and types that it holds exactly.

Columns are called ``c0``, ``c1``, …: DuckDB ignores the case of names, and no name of a user can be misread. Times are
whole numbers, since DuckDB's timestamps in microseconds have a smaller range than milliseconds. Rows return in their
original types, bit for bit except NaN, which has one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import DataTypeMismatch
from kubothek.table.schema import type_name
from kubothek.table.structs import settled

_DECIMAL256_BYTES: Final = 32


def name_of(position: int) -> str:
    """Return the internal name of the column at this position."""
    return f"c{position}"


class Carrier:
    """The conversion of rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.inside = pa.schema([(name_of(n), _inside(field)) for n, field in enumerate(schema)])

    def carry(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch for DuckDB."""
        columns = [_carried(column, field.type) for column, field in zip(batch.columns, self.inside, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.inside)

    def restore(self, columns: list[pa.Array[Any]]) -> list[pa.Array[Any]]:
        """Convert columns, in the order of the schema, back to its types."""
        return [
            _restored(column, inside.type, field.type)
            for column, inside, field in zip(columns, self.inside, self.schema, strict=True)
        ]

    def restored(self, columns: Sequence[str], found: pa.Table) -> pa.Table:
        """Convert the first columns of a result back to the types of these columns."""
        arrays = [
            _restored(found.column(n).combine_chunks(), self.inside.field(at).type, self.schema.field(at).type)
            for n, at in enumerate(map(self.schema.get_field_index, columns))
        ]
        return pa.table(arrays, schema=pa.schema([self.schema.field(column) for column in columns]))


def _inside(field: pa.Field[Any]) -> pa.DataType:
    found: Any = field.type
    types = pa.types
    if isinstance(found, pa.BaseExtensionType):
        return _inside(field.with_type(found.storage_type))
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return _inside(field.with_type(found.value_type))
    if types.is_temporal(found):
        return pa.int64() if found.bit_width == 64 else pa.int32()
    if types.is_float16(found):
        return pa.float32()
    if types.is_decimal256(found):
        return pa.binary(_DECIMAL256_BYTES)
    if types.is_decimal32(found) or types.is_decimal64(found):
        return pa.decimal128(found.precision, found.scale)
    if types.is_nested(found) and (deep := _unfit(found)) is not None:
        raise DataTypeMismatch(
            f"column {field.name!r}: records with {type_name(deep)} inside of {found} cannot be merged; cast it in "
            "preprocess"
        )
    kept: pa.DataType = found
    return kept


def _unfit(found: pa.DataType) -> pa.DataType | None:
    """Return a type inside of a nested one that DuckDB lacks, if any."""
    if not pa.types.is_nested(found):
        unfit = pa.types.is_float16(found) or pa.types.is_decimal256(found) or pa.types.is_duration(found)
        return found if unfit else None
    parts = (_unfit(found.field(number).type) for number in range(found.num_fields))
    return next((part for part in parts if part is not None), None)


def _carried(column: Any, inside: pa.DataType) -> Any:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_run_end_encoded(column.type):
        column = pc.call_function("run_end_decode", [column])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == inside:
        return column
    bits = pa.types.is_temporal(column.type) or pa.types.is_decimal256(column.type)
    return column.view(inside) if bits else column.cast(inside)


def _restored(column: Any, inside: pa.DataType, outside: pa.DataType) -> Any:
    if column.type == outside:
        return column
    if isinstance(outside, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(outside, _restored(column, inside, outside.storage_type))
    if pa.types.is_temporal(outside) or pa.types.is_decimal256(outside):
        return column.cast(inside).view(outside)
    try:
        return settled(column, outside)
    except pa.ArrowInvalid as error:
        raise DataTypeMismatch(f"a column cannot be stored as {outside}: {error}") from error
