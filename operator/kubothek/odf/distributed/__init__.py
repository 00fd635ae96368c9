"""A large ingest as work for many processes: what each of them does, and how the results fit together. No Spark here.

1. *Pieces* (:mod:`.pieces`): the unit of reading, of files in stores.
2. *Blobs* (:mod:`.blobs`): the rows of a piece as every ledger has them, with their position in the input. With a
   Ledger strategy, those whose key was never seen (:mod:`.unseen`).
3. *Ranges* (:mod:`.ranges`): cuts in the order of event times, and the number of rows between them. So the offsets of
   each range are known before its rows are written.
4. *Slices* (:mod:`.work`): the rows of a range, in order, numbered, hashed and stored. The same rows also go into the
   files of the table.
"""

from __future__ import annotations

from kubothek.odf.distributed.blobs import Blob, Summary
from kubothek.odf.distributed.pieces import Piece, StoredFile, plan_pieces, unpacked
from kubothek.odf.distributed.ranges import Ranges, plan_ranges
from kubothek.odf.distributed.work import Work, can_spread

__all__ = [
    "Blob",
    "Piece",
    "Ranges",
    "StoredFile",
    "Summary",
    "Work",
    "can_spread",
    "plan_pieces",
    "plan_ranges",
    "unpacked",
]
