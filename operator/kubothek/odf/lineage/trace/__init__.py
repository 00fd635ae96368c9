"""Origins of output rows: the input records that each was made from (PV-01).

The queries are parsed as for a run, but stateful operators record which input rows each of their rows was made from.
From the requested rows, these mappings are then followed back, operator by operator.
"""

from __future__ import annotations

from kubothek.odf.lineage.trace.asking import Asked, Readable, earlier_of, origins

__all__ = ["Asked", "Readable", "earlier_of", "origins"]
