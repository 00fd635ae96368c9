"""Ledger: the first record of each key that was never seen is new (MS-02, MS-03).

The reference appends all records of a batch that share a new key, so its ledger depends on how the source was cut into
batches. This one does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.odf.merge.batch import New, Rows, check_key, filled
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.scratch import ROW, Scratch
from kubothek.odf.merge.seen import Seen
from kubothek.odf.spec.sources import MergeStrategyLedger

_KEYS_AT_ONCE: Final = 1 << 20
"""Keys that are looked up together; only these are in memory."""


def ledger(strategy: MergeStrategyLedger, new: New, seen: Seen, output: Output) -> Merged:
    """Return the first record of each key that was never seen, in the order of their event times."""
    key, scratch = strategy.primary_key, output.scratch
    given = new()
    check_key(given.schema, key, strategy.kind)
    if given.schema.names[0] in key:
        given = filled(given, given.schema.names[0], output.moment)
    rows = Rows.of(given, scratch)
    appended = output.appended(rows, *unseen(rows, key, seen, scratch))
    return replace(appended, keyed_by=keyed_by(key, seen))


def keyed_by(key: tuple[str, ...], seen: Seen) -> tuple[str, ...] | None:
    """Return the columns for which :meth:`~.seen.Seen.keyed_by` also holds with such records; None: not known."""
    return tuple(sorted(key)) if seen.keyed_by(key) else None


def unseen(rows: Rows, key: tuple[str, ...], seen: Seen, scratch: Scratch) -> tuple[str, int]:
    """Return a table with ``n`` of the first record of each key that was never seen, and their number."""
    firsts, count = _firsts(rows, key, scratch, in_order=not seen.empty)
    if seen.empty:
        return firsts, count
    found = [np.zeros(0, np.int64)]
    found += [_unseen(rows, key, firsts, start, seen, scratch) for start in range(0, count, _KEYS_AT_ONCE)]
    numbers = pa.table([pa.array(np.concatenate(found))], names=[ROW])
    return scratch.register("unseen", numbers), numbers.num_rows


def _firsts(rows: Rows, key: tuple[str, ...], scratch: Scratch, *, in_order: bool) -> tuple[str, int]:
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


def _unseen(
    rows: Rows, key: tuple[str, ...], firsts: str, start: int, seen: Seen, scratch: Scratch
) -> npt.NDArray[np.int64]:
    """Return the numbers of the first records of keys that were never seen, for the keys from ``start`` on."""
    inside = rows.each_inside(key)
    found = scratch.table(
        f"SELECT {', '.join(inside)}, {ROW} FROM {firsts} "  # noqa: S608
        f"WHERE rowid >= {start} AND rowid < {start + _KEYS_AT_ONCE} ORDER BY rowid"
    )
    keys = rows.carrier.restored(key, found.select(inside))
    known = seen.keys(keys).to_numpy(zero_copy_only=False)
    numbers: npt.NDArray[np.int64] = found.column(ROW).to_numpy()[~known]
    return numbers
