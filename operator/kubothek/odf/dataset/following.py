"""Pulled or pushed blocks: on top of the chain, or, by decision of a user, in its place.

Before a function here is called, these blocks and all objects that they name are stored in their places, and verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kubothek.errors import Diverged
from kubothek.odf.chain import Stored
from kubothek.odf.dataset.definition import Chain, fold
from kubothek.odf.dataset.extension import Extension, move_of
from kubothek.odf.dataset.ingesting import Ground, Made
from kubothek.odf.dataset.moving import moved
from kubothek.odf.dataset.parts import moment
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import AddData, ExecuteTransform
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.validation.state import ChainState
from kubothek.odf.view import History, Part, ViewWriter, taking_in
from kubothek.table.log import Change, Operation
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import LedgerChange
from kubothek.table.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Came:
    """The target head of a chain, and the blocks from the chain to it, oldest first; none if the chain has it."""

    head: Multihash
    blocks: Sequence[Stored]


class Find(Protocol):
    """Finds the blocks to follow a chain in this state, all of them stored and verified; None if there are none.

    ``note_written``  is called with the first key that is written
    """

    def __call__(self, state: ChainState, note_written: Callable[[str], None]) -> Came | None: ...


def followed(ground: Ground, came: Came, *, force: bool) -> Made | None:
    """Return the change that moves the chain to the target head; None if it is there. Raises Diverged.

    ``force``  also if that drops blocks of the chain
    """
    state = ground.chain.state
    if state.head == came.head:
        return None
    if came.blocks and came.blocks[0].decode().content.prev_block_hash == state.head:
        return _grown(ground, [stored.decode() for stored in came.blocks])
    if not force:
        raise Diverged(
            f"the chain of {ground.uuid!r} ends with {state.head}, which is not below {came.head}: with force, the "
            "blocks that exist only here are discarded"
        )
    chain = fold(ground.store, ground.layout, replace(ground.chain.note, head=str(came.head)))
    return Made(change=moved(ground, chain, tuple(came.blocks)), extension=Extension(chain, ground.now))


def _grown(ground: Ground, blocks: Sequence[Block]) -> Made:
    """Return the chain with the blocks on top, and its table with their records."""
    chain = ground.chain
    parts: list[Part] = []
    for block in blocks:
        parts.extend(_parts(ground, chain, block))
        chain = chain.after(block)
    extension = Extension(chain, ground.now)
    history = History(ground.store, parts, chain.state.vocabulary, chain.state.schema, records=chain.state.next_offset)
    renamed = chain.state.vocabulary != ground.chain.state.vocabulary and ground.chain.state.last_offset is not None
    table = {} if not chain.table or not parts else None if renamed else _with_new(ground, history)
    if table is None:
        change = moved(ground, chain, _stored(blocks))
        return Made(change=change, extension=extension, records=_records(parts), slices=len(parts))
    ground.store.put(keys.definition(ground.uuid, chain.note.definition), chain.definition.render())
    head, base = chain.state.head, ground.chain.state.head
    assert head is not None, "blocks came"
    change = Change(
        operation=Operation.APPEND if parts else Operation.LEDGER,
        ledger=LedgerChange(move_of(base, head, blocks), chain.note),
        by=ground.by,
        **table,
    )
    return Made(change=change, extension=extension, records=_records(parts), slices=len(parts))


def _with_new(ground: Ground, history: History) -> dict[str, Any] | None:
    """Return the fields of a change that add the records to the table; None if it has to be rebuilt."""
    if not history.retracting():
        return _appended(ground, history)
    with Scratch() as scratch:
        made = taking_in(ground.store, ground.snapshot, history, scratch)
        return None if made is None else made.fields()


def _appended(ground: Ground, history: History) -> dict[str, Any]:
    """Return the fields of a change that add the records to the table; none of them is a retraction."""
    assert history.schema is not None, "a slice comes after a schema"
    names = history.schema.names
    with ViewWriter(
        ground.store, ground.snapshot, schema=history.as_read(names), vocabulary=history.vocabulary
    ) as view:
        for batch in history.scan(names):
            view.write(batch)
        fields: dict[str, Any] = view.finish().fields()
    return fields


def _parts(ground: Ground, chain: Chain, block: Block) -> Iterator[Part]:
    event = block.content.event
    if isinstance(event, AddData | ExecuteTransform) and event.new_data:
        yield Part(
            key=ground.layout.data(event.new_data.physical_hash),
            start=event.new_data.offset_interval.start,
            end=event.new_data.offset_interval.end,
            vocabulary=chain.state.vocabulary,
            system_time=moment(block.content.system_time),
            block=block.hash,
        )


def _records(parts: Sequence[Part]) -> int:
    return sum(part.end - part.start + 1 for part in parts)


def _stored(blocks: Sequence[Block]) -> tuple[Stored, ...]:
    return tuple(Stored(block.hash, block.data) for block in blocks)
