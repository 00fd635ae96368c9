"""The table as the view of a ledger's chain: kept up by the commits of the ledger, made anew, and looked back at.

with Scratch() as scratch, ViewWriter(store, snapshot, schema=schema, vocabulary=vocabulary) as view:
merged = merge(strategy, new, seen_of(store, snapshot, history, scratch), …)
for batch in numbered(merged.rows):
view.write(batch)
change = Change(**view.finish().fields(), …)
"""

from __future__ import annotations

from kubothek.lake.ledger.view.change import ViewChange
from kubothek.lake.ledger.view.history import History, Part
from kubothek.lake.ledger.view.plan import ViewPlan
from kubothek.lake.ledger.view.projections import as_at, as_of
from kubothek.lake.ledger.view.rebuild import rebuild
from kubothek.lake.ledger.view.seen import seen_of
from kubothek.lake.ledger.view.taking_in import taking_in
from kubothek.lake.ledger.view.writer import ViewWriter, wanted_indices

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
