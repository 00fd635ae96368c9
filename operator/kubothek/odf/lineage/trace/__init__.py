"""Of which records of the inputs a row of the answer was made (PV-01).

The queries are read as for a run, but what has a state remembers which of its rows came from which; from the rows that
were asked about the way is then gone back, one operator after the other.
"""

from __future__ import annotations

from kubothek.odf.lineage.trace.asking import Asked, Readable, earlier_of, origins

__all__ = ["Asked", "Readable", "earlier_of", "origins"]
