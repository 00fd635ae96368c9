"""Export and import of a whole dataset in the layout of the simple transfer protocol.

Readers of a directory that is being written see the old chain or the new one: data is written first, then blocks, and
``refs/head`` last (SH-01, SH-02). Imported data is verified before it becomes visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from kubothek.errors import ChainCorrupt, Diverged, ObjectNotFound
from kubothek.odf.chain import ADVICE, BrokenChain, Stored, read_chain, read_head
from kubothek.odf.dataset.base import Ledger
from kubothek.odf.dataset.creating import begin_new_dataset
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import move_of
from kubothek.odf.dataset.moving import ref_healed, table_of
from kubothek.odf.dataset.slicing import SLICE_BYTES, Types
from kubothek.odf.dataset.table import Table
from kubothek.odf.named import Named, named_by
from kubothek.odf.problems import Severity
from kubothek.odf.spec.layout import Layout, head_bytes, parse_head
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.object_links import link_columns
from kubothek.odf.validation.linked import MOST_MISSING, Linking, linking, links_in, list_missing
from kubothek.odf.validation.verification import audit, verify
from kubothek.storage import Store
from kubothek.storage.hashed import hashed
from kubothek.table.log import Change, DatasetLog, Operation, Transaction
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import LedgerChange
from kubothek.table.log.records import parallel

_IN_MEMORY: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: new blocks, and the objects that they name and link to; ``missing``: links without one."""

    head: Multihash
    blocks: int
    objects: int
    missing: tuple[Multihash, ...] = ()


def export(root: Ledger, target: Store, prefix: str = "", *, force: bool = False) -> Exported:
    """Write the present chain below a prefix of another store, and all that it names and links to.

    Existing objects of it are left as they are.

    ``prefix``  empty, or ends with ``/``
    ``force``   also if another chain is there, or a longer one, which is given up

    Raises Diverged, ChainCorrupt if an object that blocks name is gone, or a linked one has other bytes than its link.
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
        if not force:
            raise Diverged(
                f"{target.url.rstrip('/')}/{prefix} holds another chain, or more of this one, up to block {there}; "
                "nothing was written there. Import what it has, or export to another place"
            ) from error
        blocks = read_chain(root.store, root.layout, head)
    named = named_by(blocks)
    parallel(lambda each: _copy(root.store, root.layout, target, layout, each), named)
    linked, missing = _copy_linked(root.store, root.layout, target, layout, _linking(root, head))
    parallel(lambda block: target.put(layout.block(block.hash), block.data), blocks)
    if blocks:
        target.put(layout.head, head_bytes(head))
    return Exported(head, len(blocks), len(named) + linked, tuple(missing))


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
) -> Ledger:
    """Create a dataset from a chain below a prefix of another store: the same blocks, and a table made from them.

    Linked objects (RFC-017) that are not there are no error: verification notes them, and a later pull looks for them.

    ``table``  None: no table

    Raises DatasetExists, ChainCorrupt if it is not sound. It does not check that a derivative dataset is the result of
    its transformation: a verification does, where its inputs are.
    """
    theirs = Layout(prefix)
    try:
        head = read_head(source, theirs)
    except BrokenChain as error:
        raise ChainCorrupt(
            f"{source.url.rstrip('/')}/{prefix} is no dataset of Open Data Fabric: {error}. Name the directory that "
            "has refs/, blocks/ and data/"
        ) from error

    def bring(ours: Layout, note_written: Callable[[str], None]) -> list[Stored]:
        blocks = read_chain(source, theirs, head)
        _require_sound_chain(blocks)
        named = named_by(blocks)
        for each in named[:1]:
            note_written(each.key(ours))
        parallel(lambda each: _copy(source, theirs, store, ours, each), named)
        _, missing = _copy_linked(source, theirs, store, ours, linking(blocks, None))
        if missing:
            list_missing(store, ours, missing)
        parallel(lambda block: store.put(ours.block(block.hash), block.data), blocks)
        if (problem := verify(store, ours, head).first) is not None:
            where = f"below {theirs.root or 'the root'!r} in {source.url}"
            raise ChainCorrupt(f"the chain {where} is not sound: {problem}")
        return blocks

    return take_over(store, log, head, bring, table=table, commit_id=commit_id, by=by, slice_bytes=slice_bytes)


class Bring(Protocol):
    """Stores all objects of a chain, verified, and returns the chain's blocks, oldest first.

    ``ours``          their layout
    ``note_written``  is called with the first key that is written
    """

    def __call__(self, ours: Layout, note_written: Callable[[str], None]) -> Sequence[Stored]: ...


def take_over(
    store: Store,
    log: DatasetLog,
    head: Multihash,
    bring: Bring,
    *,
    table: Table | None = None,
    commit_id: str | None = None,
    by: str = "",
    slice_bytes: int = SLICE_BYTES,
) -> Ledger:
    """Create a dataset of the chain that ends with ``head``, which ``bring`` stores; one commit, at the very end.

    Raises DatasetExists, and what ``bring`` raises; then there is no dataset.
    """
    started = begin_new_dataset(log, commit_id, str(head))
    if isinstance(started, Transaction):
        layout = Layout(keys.chain(started.snapshot.head.uuid))
        blocks = bring(layout, started.note_written)
        started.commit(_created(store, layout, head, blocks, started, table, by))
    else:
        ref_healed(store, log, by)
    return Ledger(store, log, by=by, slice_bytes=slice_bytes)


def _created(
    store: Store,
    ours: Layout,
    head: Multihash,
    blocks: Sequence[Stored],
    started: Transaction,
    table: Table | None,
    by: str,
) -> Change:
    uuid = started.snapshot.head.uuid
    chain = Chain(table=table is not None)
    decoded = [block.decode() for block in blocks]
    for block in decoded:
        chain = chain.after(block)
    store.put(keys.definition(uuid, chain.definition.name), chain.definition.render())
    if chain.state.schema is not None:
        chain = replace(chain, types=Types.of(chain.state.schema, chain.state.vocabulary))
    move = move_of(None, head, decoded)
    fields: dict[str, Any] = {}
    if table is not None:
        made = table_of(store, started.snapshot, ours, chain, table)
        fields = table.fields() | made
        if made:
            fields["skipping"] = replace(made["skipping"], wanted=table.skipping)
    return Change(operation=Operation.CREATE, ledger=LedgerChange(move, chain.note), by=by, **fields)


def _require_sound_chain(blocks: Sequence[Stored]) -> None:
    """Raise ChainCorrupt for a chain that is not sound, before anything is copied."""
    found = audit(blocks, notes=False)
    if (problem := next((each for each in found.problems if each.severity is Severity.ERROR), None)) is not None:
        raise ChainCorrupt(f"the chain is not sound, and nothing was written: {problem}")


def _head_of(store: Store, layout: Layout) -> Multihash | None:
    try:
        return parse_head(store.get(layout.head))
    except ObjectNotFound:
        return None


def _copy(source: Store, theirs: Layout, target: Store, ours: Layout, named: Named) -> None:
    """Copy one object, whatever its size. Raises ChainCorrupt if it is gone."""
    key = named.key(theirs)
    try:
        if source.stat(key).size <= _IN_MEMORY:
            target.put(named.key(ours), source.get(key))
            return
        with source.open(key) as stream:
            target.upload(named.key(ours), stream)
    except ObjectNotFound as error:
        raise ChainCorrupt(f"the chain names {key}, which does not exist") from error


def _linking(root: Ledger, head: Multihash) -> list[Linking]:
    """Return the slices of the whole chain that have links: an earlier export may have lacked their objects."""
    ours = root.state.data_schema
    if ours is None or not link_columns(ours.schema):
        return []
    return linking(read_chain(root.store, root.layout, head), None)


def _copy_linked(
    source: Store, theirs: Layout, target: Store, ours: Layout, slices: Sequence[Linking]
) -> tuple[int, list[Multihash]]:
    """Copy the objects that slices link to and that the target lacks; return their number, and the links without an
    object, the first 131,072.

    Raises ChainCorrupt for an object with other bytes than its link names.
    """

    def copy(link: Multihash) -> bool | None:
        """Return whether there is an object to copy; None if the target has it."""
        if link.codec != Codec.SHA3_256:
            return False  # objects are named by SHA3-256 (HS-01)
        key = theirs.data(link)
        with suppress(ObjectNotFound):
            target.stat(ours.data(link))
            return None
        try:
            with hashed(source, key) as found:
                if found.digest != link.digest:
                    raise ChainCorrupt(f"{key}: its bytes are not those that the link names; {ADVICE}")
                target.upload(ours.data(link), found.file)
        except ObjectNotFound:
            return False
        return True

    copied, missing = 0, list[Multihash]()
    for links in links_in(source, theirs, slices):
        for link, done in zip(links, parallel(copy, links), strict=True):
            copied += bool(done)
            if done is False and len(missing) < MOST_MISSING:
                missing.append(link)
    return copied, missing
