"""``refs/head`` of a ledger: a copy, for other ODF programs, of what the head says of the chain.

It is moved after the commit, by a conditional PUT, and only from a block that a commit below this one left: so it goes
forward whoever is slow, and what another program put there stays. What it names then is the business of
:mod:`kubothek.odf.dataset`.
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

_LOOK_BACK: Final = 100
"""Commits; who lags by more is looked at block by block."""


def named_block(store: Store, uuid: str) -> str | None:
    """What ``refs/head`` names; None if there is none."""
    try:
        return store.get(keys.chain_ref(uuid)).decode("ascii", "replace")
    except ObjectNotFound:
        return None


def advance_ref(store: Store, uuid: str, record: Record, before: Iterable[Record]) -> bool:
    """Make ``refs/head`` name the block that this commit left; whether it names it, or a later one.

    ``before``  the commits below it, newest first: only read if it names another block than the one below
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
    with suppress(PreconditionFailed):  # somebody on top of this commit was faster
        store.put_if_match(key, move.head.encode(), info.etag)
    return True


def was_left(block: str, before: Iterable[Record]) -> bool:
    """Whether one of the first of these commits left the chain at this block, or went over it."""
    moves = (record.ledger for record in islice(before, _LOOK_BACK) if record.ledger is not None)
    return any(block == move.head or block in move.blocks for move in moves)
