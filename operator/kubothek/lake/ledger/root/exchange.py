"""A whole dataset as a directory in the layout of the simple transfer protocol, out of a store and into it.

Whoever reads a directory that is being written sees the old chain or the new one: data first, then blocks, and
``refs/head`` last (SH-01, SH-02). What comes in is verified before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubothek.lake.commits import Change, DatasetLog, Operation, Transaction, keys
from kubothek.lake.commits.ledgers import LedgerChange
from kubothek.lake.commits.records import parallel
from kubothek.lake.errors import ChainCorrupt, Diverged, FormatInvalid, InputError, ObjectNotFound
from kubothek.lake.ledger.chain import BrokenChain, Stored, read_chain, read_head
from kubothek.lake.ledger.events import AddData, DatasetKind, ExecuteTransform
from kubothek.lake.ledger.layout import Layout, head_bytes, parse_head
from kubothek.lake.ledger.multihash import Multihash
from kubothek.lake.ledger.problems import Severity
from kubothek.lake.ledger.root.creating import begin_new_dataset
from kubothek.lake.ledger.root.definition import Chain
from kubothek.lake.ledger.root.extension import move_of
from kubothek.lake.ledger.root.handle import Root
from kubothek.lake.ledger.root.moving import ref_healed, table_of
from kubothek.lake.ledger.root.slicing import SLICE_BYTES, Types
from kubothek.lake.ledger.root.table import Table
from kubothek.lake.ledger.verification import audit, verify
from kubothek.lake.store import Store

_IN_MEMORY: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: new blocks, and new objects that they name."""

    head: Multihash
    blocks: int
    objects: int


def export(root: Root, target: Store, prefix: str = "") -> Exported:
    """Write the chain as it is now below a prefix of another store; what is there of it already is left as it is.

    ``prefix``  empty, or ends with ``/``

    Raises Diverged if another chain is there, or a longer one; ChainCorrupt if an object is gone.
    """
    root.refresh()
    head, layout = root.state.head, Layout(prefix)
    assert head is not None, "a chain has a seed"
    there = _head_of(target, layout)
    try:
        blocks = read_chain(root.store, root.layout, head, there)
    except BrokenChain as error:
        if there is None or error.problem.code != "Diverged":
            raise
        raise Diverged(
            f"{target.url.rstrip('/')}/{prefix} holds another chain, or more of this one, up to block {there}; nothing "
            "was written there. Import what it has, or export to another place"
        ) from error
    named = _named(blocks)
    parallel(lambda name: _copy(root.store, root.layout, target, layout, name), named)
    parallel(lambda block: target.put(layout.block(block.hash), block.data), blocks)
    if blocks:
        target.put(layout.head, head_bytes(head))
    return Exported(head, len(blocks), len(named))


def import_chain(
    store: Store,
    log: DatasetLog,
    source: Store,
    prefix: str = "",
    *,
    table: Table | None = None,
    commit_id: str | None = None,
    by: str = "",
    slice_bytes: int = SLICE_BYTES,
) -> Root:
    """Make a dataset of a chain that lies below a prefix of another store: the same blocks, and a table made from them.

    ``table``  None: no table

    Raises DatasetExists, ChainCorrupt if anything is wrong with it, InputError for a derivative dataset.
    """
    theirs = Layout(prefix)
    try:
        head = read_head(source, theirs)
    except BrokenChain as error:
        raise ChainCorrupt(
            f"{source.url.rstrip('/')}/{prefix} is no dataset of Open Data Fabric: {error}. Name the directory that "
            "has refs/, blocks/ and data/"
        ) from error
    started = begin_new_dataset(log, commit_id, str(head))
    if isinstance(started, Transaction):
        started.commit(_imported(store, source, theirs, head, started, table, by))
    else:
        ref_healed(store, log, by)
    return Root(store, log, by=by, slice_bytes=slice_bytes)


def _imported(
    store: Store, source: Store, theirs: Layout, head: Multihash, started: Transaction, table: Table | None, by: str
) -> Change:
    uuid = started.snapshot.head.uuid
    ours = Layout(keys.chain(uuid))
    blocks = read_chain(source, theirs, head)
    _require_root_chain(blocks)
    named = _named(blocks)
    for key in (_key(ours, name) for name in named[:1]):
        started.note_written(key)
    parallel(lambda name: _copy(source, theirs, store, ours, name), named)
    parallel(lambda block: store.put(ours.block(block.hash), block.data), blocks)
    if (problem := verify(store, ours, head).first) is not None:
        raise ChainCorrupt(f"the chain below {theirs.root or 'the root'!r} in {source.url} is not sound: {problem}")
    chain = Chain(table=table is not None)
    for block in blocks:
        chain = chain.after(block.decode())
    store.put(keys.definition(uuid, chain.definition.name), chain.definition.render())
    if (
        chain.state.schema is not None
        and chain.state.schema.field(chain.state.vocabulary.offset).type == Types.SPEC.offset
    ):
        chain = replace(chain, types=Types.SPEC)
    move = move_of(None, head, [block.decode() for block in blocks])
    fields: dict[str, Any] = {}
    if table is not None:
        made = table_of(store, started.snapshot, ours, chain, table)
        fields = table.fields() | made
        if made:
            fields["skipping"] = replace(made["skipping"], wanted=table.skipping)
    return Change(operation=Operation.CREATE, ledger=LedgerChange(move, chain.note), by=by, **fields)


def _require_root_chain(blocks: Sequence[Stored]) -> None:
    """Raises ChainCorrupt for a chain that is not sound, before anything is copied."""
    found = audit(blocks)
    if (problem := next((each for each in found.problems if each.severity is Severity.ERROR), None)) is not None:
        raise ChainCorrupt(f"the chain is not sound, and nothing was written: {problem}")
    assert found.state.seed is not None, "a sound chain has a seed"
    if (kind := found.state.seed.dataset_kind) is not DatasetKind.ROOT:
        raise InputError(f"the chain is that of a {kind.value} dataset; only root datasets can be imported")


def _head_of(store: Store, layout: Layout) -> Multihash | None:
    try:
        return parse_head(store.get(layout.head))
    except ObjectNotFound:
        return None


_DATA: Final = "data"
_CHECKPOINT: Final = "checkpoint"
_Named = tuple[str, Multihash]


def _named(blocks: Sequence[Stored]) -> list[_Named]:
    """What the blocks name, each object once. Raises ChainCorrupt."""
    found: dict[_Named, None] = {}
    for stored in blocks:
        try:
            event = stored.decode().content.event
        except FormatInvalid as error:
            raise ChainCorrupt(f"block {stored.hash}: {error}") from error
        if isinstance(event, AddData | ExecuteTransform):
            if event.new_data:
                found[_DATA, event.new_data.physical_hash] = None
            if event.new_checkpoint:
                found[_CHECKPOINT, event.new_checkpoint.physical_hash] = None
    return [*found]


def _key(layout: Layout, named: _Named) -> str:
    kind, physical = named
    return layout.data(physical) if kind == _DATA else layout.checkpoint(physical)


def _copy(source: Store, theirs: Layout, target: Store, ours: Layout, named: _Named) -> None:
    """Copy one object, whatever its size. Raises ChainCorrupt if it is gone."""
    key = _key(theirs, named)
    try:
        if source.stat(key).size <= _IN_MEMORY:
            target.put(_key(ours, named), source.get(key))
            return
        with source.open(key) as stream:
            target.upload(_key(ours, named), stream)
    except ObjectNotFound as error:
        raise ChainCorrupt(f"the chain names {key}, which is not there") from error
