"""Ledger: the first record of each key that was never seen is new (MS-02, MS-03).

The reference appends all records of a batch that share a new key, so its ledger depends on how the source was cut into
batches. This one does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kubothek.odf.merge.batch import New, Rows, check_key, filled
from kubothek.odf.merge.keys import first_rows, keys_of
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.spec.sources import MergeStrategyLedger
from kubothek.table.scratch import ROW, Scratch


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
    firsts, count = first_rows(rows, key, scratch, in_order=not seen.empty)
    if seen.empty:
        return firsts, count
    found = [np.zeros(0, np.int64)]
    for keys, those in keys_of(rows, key, firsts, count, scratch):
        found.append(those[~seen.keys(keys).to_numpy(zero_copy_only=False)])
    numbers = pa.table([pa.array(np.concatenate(found))], names=[ROW])
    return scratch.register("unseen", numbers), numbers.num_rows
