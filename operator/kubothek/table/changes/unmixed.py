"""Compute the changes between few rows in Arrow, if no row is both removed and added.

A row-level update or delete leaves few rows to compare, and the rows before and after it have none in common. Then each
row is a change, and only keys are left to match. A database takes longer to start than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.changes.cancel import same_values
from kubothek.table.changes.plan import CHANGE_TYPE, COMMIT_VERSION, DELETE, FEED_COLUMNS, INSERT, POSTIMAGE, PREIMAGE

_KINDS: Final = pa.array([DELETE, INSERT, PREIMAGE, POSTIMAGE])
_UPDATE: Final = 2
"""Added to the index of ``delete`` and ``insert``."""


def unmixed_changes(rows: pa.Table, key: Sequence[int] = ()) -> pa.Table | None:
    """Return removed and added rows as changes, by version, then key, deleted rows and preimages first.

    ``rows``  with the columns of a feed, as ``delete`` or ``insert``; no column is nested
    ``key``   positions of the columns that identify a row. A key with one old and one new row is an update

    Returns None if an equal row is removed and added by one version, or if Arrow lacks a function for a type.
    """
    rows = rows.combine_chunks()
    version, side = rows[COMMIT_VERSION], pc.equal(rows[CHANGE_TYPE], pa.scalar(INSERT)).cast(pa.int8())
    try:
        if not _is_unmixed([version, *rows.columns[: -len(FEED_COLUMNS)]], side):
            return None
        places = _ordered([version, *(rows.column(at) for at in key), side])
    except pa.ArrowNotImplementedError:
        return None
    ordered, kinds = rows.take(places), side.take(places).to_numpy()
    if key:
        runs = _runs([ordered[COMMIT_VERSION], *(ordered.column(at) for at in key)])
        kinds = kinds + _UPDATE * _are_updates(kinds, runs)
    at = ordered.schema.get_field_index(CHANGE_TYPE)
    return ordered.set_column(at, ordered.schema.field(at), _KINDS.take(pa.array(kinds)))


def _is_unmixed(columns: Sequence[Any], side: Any) -> bool:
    """Return whether the rows of each group of equal rows are on one side."""
    compared = {f"c{at}": _canonical(each) for at, each in enumerate(columns) if not pa.types.is_null(each.type)}
    table = pa.table({**compared, "side": side})
    groups = table.group_by([*compared], use_threads=False).aggregate([("side", "min"), ("side", "max")])
    return groups["side_min"].equals(groups["side_max"])


def _canonical(column: Any) -> Any:
    """Return the column with one form of NaN and of zero, because groups compare bytes."""
    if not pa.types.is_floating(column.type):
        return column
    nan, zero = pa.scalar(float("nan"), column.type), pa.scalar(0.0, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


def _ordered(columns: Sequence[Any]) -> Any:
    """Return the positions of rows in ascending order of columns."""
    table = pa.table({f"c{at}": each for at, each in enumerate(columns) if not pa.types.is_null(each.type)})
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def _runs(columns: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return where runs of equal rows begin, and the number of rows."""
    rows = len(columns[0])
    same = reduce(pc.and_, (same_values(each.slice(1), each.slice(0, rows - 1)) for each in columns))
    return np.concatenate([[0], np.flatnonzero(~same.to_numpy()) + 1, [rows]])


def _are_updates(side: np.ndarray[Any, Any], runs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each row whether its run is one removed and one added row."""
    sizes = np.diff(runs)
    is_update = (sizes == 2) & (np.add.reduceat(side, runs[:-1]) == 1)
    return np.repeat(is_update, sizes)
