"""Xskipper's index types MinMax and ValueList; the third is in :mod:`kubothek.table.skipping.bloom.index_type`.

See Xskipper's Metadatastore Spec, "Version 1"; bounds are as in Xskipper 1.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid
from kubothek.table.skipping.bounds import not_above, not_below
from kubothek.table.skipping.indexes import Collector, IndexType, Values, refuse, register
from kubothek.table.skipping.model import IndexDefinition

_LIST_BYTES: Final = 16 << 20
"""Limit of the values of one list: a longer one costs more than it saves, and its file has no entries."""


def entry_value_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of single values in entries of a column; None for columns that Xskipper cannot index.

    Times are in microseconds, the only unit that Spark knows; those with a zone in UTC.
    """
    types = pa.types
    if types.is_timestamp(data_type):
        return pa.timestamp("us", "UTC" if data_type.tz else None)
    if types.is_large_string(data_type) or types.is_string_view(data_type):
        return pa.string()
    if types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type) or types.is_binary_view(data_type):
        return pa.binary()
    is_plain = (
        types.is_integer(data_type)
        or types.is_float32(data_type)
        or types.is_float64(data_type)
        or types.is_decimal128(data_type)
        or types.is_string(data_type)
        or types.is_binary(data_type)
        or types.is_boolean(data_type)
        or types.is_date32(data_type)
    )
    return data_type if is_plain else None


# --- MinMax ------------------------------------------------------------------------------------------------------


class MinMax(IndexType):
    """The least and the greatest value; both null without values. NaN is the greatest."""

    name = "MinMax"
    foreign = True

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        check_column(definition, types, ())

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        value: Any = entry_value_type(types[0])
        return pa.struct([("min", value), ("max", value)])

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        return _Bounds(self.entry_type(definition, types))


class _Bounds:
    """Bounds of each batch; the outermost become the entry."""

    def __init__(self, entry_type: Any) -> None:
        self._type = entry_type.field(0).type
        self._lows: list[pa.Array[Any]] = []
        self._highs: list[pa.Array[Any]] = []
        self._nan = False

    def update(self, values: Sequence[Values]) -> None:
        found = pc.min_max(values[0].array)
        self._lows.append(pa.array([found["min"]], found["min"].type))
        self._highs.append(pa.array([found["max"]], found["max"].type))
        if pa.types.is_floating(self._type) and not self._nan:
            self._nan = pc.any(pc.is_nan(values[0].array)).as_py() is True

    def finish(self) -> pa.Array[Any] | None:
        if not self._lows:
            return self._entry(None, None)
        # Arrow's comparison ignores NaN.
        low, high = pc.min(pa.concat_arrays(self._lows)), pc.max(pa.concat_arrays(self._highs))
        if self._nan:
            nan = pa.scalar(float("nan"), self._type)
            return self._entry(low if low.is_valid else nan, nan)
        return self._entry(not_above(low, self._type), not_below(high, self._type))

    def _entry(self, low: Any, high: Any) -> pa.Array[Any]:
        ends = [pa.array([each], self._type) for each in (low, high)]
        return pa.StructArray.from_arrays(ends, ["min", "max"])


# --- ValueList ---------------------------------------------------------------------------------------------------


class ValueList(IndexType):
    """All distinct values, in any order. Zero is stored with both signs: Spark distinguishes them."""

    name = "ValueList"
    foreign = True

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        check_column(definition, types, ())
        if pa.types.is_timestamp(types[0]) and types[0].unit == "ns":
            raise refuse(types[0], instead=": Spark knows microseconds only; use MinMax")

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        value: Any = entry_value_type(types[0])
        return pa.list_(pa.field("element", value))

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        return _Distinct(self.entry_type(definition, types))


class _Distinct:
    def __init__(self, entry_type: Any) -> None:
        self._type = entry_type
        self._found: Any = pa.array([], entry_type.value_type)
        self._too_large = False

    def update(self, values: Sequence[Values]) -> None:
        new = values[0].unique
        if self._too_large or not len(new):
            return
        new = new if new.type == self._found.type else new.cast(self._found.type)
        self._found = pa.concat_arrays([self._found, new]).unique() if len(self._found) else new
        self._too_large = self._found.nbytes > _LIST_BYTES

    def finish(self) -> pa.Array[Any] | None:
        if self._too_large:
            return None
        found = self._found
        if pa.types.is_floating(found.type):
            others = found.filter(pc.not_equal(found, pa.scalar(0.0, found.type)))
            zeros = [] if len(others) == len(found) else [0.0, -0.0]
            found = pa.concat_arrays([others, pa.array(zeros, found.type)])
        return pa.ListArray.from_arrays(pa.array([0, len(found)], pa.int32()), found, type=self._type)


def check_column(definition: IndexDefinition, types: Sequence[pa.DataType], params: Sequence[str]) -> None:
    """Raise SkippingInvalid unless the index is on one column that Xskipper can index, with only these parameters."""
    if len(types) != 1:
        raise SkippingInvalid("it is on one column")
    known = {*params, *(name.rpartition(".")[2] for name in params)}
    if unknown := sorted(definition.params.keys() - known):
        raise SkippingInvalid(f"it has no parameter {unknown[0]!r}")
    if entry_value_type(types[0]) is None:
        raise refuse(types[0])


register(MinMax())
register(ValueList())
