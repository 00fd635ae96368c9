"""Indexable columns, and the values that an index stores of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import IndexInvalid
from kubothek.table.indexes.model import Bound, Dialect, IndexKind
from kubothek.table.schema import type_name

_RESERVED: Final = "partition"
"""The name of the second column in Kartothek's index files."""
_SAMPLE: Final = 1 << 11
"""The number of values that show whether most of a column's values are distinct."""
_FEW: Final = 1 << 9
"""Below this number of values, finding the distinct ones costs more than sorting them all."""
_SHOWN: Final = 100
"""Maximum characters of a stored bound."""


def check_indexable(schema: pa.Schema, partition_keys: Sequence[str], wanted: Iterable[tuple[str, IndexKind]]) -> None:
    """Raise IndexInvalid, naming the column, for one that a table of this stored schema cannot have an index on.

    A column that is all NULL, and so has no type yet, can have one: the first values create it.
    """
    for column, kind in wanted:
        if column in partition_keys:
            why = "it is a partition column, which needs no index: planning knows its values from the paths"
        elif column not in schema.names:
            why = f"the table has no such column; its columns are {', '.join(map(repr, schema.names))}"
        elif not pa.types.is_null(schema.field(column).type) and not is_indexable(schema.field(column).type):
            why = f"values of type {type_name(schema.field(column).type)} cannot be indexed"
        elif kind is IndexKind.KARTOTHEK and column == _RESERVED:
            why = f"Kartothek's index files have a column {_RESERVED!r} of their own; choose the kind Native"
        else:
            continue
        raise IndexInvalid(f"index on {column!r}: {why}")


def is_indexable(stored: pa.DataType) -> bool:
    """Return whether values of this stored type can be indexed, as in Kartothek's own indices (facts 1.5)."""
    types = pa.types
    return (
        types.is_boolean(stored)
        or types.is_int64(stored)
        or types.is_uint64(stored)
        or types.is_float64(stored)
        or types.is_string(stored)
        or types.is_binary(stored)
        or types.is_date32(stored)
        or (types.is_timestamp(stored) and stored.tz is None)
    )


def file_type(stored: pa.DataType, dialect: Dialect) -> pa.DataType:
    """Return the value type in a Kartothek index file: for strings, that of the library that updates it."""
    return pa.large_string() if pa.types.is_string(stored) and dialect is Dialect.PLATEAU else stored


def indexable(values: pa.ChunkedArray[Any], stored: pa.DataType) -> pa.Array[Any]:
    """Return the values to index: without NULL and NaN, and 0.0 for -0.0.

    Each occurs once, but not where most are distinct, or all are few: there the sort that follows finds the others, and
    faster.
    """
    values = values if values.type == stored else values.cast(stored)
    if pa.types.is_float64(stored):
        values = pc.add(pc.filter(values, pc.invert(pc.is_nan(values)), null_selection_behavior="drop"), 0.0)
    count = len(values)
    sample = cast("pa.Array[Any]", values.slice(0, _SAMPLE))
    is_raw = count > 0 and (count < _FEW or 2 * distinct_of(sample, count) > count)
    found = pa.concat_arrays(values.chunks) if is_raw else cast("pa.Array[Any]", pc.unique(values))
    return found.drop_null() if found.null_count else found


def distinct_of(sample: pa.Array[Any], count: int) -> float:
    """Return about how many distinct values so many values have, from a sample of them.

    In a sample of n from far more than n equally frequent values, about n² / 2 of their number are repetitions.
    """
    size, found = len(sample), len(pc.unique(sample))
    if size >= count or 2 * found <= size:
        return found
    return count if found == size else size * size / (2 * (size - found))


def bound_of(value: pa.Scalar[Any]) -> Bound:
    """Return the value in a form that Python and JSON can compare: numbers as such, dates as numbers, bytes as hex."""
    if pa.types.is_date32(value.type):
        return int(value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(value.type):
        return int(value.cast(pa.int64()).as_py())
    if pa.types.is_binary(value.type):
        return str(value.as_py().hex())
    found: Bound = value.as_py()
    return found


def low_bound(value: pa.Scalar[Any]) -> Bound | None:
    """Return a bound that is not above the value, short enough for a manifest; None if there is none."""
    bound = bound_of(value)
    if isinstance(bound, float) and isinf(bound):
        return None
    return bound[:_SHOWN] if isinstance(bound, str) else bound


def high_bound(value: pa.Scalar[Any]) -> Bound | None:
    """Return a bound that is not below the value, short enough for a manifest; None if there is none."""
    bound = bound_of(value)
    if isinstance(bound, float) and isinf(bound):
        return None
    return None if isinstance(bound, str) and len(bound) > _SHOWN else bound
