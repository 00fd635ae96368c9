"""An ingest of many rows as work for many processes: what each of them does, and how it fits together. No Spark here.

1. *Pieces* (:mod:`.pieces`): what is read at a time, of files in stores.
2. *Blobs* (:mod:`.blobs`): the rows of a piece as every ledger has them, with their place in the input. With a Ledger
   strategy those whose key was never seen (:mod:`.unseen`).
3. *Ranges* (:mod:`.ranges`): where the order of event times is cut, and how many rows lie between the cuts. So each
   range knows its offsets before a row of it is written.
4. *Slices* (:mod:`.work`): the rows of a range, in order, numbered, hashed and stored; and the same rows on their way
   into the files of the table.
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
