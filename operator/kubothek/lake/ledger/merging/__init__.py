"""Merge strategies of sources: which records a ledger gets of what a source says now. See docs/odf.md, MS.

with Scratch() as scratch:
    merged = merge(strategy, new, seen, vocabulary=vocabulary, source_event_time=now, scratch=scratch)
    for batch in merged.rows:
        ...
"""

from __future__ import annotations

from kubothek.lake.ledger.merging.batch import RETRACTS
from kubothek.lake.ledger.merging.output import Merged
from kubothek.lake.ledger.merging.scratch import Scratch
from kubothek.lake.ledger.merging.seen import Seen
from kubothek.lake.ledger.merging.strategies import STRATEGIES, merge, shaped

__all__ = ["RETRACTS", "STRATEGIES", "Merged", "Scratch", "Seen", "merge", "shaped"]
