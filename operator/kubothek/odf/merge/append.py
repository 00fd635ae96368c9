"""Append: everything is new (MS-01)."""

from __future__ import annotations

from kubothek.odf.merge.batch import New, Order, Rows
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.spec.sources import MergeStrategyAppend
from kubothek.table.carried import Carrier


def append(strategy: MergeStrategyAppend, new: New, seen: Seen, output: Output) -> Merged:
    """Return all records in the order of their event times, those without one first.

    Most sources are in this order already: then the first read checks it, and the second passes the records on.
    """
    order, rows = Order(), new()
    Carrier(rows.schema)  # refuses types that cannot be sorted, whatever the order
    count = sum(batch.num_rows for batch in order.watched(rows))
    return output.passed(new(), count) if order.kept else output.appended(Rows.of(new(), output.scratch))
