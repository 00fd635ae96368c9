"""The distinct keys of a batch, for look-ups in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.odf.merge.batch import Rows
from kubothek.table.scratch import ROW, Scratch

_AT_ONCE: Final = 1 << 20
"""Keys that are looked up together; only these are in memory."""


def first_rows(rows: Rows, key: tuple[str, ...], scratch: Scratch, *, in_order: bool) -> tuple[str, int]:
    """Return a table of the distinct keys, with ``n`` of the first record of each, and their number.

    ``in_order``  by key, so that keys which are looked up together are close to each other
    """
    columns = ", ".join(rows.each_inside(key))
    name, order = scratch.new_name("firsts"), f"ORDER BY {columns}" if in_order else ""
    scratch.run(
        f"CREATE TABLE {name} AS SELECT {columns}, min({ROW}) AS {ROW} FROM {rows.table} "  # noqa: S608  # our names
        f"GROUP BY {columns} {order}"
    )
    found = scratch.first(f"SELECT count(*) FROM {name}")  # noqa: S608
    return name, found[0] if found else 0


def keys_of(
    rows: Rows, key: tuple[str, ...], firsts: str, count: int, scratch: Scratch
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """Yield the keys of a table of :func:`first_rows`, in its order and in the types of slices, with their ``n``."""
    inside = rows.each_inside(key)
    for start in range(0, count, _AT_ONCE):
        found = scratch.table(
            f"SELECT {', '.join(inside)}, {ROW} FROM {firsts} "  # noqa: S608
            f"WHERE rowid >= {start} AND rowid < {start + _AT_ONCE} ORDER BY rowid"
        )
        yield rows.carrier.restored(key, found.select(inside)), found.column(ROW).to_numpy()
