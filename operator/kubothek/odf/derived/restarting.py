"""A derivative dataset without its data: the seed, and what is in force, on a chain of its own (DAT-08)."""

from __future__ import annotations

from dataclasses import replace

from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.ingesting import Ground, Made
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import Seed, SetDataSchema, SetTransform
from kubothek.table.log import Change, Operation


def restarted(ground: Ground, transform: SetTransform | None = None) -> Made | None:
    """The change to the seed with the definition in force on top, and an empty table; None if there is no data.

    ``transform``  takes the place of the transformation in force

    Who has copied the old chain has to copy it whole again.
    """
    chain, present = ground.chain, ground.chain.state
    if transform is None and not present.consumed:
        return None
    blocks = [Block.decode(data) for data in chain.definition.blocks.values()]
    seed = next(block for block in blocks if isinstance(block.content.event, Seed))
    times = [time for time in (ground.now, present.system_time) if time is not None]
    extension = Extension(Chain(types=chain.types, table=chain.table).after(seed), max(times))
    for block in blocks:
        event = block.content.event
        if isinstance(event, SetTransform) and transform is not None:
            extension.add(transform)
        elif not isinstance(event, Seed | SetDataSchema):
            extension.add(event)
    extension.write(ground.store, ground.uuid)
    ledger = replace(extension.change, rebuilds=True)
    ledger = replace(ledger, move=replace(ledger.move, base=str(present.head)))
    removed = tuple(ground.snapshot.head.partitions) if chain.table else ()
    change = Change(operation=Operation.LEDGER, ledger=ledger, by=ground.by, removed=removed)
    return Made(change=change, extension=extension)
