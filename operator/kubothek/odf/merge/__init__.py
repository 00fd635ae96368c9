"""Merge strategies of sources: which records a ledger gets from the rows of a source. See docs/odf.md, MS.

with Scratch() as scratch:
    merged = merge(strategy, new, seen, vocabulary=vocabulary, source_event_time=now, scratch=scratch)
    for batch in merged.rows:
        ...
"""

from __future__ import annotations

from kubothek.odf.merge.batch import PASSING, RETRACTS
from kubothek.odf.merge.output import Merged
from kubothek.odf.merge.seen import Seen
from kubothek.odf.merge.strategies import STRATEGIES, merge, shaped, takes_operations

__all__ = ["PASSING", "RETRACTS", "STRATEGIES", "Merged", "Seen", "merge", "shaped", "takes_operations"]
