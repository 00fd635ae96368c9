"""The table as the view of a ledger's chain: updates by the ledger's commits, rebuilds, and earlier states.

with Scratch() as scratch, ViewWriter(store, snapshot, schema=schema, vocabulary=vocabulary) as view:
merged = merge(strategy, new, seen_of(store, snapshot, history, scratch), …)
for batch in numbered(merged.rows):
view.write(batch)
change = Change(**view.finish().fields(), …)
"""

from __future__ import annotations

from kubothek.odf.view.apply_records import taking_in
from kubothek.odf.view.change import ViewChange
from kubothek.odf.view.history import History, Part
from kubothek.odf.view.plan import ViewPlan
from kubothek.odf.view.projections import as_at, as_of
from kubothek.odf.view.rebuild import rebuild
from kubothek.odf.view.seen import seen_of
from kubothek.odf.view.writer import ViewWriter, wanted_indices

__all__ = [
    "History",
    "Part",
    "ViewChange",
    "ViewPlan",
    "ViewWriter",
    "as_at",
    "as_of",
    "rebuild",
    "seen_of",
    "taking_in",
    "wanted_indices",
]
