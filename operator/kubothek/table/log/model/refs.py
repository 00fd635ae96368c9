"""``refs/head`` of a ledger: a copy of the chain's last block in the head, for other ODF programs.

It moves after the commit, by a conditional PUT, and only from a block that a commit below this one left. So a slow
writer never moves it back, and a value of another program stays; :mod:`kubothek.odf.dataset` interprets that.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

from kubothek.errors import ObjectNotFound, PreconditionFailed
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.record import Record

_MAX_COMMITS: Final = 100
"""Number of commits to search; a ref that lags by more is checked block by block."""


def named_block(store: Store, uuid: str) -> str | None:
    """Return the block that ``refs/head`` names; None if there is none."""
    try:
        return store.get(keys.chain_ref(uuid)).decode("ascii", "replace")
    except ObjectNotFound:
        return None


def advance_ref(store: Store, uuid: str, record: Record, before: Iterable[Record]) -> bool:
    """Move ``refs/head`` to the block that this commit left; return whether it names that block or a later one.

    ``before``  the commits below, newest first: read only if it names another block than the one below
    """
    move, key = record.ledger, keys.chain_ref(uuid)
    assert move is not None, "it moved the chain"
    try:
        data, info = store.get_with_info(key)
    except ObjectNotFound:
        with suppress(PreconditionFailed):
            store.put_if_absent(key, move.head.encode())
        return True
    named = data.decode("ascii", "replace")
    if named == move.head:
        return True
    if named != move.base and not was_left(named, before):
        return False
    with suppress(PreconditionFailed):  # another commit on top of this one was faster
        store.put_if_match(key, move.head.encode(), info.etag)
    return True


def was_left(block: str, before: Iterable[Record]) -> bool:
    """Return whether one of the first of these commits left the chain at this block, or wrote it on the way."""
    moves = (record.ledger for record in islice(before, _MAX_COMMITS) if record.ledger is not None)
    return any(block == move.head or block in move.blocks for move in moves)
