"""What an index must answer, computed from the rows themselves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.indexes import Collected, IndexCollector, IndexState

UUID = "flights"
Rows = Mapping[str, Sequence[Any]]
"""The values of one column, by the label of the file that holds them."""

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Indexed:
    """A head that has nothing but indices."""

    def __init__(self, state: IndexState) -> None:
        self.index_state = state
        self.partitions: dict[str, object] = {}


def matching(rows: Rows, op: str, values: Sequence[Any]) -> set[str]:
    """The labels of files with a matching row, by SQL's rules: a comparison with NULL is never true."""

    def matches(value: Any) -> bool:
        if value is None:
            return False
        if op == "in":
            return value in [v for v in values if v is not None]
        return values[0] is not None and _COMPARE[op](value, values[0])

    return {label for label, held in rows.items() if any(map(matches, held))}


def collect(store: Store, rows: Rows, value_type: pa.DataType, *, memory_budget: int = 1 << 20) -> Collected:
    """The entries of these files for the column ``x``, gathered in small pieces."""
    collector = IndexCollector(store, UUID, {"x": value_type}, memory_budget=memory_budget)
    for label, held in rows.items():
        for start in range(0, max(1, len(held)), 3):
            batch = pa.record_batch({"x": pa.array(held[start : start + 3], value_type)})
            collector.observe(label, [batch])
    return collector.finish()
