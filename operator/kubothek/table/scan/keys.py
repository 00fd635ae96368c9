"""Keys as the planner needs them: their values in the table's stored types, and the files that may hold one of many."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.storage import Store
from kubothek.table.expressions import Op, Term
from kubothek.table.indexes import lookup
from kubothek.table.indexes.lookup import labels_held
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.schema import conform

MOST_LISTED: Final = 1 << 17
"""The most values of one index lookup for the files of each, and of one filter; with more, all rows are read."""


class Stored:
    """A column of keys, or of records to look up, in the stored type of the table.

    ``column``   a value for each key
    ``values``   the distinct ones, without NULL
    ``strange``  whether there are NULLs or NaNs, which no index and no range has
    """

    def __init__(self, name: str, column: Any) -> None:
        self.name = name
        self.column = column
        self.values: Any = pc.unique(column).drop_null()
        self.strange = bool(is_strange(column).any())

    @classmethod
    def of(cls, keys: pa.Table, name: str, schema: pa.Schema) -> Stored:
        """Return the column of this name."""
        field = schema.field(name)
        return cls(name, conform(keys.select([name]), pa.schema([field])).column(0).combine_chunks())

    def range(self) -> list[Term]:
        """Return terms that hold for all values."""
        if self.column.null_count == len(self.column):
            return [Term(self.name, Op.IS_NULL)]
        if self.strange or not len(self.values) or not has_range(self.values.type):
            return []
        ends: Any = pc.min_max(self.values)
        return [Term(self.name, Op.GE, ends["min"].as_py()), Term(self.name, Op.LE, ends["max"].as_py())]


def labels_of(store: Store, snapshot: Snapshot, schema: pa.Schema, first: Stored) -> set[str] | None:
    """Return the labels of the files that may hold one of these values of the first key column; None = any may."""
    if first.strange:
        return None
    head = snapshot.head
    held = labels_held(store, head, schema, first.name, first.values, head.partitions.keys())
    return listed(store, snapshot, schema, first.name, first.values) if held is None else held


def listed(store: Store, snapshot: Snapshot, schema: pa.Schema, column: str, values: Any) -> set[str] | None:
    """Return the same for values of any column with an index, of either library; None also for too many values."""
    if len(values) > MOST_LISTED:
        return None
    found = lookup(store, snapshot.head, schema, column, Op.IN, values.to_pylist())
    return None if found is None else {label for label in found if label in snapshot.head.partitions}


def is_strange(column: Any) -> npt.NDArray[np.bool_]:
    """Return which values are NULL or NaN."""
    found = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    return np.asarray(found.to_numpy(zero_copy_only=False)) if isinstance(found, pa.Array) else found.to_numpy()


def has_range(stored: pa.DataType) -> bool:
    """Return whether the planner compares values of this type by their order."""
    types = pa.types
    return (
        types.is_integer(stored)
        or types.is_floating(stored)
        or types.is_string(stored)
        or types.is_date(stored)
        or types.is_timestamp(stored)
    )
