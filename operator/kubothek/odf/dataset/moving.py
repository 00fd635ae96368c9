"""Moves of the chain as a whole: back, or forward to another program's ``refs/head``; and rebuilds of the table."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from kubothek.errors import Conflict, Diverged, FormatInvalid, NotALedger, ObjectNotFound, PreconditionFailed
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.dataset.definition import Chain, fold
from kubothek.odf.dataset.extension import Extension, move_of
from kubothek.odf.dataset.ingesting import Ground, Made, history_of
from kubothek.odf.dataset.table import Table
from kubothek.odf.spec.layout import Layout, head_bytes, parse_head
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.validation.verification import verify
from kubothek.odf.view import rebuild
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation, Snapshot
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainMove, ChainNote, LedgerChange
from kubothek.table.scratch import Scratch


def view_made_anew(ground: Ground) -> Made:
    """Return the change that rebuilds the table from the chain."""
    fields = table_of(ground.store, ground.snapshot, ground.layout, ground.chain)
    note = ground.chain.note
    ledger = LedgerChange(ChainMove(base=note.head, head=note.head), note, rebuilds=True)
    change = Change(operation=Operation.LEDGER, ledger=ledger, by=ground.by, **fields)
    return Made(change=change, extension=Extension(ground.chain, ground.now))


def reset(ground: Ground, block: Multihash) -> Made | None:
    """Return the change to the chain up to this block, and its table. Raises Diverged if the chain lacks it."""
    present = ground.chain.note
    if str(block) == present.head:
        return None
    try:
        read_chain(ground.store, ground.layout, ground.chain.state.head, block)
    except BrokenChain as error:
        if error.problem.code != "Diverged":
            raise
        raise Diverged(
            f"block {block} is not one of the chain of {ground.uuid!r}; `kubothek log --odf` lists its blocks"
        ) from error
    chain = _folded(ground.store, ground.uuid, present, block)
    return Made(change=moved(ground, chain), extension=Extension(chain, ground.now))


def moved(
    ground: Ground, chain: Chain, blocks: tuple[Stored, ...] = (), operation: Operation = Operation.LEDGER
) -> Change:
    """Return the change to this chain, and to a table made from it; ``blocks`` are the new ones."""
    present, note = ground.snapshot.head.chain, chain.note
    base = Multihash.parse(present.head) if present else None
    move = move_of(base, Multihash.parse(note.head), [each.decode() for each in blocks])
    ground.store.put(keys.definition(ground.uuid, note.definition), chain.definition.render())
    fields = table_of(ground.store, ground.snapshot, ground.layout, chain)
    return Change(operation=operation, ledger=LedgerChange(move, note, rebuilds=True), by=ground.by, **fields)


def table_of(
    store: Store, snapshot: Snapshot, layout: Layout, chain: Chain, table: Table | None = None
) -> dict[str, Any]:
    """Return the fields of a change to the table of the chain; its files are stored. ``table``: of a new dataset."""
    if not chain.table:
        return {}
    if chain.state.readable_schema() is None:
        return {"removed": tuple(snapshot.head.partitions)} if snapshot.head.partitions else {}
    history = history_of(store, layout, chain.state)
    laid: dict[str, Any] = {}
    if table is not None:
        laid = {"layout": table.layout, "wanted": table.indices, "dialect": table.dialect}
    with Scratch() as scratch:
        fields: dict[str, Any] = rebuild(store, snapshot, history, scratch, **laid).fields()
    return fields


# --- refs/head that does not name the last block ---------------------------------------------------------------------


def ref_healed(store: Store, log: DatasetLog, by: str) -> bool:
    """Ensure that ``refs/head`` names the last block; return False if it named later ones, which are then imported.

    Raises Diverged if it names a block of another chain, or one after which not all is sound.
    """
    seen = log.settled()
    if seen is None or seen.head.chain is None or log.journal.heal_ref(seen):
        return True
    layout, head = Layout(keys.chain(log.uuid)), Multihash.parse(seen.head.chain.head)
    try:
        data, info = store.get_with_info(layout.head)
        named = parse_head(data)
    except ObjectNotFound:
        return True  # the next commit writes it
    except FormatInvalid as error:
        raise _diverged(log.uuid, str(error)) from error
    if _is_below(store, layout, named, head):
        with suppress(PreconditionFailed):
            store.put_if_match(layout.head, head_bytes(head), info.etag)
        return True
    try:
        came = read_chain(store, layout, named, head)
    except BrokenChain as error:
        raise _diverged(log.uuid, str(error)) from error
    if (problem := verify(store, layout, named).first) is not None:
        raise _diverged(log.uuid, f"what follows the chain there is not sound: {problem}")
    with suppress(Conflict):  # after a conflict, the caller reads the head again
        _take_in(store, log, named, tuple(came), by)
    return False


def keep_own(store: Store, log: DatasetLog) -> Multihash:
    """Set ``refs/head`` to the last block, whatever it names, by decision of a user."""
    seen = log.settled()
    if seen is None or seen.head.chain is None:
        raise NotALedger(f"dataset {log.uuid!r} in {store.url} is a table without a chain")
    head = Multihash.parse(seen.head.chain.head)
    store.put(keys.chain_ref(log.uuid), head_bytes(head))
    return head


def _take_in(store: Store, log: DatasetLog, named: Multihash, came: tuple[Stored, ...], by: str) -> None:
    """Commit the blocks that another program put on top of the chain; they are sound."""
    started = log.begin_new("import")
    snapshot = started.snapshot
    note = snapshot.head.chain
    assert note is not None, "a ledger stays one"
    chain = _folded(store, log.uuid, note, named)
    now = chain.state.system_time
    assert now is not None, "a chain has a seed"
    ground = Ground(
        store=store,
        uuid=log.uuid,
        snapshot=snapshot,
        chain=chain,
        now=now,
        note_written=started.note_written,
        by=by,
    )
    base = str(came[0].decode().content.prev_block_hash)
    if note.head != base:
        return
    started.commit(moved(ground, chain, came, Operation.EXTERNAL))


def _is_below(store: Store, layout: Layout, block: Multihash, head: Multihash) -> bool:
    try:
        read_chain(store, layout, head, block)
    except BrokenChain:
        return False
    return True


def _folded(store: Store, uuid: str, note: ChainNote, head: Multihash) -> Chain:
    return fold(store, Layout(keys.chain(uuid)), replace(note, head=str(head)))


def _diverged(uuid: str, why: str) -> Diverged:
    return Diverged(
        f"refs/head of the ledger {uuid!r} was moved by another program, and not to a block that continues the "
        f"chain: {why}. Compare both; `kubothek heal {uuid} --keep-own` makes it name the last block of this dataset"
    )
