"""Cancel rows that a rewrite left in their places, before DuckDB compares the others.

A row-level update or delete copies the other rows in their order. So most rows of an updated file equal those at the
same place of the file that replaces it. Equal rows of both sides cancel in a difference of bags, whichever rows they
are: so the result is exact, however few places agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def uncancelled(old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch], width: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of both streams, without pairs at the same place whose first ``width`` columns are equal."""
    here = there = None
    while True:
        here, there = here or next(old, None), there or next(new, None)
        if here is None or there is None:
            break
        rows = min(here.num_rows, there.num_rows)
        differ = pc.invert(_same(here.slice(0, rows), there.slice(0, rows), width))
        if pc.any(differ, min_count=0).as_py():
            yield here.slice(0, rows).filter(differ)
            yield there.slice(0, rows).filter(differ)
        here, there = _rest(here, rows), _rest(there, rows)
    yield from (batch for batch in (here, there) if batch is not None)
    yield from old
    yield from new


def comparable(schema: pa.Schema) -> bool:
    """Return whether Arrow compares all columns of this schema: no lists and structs."""
    return len(schema) > 0 and not any(map(pa.types.is_nested, schema.types))


def _rest(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch | None:
    return batch.slice(rows) if rows < batch.num_rows else None


def same_values(here: Any, there: Any) -> Any:
    """Return where two arrays of one type have equal values: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0."""
    both_null = pc.and_(pc.is_null(here), pc.is_null(there))
    if pa.types.is_null(here.type):
        return both_null
    equal = pc.fill_null(pc.equal(here, there), False)
    if pa.types.is_floating(here.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(here), pc.is_nan(there)), False))
    return pc.or_(equal, both_null)


def _same(here: pa.RecordBatch, there: pa.RecordBatch, width: int) -> Any:
    """Return where all columns are equal."""
    return reduce(pc.and_, (same_values(here.column(at), there.column(at)) for at in range(width)))
