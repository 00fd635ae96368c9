"""A derivative dataset that is there: what its transformation makes of its inputs, one run after the other.

Each run is one commit, or none if there is nothing new, and one ExecuteTransform. What was consumed stands in the
chain, so a run that dies, or two at once, take nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256

import orjson

from kubothek.errors import InputError, TransformChanged
from kubothek.odf.chain import read_chain
from kubothek.odf.dataset import Ingested, Ledger, Root
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.ingesting import Ground, Made, events_made
from kubothek.odf.derived.batching import USUAL, Batch, Limits, next_batch
from kubothek.odf.derived.definition import is_same, remembers, resolved_transform, stored_transform
from kubothek.odf.derived.inputs import Inputs, all_located
from kubothek.odf.derived.pulling import pulled
from kubothek.odf.derived.restoring import Restored, restore
from kubothek.odf.derived.running import OURS, Engine
from kubothek.odf.derived.waiting import Pending, Seen, all_waiting, pending
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import DatasetKind, MetadataEvent, Seed, SetDataSchema, SetTransform
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.validation.state import ChainState
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation


class OnChange(StrEnum):
    """What becomes of the data when a transformation becomes another one.

    ``REFUSE``    nothing: the change is refused
    ``CONTINUE``  it stays, and the new transformation goes on where the old one was
    ``RESET``     it goes, and the new transformation begins with the first records
    """

    REFUSE = "Refuse"
    CONTINUE = "Continue"
    RESET = "Reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """What became of a run. ``more``: the inputs had more than it took; run again."""

    done: Ingested
    consumed: int = 0
    more: bool = False


class Derivative(Ledger):
    """One derivative dataset; see :class:`~kubothek.odf.dataset.base.Ledger`."""

    def __init__(self, store: Store, log: DatasetLog, *, by: str = "", known: Chain | None = None) -> None:
        """Reads where the chain is. Raises NotALedger, DatasetNotFound, InputError for a root dataset."""
        super().__init__(store, log, by=by, known=known)
        self._seen: Seen = {}
        if self.state.seed is None or self.state.seed.dataset_kind is not DatasetKind.DERIVATIVE:
            raise InputError(f"dataset {self.uuid!r} is a root dataset: it has no transformation")

    def pending(self, inputs: Inputs) -> Pending:
        """What waits in the inputs, and what is in the way. Reads blocks only. Raises StoreError."""
        self.refresh()
        return pending(self.store, self.state, inputs, self._seen)

    def pull(self, inputs: Inputs, limits: Limits = USUAL, *, engine: Engine = OURS) -> Pulled:
        """Run the transformation once, on what its inputs have by now and it did not see yet.

        ``engine``  that runs it

        Raises InputMissing, InputDiverged, TransformInvalid, SchemaMismatch, what the engine raises, Drift, Diverged,
        and what a transaction raises, all with the dataset as before.
        """
        self.refresh()
        asked, first = self.state.head, self._next(self.state, inputs, limits)
        batch = first

        def make(ground: Ground) -> Made | None:
            nonlocal batch
            state = ground.chain.state
            batch = first if state.head == asked else self._next(state, inputs, limits)
            return None if batch is None else pulled(ground, batch, engine)

        done = self._commit("transform", make, None if first is None else _id(asked, first), "")
        if done.up_to_date or done.repeated or batch is None:
            return Pulled(
                done=done, more=done.repeated
            )  # somebody else's run: whether there is more, the next one says
        return Pulled(done=done, consumed=batch.records, more=batch.more)

    def _next(self, state: ChainState, inputs: Inputs, limits: Limits) -> Batch | None:
        return next_batch(all_waiting(self.store, state, inputs, self._seen), state.watermark, limits)

    def restore(self, inputs: Inputs) -> Restored:
        """Make again what the chain names and the store does not have any more: slices and checkpoints (DAT-08).

        Raises ChainCorrupt if they come out otherwise, InputMissing, InputDiverged, what the engine raises, StoreError.
        """
        self.refresh()
        blocks = read_chain(self.store, self.layout, self.state.head)
        return restore(self.store, self.layout, blocks, inputs)

    # --- what it is -----------------------------------------------------------------------------------------------

    def set_transform(
        self,
        event: SetTransform,
        inputs: Inputs,
        *,
        on_change: OnChange = OnChange.REFUSE,
        commit_id: str | None = None,
        foreign: bool = False,
    ) -> Ingested:
        """Give it another transformation, or other inputs; nothing happens if it is in force already.

        ``foreign``  another engine than ours is to run it, which alone can say whether it understands the query

        Raises TransformChanged if there is data and ``on_change`` does not say what becomes of it, or it cannot go on
        from the old state; InputError, TransformInvalid.
        """
        stored = stored_transform(event, inputs, self.state.vocabulary, itself=self.id, foreign=foreign)

        def make(ground: Ground) -> Made | None:
            state = ground.chain.state
            if is_same(resolved_transform(event, inputs), state.transform):
                return None
            if on_change is OnChange.RESET and state.consumed:
                return restarted(ground, stored)
            _require_free(self.uuid, state, on_change)
            if (
                state.consumed
                and not foreign
                and remembers(stored, all_located(inputs, stored.inputs), state.vocabulary)
            ):
                raise TransformChanged(
                    f"the new transformation of {self.uuid!r} keeps a state, and cannot go on from one that kept none, "
                    "as it does not know the records before: Reset makes the data anew"
                )
            extension = Extension(ground.chain, ground.now)
            extension.add(stored)
            return events_made(ground, extension)

        return self._commit("transformation", make, commit_id, "", rebuilds=on_change is OnChange.RESET)

    def missing(self, wanted: Sequence[MetadataEvent], inputs: Inputs) -> list[MetadataEvent]:
        """Of the events that a manifest asks for, those that the chain lacks. Raises InputError."""
        in_force = self.chain.definition
        found: list[MetadataEvent] = []
        for event in wanted:
            if isinstance(event, SetTransform):
                if not is_same(resolved_transform(event, inputs), self.state.transform):
                    found.append(event)
            elif in_force.source(event) != event:
                found.append(event)
        return found

    def restart(self) -> Ingested:
        """Begin anew, with what is in force and without data: the next run sees all that the inputs have."""
        return self._commit("restart", restarted, None, "", rebuilds=True)


def open_ledger(store: Store, log: DatasetLog, *, by: str = "") -> Root | Derivative:
    """A ledger as what its seed says that it is. Raises NotALedger, DatasetNotFound."""
    found = Ledger(store, log, by=by)
    seed = found.state.seed
    if seed is not None and seed.dataset_kind is DatasetKind.DERIVATIVE:
        return Derivative(store, log, by=by, known=found.chain)
    return Root(store, log, by=by, known=found.chain)


def _require_free(uuid: str, state: ChainState, on_change: OnChange) -> None:
    if not state.consumed:
        return
    if on_change is OnChange.REFUSE:
        raise TransformChanged(
            f"the transformation of {uuid!r} is another one than the one that made its data: say whether the data is "
            "to be made anew (Reset), or whether the new transformation goes on from where the old one was (Continue)"
        )
    if state.checkpoint is not None:
        raise TransformChanged(
            f"the new transformation of {uuid!r} cannot go on from the state that the old one left: Reset makes the "
            "data anew"
        )


def _id(head: Multihash | None, batch: Batch) -> str:
    """One for each step of the chain: runs that take it at the same time commit it once."""
    said = [str(head), *([str(each.block), each.offset] for each in batch.inputs)]
    return f"transform:{sha256(orjson.dumps(said)).hexdigest()[:32]}"


# A derivative dataset without its data: the seed, and what is in force, on a chain of its own (DAT-08).


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
