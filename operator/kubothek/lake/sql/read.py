"""What a run read, as its result remembers it."""

from __future__ import annotations

from typing import NamedTuple


class Read(NamedTuple):
    """What was read of one dataset.

    ``version``     of it; 0 for files that are no dataset's
    ``files``       that were opened
    ``considered``  files that skipping metadata had to decide about
    ``skipped``     those of them that it left out
    ``filters``     what it was filtered by (:mod:`kubothek.lake.skipping.filters_seen`); the first few
    """

    name: str
    version: int
    files: int
    considered: int = 0
    skipped: int = 0
    filters: tuple[str, ...] = ()
