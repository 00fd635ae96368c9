"""Least and greatest values from the footers of data files that Kubothek writes, where they are exact.

Parquet's writer compares every value anyway. Decimals are left out. Statistics omit NaN and values of more than 4 KiB,
so these are looked up in the rows during a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.table.skipping.bounds import not_above, not_below
from kubothek.table.skipping.columns import path_of
from kubothek.table.skipping.kinds import entry_value_type
from kubothek.table.skipping.model import IndexDefinition

_MINMAX: Final = "minmax"
_LONGEST: Final = 4096
"""Maximum bytes of a value in the statistics of Arrow's writer."""
_PLAIN: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_string,
    pa.types.is_timestamp,
    pa.types.is_float32,
    pa.types.is_float64,
)
_UNSIGNED: Final = {8: 2**8 - 1, 16: 2**16 - 1, 32: 2**32 - 1, 64: 2**64 - 1}
_Bounds: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """The column that an entry describes, as in the data files."""

    name: str
    type: Any


def leaves_of(definitions: Sequence[IndexDefinition], schema: pa.Schema) -> dict[str, Leaf]:
    """Return the columns that footers of files of this stored schema describe, by the name of the entry column."""
    found = {}
    for definition in definitions:
        if definition.name == _MINMAX:
            name, *inner = path_of(schema, definition.columns[0])
            data_type = schema.field(name).type
            if not inner and any(applies(data_type) for applies in _PLAIN):
                found[definition.column] = Leaf(name, data_type)
    return found


class Footers:
    """The bounds of one file, row group by row group."""

    def __init__(self, leaves: Mapping[str, Leaf]) -> None:
        self._leaves = leaves
        self._texts = [leaf.name for leaf in leaves.values() if pa.types.is_string(leaf.type)]
        self._numbers = [leaf.name for leaf in leaves.values() if pa.types.is_floating(leaf.type)]
        self._nan: set[str] = set()
        self._seen: list[dict[str, _Bounds]] = []

    def observe(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add rows, which become the next row group."""
        seen: dict[str, _Bounds] = {}
        for name in self._texts:
            values = pa.chunked_array([batch.column(name) for batch in batches])
            if (pc.max(pc.binary_length(values)).as_py() or 0) >= _LONGEST:
                found = pc.min_max(values)
                seen[name] = found["min"].as_py().encode(), found["max"].as_py().encode()
        self._seen.append(seen)
        for name in self._numbers:
            if name not in self._nan and any(_has_nan(batch.column(name)) for batch in batches):
                self._nan.add(name)

    def finish(self, footer: pq.FileMetaData) -> dict[str, pa.Array[Any]] | None:
        """Return the entry of each index; None if this footer lacks one."""
        found = self.read(footer)
        return found if len(found) == len(self._leaves) else None

    def read(self, footer: pq.FileMetaData) -> dict[str, pa.Array[Any]]:
        """Return the entries of the indices that this footer describes."""
        column_numbers = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
        found: dict[str, pa.Array[Any]] = {}
        for column, leaf in self._leaves.items():
            bounds = self._bounds(footer, column_numbers[leaf.name], leaf)
            if bounds is None:
                continue
            if leaf.name in self._nan:
                bounds = nan if bounds[0] is None else bounds[0], nan
            low, high = (_scalar(value, leaf.type) for value in bounds)
            kept = entry_value_type(leaf.type)
            ends = [pa.array([not_above(low, kept)], kept), pa.array([not_below(high, kept)], kept)]
            found[column] = pa.StructArray.from_arrays(ends, ["min", "max"])
        return found

    def _bounds(self, footer: pq.FileMetaData, place: int, leaf: Leaf) -> _Bounds | None:
        low = high = None
        for number in range(footer.num_row_groups):
            seen = self._seen[number] if self._seen else {}
            known = seen.get(leaf.name) or _of_group(footer.row_group(number).column(place), leaf.type)
            if known is None:
                return None
            if known[0] is not None:
                low = known[0] if low is None else min(low, known[0])
                high = known[1] if high is None else max(high, known[1])
        return low, high


def _has_nan(values: pa.Array[Any]) -> bool:
    """Return whether one of the numbers is NaN. The sum is then NaN, and rarely otherwise."""
    total = pc.sum(values).as_py()
    return total is not None and isnan(total) and pc.any(pc.is_nan(values)).as_py() is True


def _of_group(chunk: pq.ColumnChunkMetaData, data_type: Any) -> _Bounds | None:
    """Return the bounds in Parquet's own form, which compares like the values; None, None without values."""
    statistics = chunk.statistics
    if statistics is None:
        return None
    if not statistics.has_min_max:
        # Of numbers, the remaining ones are NaN.
        return (None, None) if statistics.null_count == chunk.num_values or pa.types.is_floating(data_type) else None
    low: Any = statistics.min_raw
    high: Any = statistics.max_raw
    if pa.types.is_unsigned_integer(data_type):
        return low & _UNSIGNED[data_type.bit_width], high & _UNSIGNED[data_type.bit_width]
    return low, high


def _scalar(value: Any, data_type: Any) -> Any:
    if value is None:
        return pa.scalar(None, data_type)
    if pa.types.is_date32(data_type):
        return pa.scalar(value, pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        return pa.scalar(value, pa.int64()).cast(pa.timestamp("us", data_type.tz))
    return pa.scalar(value.decode() if isinstance(value, bytes) else value, data_type)
