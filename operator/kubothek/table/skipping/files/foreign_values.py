"""What entries of other writers tell for sure: real Xskipper stores some that are wrong (seen with Xskipper 1.7)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ABOVE_SURROGATES: Final = "[\\x{E000}-\\x{FFFF}]"
_SUPPLEMENTARY: Final = "[\\x{10000}-\\x{10FFFF}]"


def trusted(column: Any, *, from_footers: bool) -> Any:
    """The column of an index, null ("not known") where it may be wrong; ``from_footers``: bounds may be from these."""
    if pa.types.is_struct(column.type) and [field.name for field in column.type] == ["min", "max"]:
        low, high = pc.struct_field(column, ["min"]), pc.struct_field(column, ["max"])
        if pa.types.is_floating(low.type):
            return _floats(column, low, high) if from_footers else column
        if pa.types.is_string(low.type):
            return _texts(column, low, high)
    if pa.types.is_list(column.type):
        return _lists(column)
    return column


def _floats(column: Any, low: Any, high: Any) -> Any:
    """Bounds may come from Parquet's footers, which leave NaN out: it may be there, as the greatest value.

    And if they are null, all values may be NaN.
    """
    highs = pc.if_else(high.is_valid(), pa.scalar(float("nan"), high.type), high)
    mask = pc.or_(column.is_null(), pc.or_(low.is_null(), high.is_null()))
    return pa.StructArray.from_arrays([low, highs], ["min", "max"], mask=mask)


def _texts(column: Any, low: Any, high: Any) -> Any:
    """Java compares UTF-16, in which characters beyond U+FFFF come before those from U+E000 on.

    So a text with a character of the first kind may be above such a ``max`` of the second, and the other way round
    below such a ``min``; all others compare alike.
    """
    wrong = pc.or_(
        pc.fill_null(pc.match_substring_regex(high, _ABOVE_SURROGATES), False),
        pc.fill_null(pc.match_substring_regex(low, _SUPPLEMENTARY), False),
    )
    return pa.StructArray.from_arrays([low, high], ["min", "max"], mask=pc.or_(column.is_null(), wrong))


def _lists(column: Any) -> Any:
    """A list that holds NULL is one of which not all is known."""
    values = column.flatten()
    if not values.null_count:
        return column
    parents = pc.list_parent_indices(column).filter(values.is_null())
    rows = pa.array(np.arange(len(column)))
    mask = pc.or_(column.is_null(), pc.is_in(rows, parents.cast(pa.int64())))
    return pa.ListArray.from_arrays(column.offsets, column.values, type=column.type, mask=mask)
