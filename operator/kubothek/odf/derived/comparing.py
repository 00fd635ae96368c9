"""Where the records that a run gives again differ from those that were committed: the first, by column and offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.spec.layout import Layout
from kubothek.odf.validation.slices import Expected, read_batches
from kubothek.storage import Store

_SHOWN: Final = 60


def first_difference(
    store: Store, layout: Layout, expected: Expected, again: Sequence[pa.RecordBatch]
) -> tuple[str | None, int | None, str]:
    """Column and offset of it, and what is there in words; no column where the number of records is another one.

    ``expected``  a slice that is there and sound
    """
    schema = expected.schema
    assert schema is not None, "a slice has one"
    made = pa.Table.from_batches(again, schema) if again else schema.empty_table()
    offset = 0
    for batch in read_batches(store, layout, expected):
        mine = made.slice(offset, batch.num_rows)
        first = _first_row(batch, mine, schema)
        if first is not None:
            column, row = first
            was, now = batch.column(column)[row].as_py(), mine.column(column)[row].as_py()
            told = f"it has {_shown(was)}, the transformation gives {_shown(now)}"
            return column, expected.data.offset_interval.start + offset + row, told
        if mine.num_rows < batch.num_rows:
            break
        offset += batch.num_rows
    committed = expected.data.offset_interval.end - expected.data.offset_interval.start + 1
    shorter = min(committed, made.num_rows)
    told = f"it has {committed} records, the transformation gives {made.num_rows}"
    return None, expected.data.offset_interval.start + shorter, told


def _first_row(batch: pa.RecordBatch, mine: pa.Table, schema: pa.Schema) -> tuple[str, int] | None:
    """The first row with a difference, and the first column of it."""
    found = [
        (row, place)
        for place, field in enumerate(schema)
        if (row := _differs(batch.column(field.name).slice(0, mine.num_rows), mine.column(field.name))) is not None
    ]
    if not found:
        return None
    row, place = min(found)
    return schema.names[place], row


def _differs(one: Any, other: Any) -> int | None:
    """The first place where two columns are not alike; NULL is like NULL, NaN like NaN."""
    other = other.combine_chunks() if isinstance(other, pa.ChunkedArray) else other
    one = one.cast(other.type)
    if pa.types.is_nested(other.type):
        return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if not a.equals(b)), None)
    alike = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(other.type):
        both = pc.and_(pc.is_nan(one), pc.is_nan(other))
        alike = pc.or_(alike, pc.fill_null(both, False))
    place = pc.index(alike, False).as_py()
    return None if place < 0 else int(place)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
