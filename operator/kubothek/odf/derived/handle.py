"""An existing derivative dataset: runs of its transformation over its inputs.

Each run is one commit, or none if there is nothing new, and one ExecuteTransform. The chain records what was consumed,
so an aborted run, or two concurrent runs, consume nothing twice.
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
from kubothek.odf.dataset.extension import Extension, require_known
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
    """What happens to the data when the transformation changes.

    ``REFUSE``    the change is refused
    ``CONTINUE``  the data stays, and the new transformation continues after the last consumed block
    ``RESET``     the new transformation starts without data, at the first records
    """

    REFUSE = "Refuse"
    CONTINUE = "Continue"
    RESET = "Reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Result of a run. ``more``: the inputs had more than it read; run again."""

    done: Ingested
    consumed: int = 0
    more: bool = False


class Derivative(Ledger):
    """One derivative dataset; see :class:`~kubothek.odf.dataset.base.Ledger`."""

    def __init__(self, store: Store, log: DatasetLog, *, by: str = "", known: Chain | None = None) -> None:
        """Read the chain. Raises NotALedger, DatasetNotFound, InputError for a root dataset."""
        super().__init__(store, log, by=by, known=known)
        self._seen: Seen = {}
        if self.state.seed is None or self.state.seed.dataset_kind is not DatasetKind.DERIVATIVE:
            raise InputError(f"dataset {self.uuid!r} is a root dataset: it has no transformation")

    def pending(self, inputs: Inputs) -> Pending:
        """Return unconsumed input, and what prevents a run. Reads blocks only, no records. Raises StoreError."""
        self.refresh()
        return pending(self.store, self.state, inputs, self._seen)

    def pull(self, inputs: Inputs, limits: Limits = USUAL, *, engine: Engine = OURS) -> Pulled:
        """Run the transformation once, on input that it has not consumed yet.

        ``engine``  that runs it

        Raises InputMissing, InputDiverged, TransformInvalid, SchemaMismatch, what the engine raises, Drift, Diverged,
        and what a transaction raises. The dataset is unchanged then.
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
            )  # the run of another process: the next run finds out whether there is more
        return Pulled(done=done, consumed=batch.records, more=batch.more)

    def _next(self, state: ChainState, inputs: Inputs, limits: Limits) -> Batch | None:
        return next_batch(all_waiting(self.store, state, inputs, self._seen), state.watermark, limits)

    def restore(self, inputs: Inputs) -> Restored:
        """Recompute slices and checkpoints that the chain names and the store lacks (DAT-08).

        Raises ChainCorrupt if the result differs, InputMissing, InputDiverged, what the engine raises, StoreError.
        """
        self.refresh()
        blocks = read_chain(self.store, self.layout, self.state.head)
        return restore(self.store, self.layout, blocks, inputs)

    # --- definition -----------------------------------------------------------------------------------------------

    def set_transform(
        self,
        event: SetTransform,
        inputs: Inputs,
        *,
        on_change: OnChange = OnChange.REFUSE,
        commit_id: str | None = None,
        foreign: bool = False,
    ) -> Ingested:
        """Set another transformation, or other inputs; no-op if it is in force already.

        ``foreign``  an engine of another party is to run it; only that engine can validate the query

        Raises TransformChanged if there is data and ``on_change`` is REFUSE, or if the new transformation cannot
        continue from the old state; InputError, TransformInvalid.
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
                    f"the new transformation of {self.uuid!r} keeps a state, and cannot continue from one that kept "
                    "none, as it does not know the earlier records: Reset rebuilds the data"
                )
            extension = Extension(ground.chain, ground.now)
            extension.add(stored)
            return events_made(ground, extension)

        return self._commit("transformation", make, commit_id, "", rebuilds=on_change is OnChange.RESET)

    def missing(self, wanted: Sequence[MetadataEvent], inputs: Inputs) -> list[MetadataEvent]:
        """Return the events of a manifest that the chain lacks. Raises InputError."""
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
        """Start a new chain with the definition in force and no data: the next run reads the inputs from the start."""
        return self._commit("restart", restarted, None, "", rebuilds=True)


def open_ledger(store: Store, log: DatasetLog, *, by: str = "") -> Root | Derivative:
    """Return a ledger as the class of its kind. Raises NotALedger, DatasetNotFound."""
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
            f"the transformation of {uuid!r} is not the one that made its data: decide whether the data is "
            "to be rebuilt (Reset), or whether the new transformation continues where the old one ended (Continue)"
        )
    if state.checkpoint is not None:
        raise TransformChanged(
            f"the new transformation of {uuid!r} cannot continue from the state of the old one: Reset rebuilds the data"
        )


def _id(head: Multihash | None, batch: Batch) -> str:
    """Return one id for each transition of the chain: concurrent runs then commit it once."""
    said = [str(head), *([str(each.block), each.offset] for each in batch.inputs)]
    return f"transform:{sha256(orjson.dumps(said)).hexdigest()[:32]}"


# A derivative dataset without its data: a new chain with the seed and the definition in force (DAT-08).


def restarted(ground: Ground, transform: SetTransform | None = None) -> Made | None:
    """Return the change to a chain of the seed and the definition in force, with an empty table; None without data.

    ``transform``  replaces the transformation in force

    Copies of the old chain must be copied again as a whole.
    """
    chain, present = ground.chain, ground.chain.state
    if transform is None and not present.consumed:
        return None
    blocks = [Block.decode(data) for data in chain.definition.blocks.values()]
    seed = next(block for block in blocks if isinstance(block.content.event, Seed))
    times = [time for time in (ground.now, present.system_time) if time is not None]
    extension = Extension(chain.emptied().after(seed), max(times))
    for block in blocks:
        require_known(block)
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
