"""The common part of every ledger: its chain, and one way to extend it.

Each method is one commit, or none if there is nothing new. If another commit changes the head meanwhile, the change is
made again on the new head. So blocks never fork, and nothing is ingested twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubothek.errors import EventInvalid, NotALedger, VersionIncomplete
from kubothek.odf.chain import read_back
from kubothek.odf.dataset import moving
from kubothek.odf.dataset.compacting import compact
from kubothek.odf.dataset.definition import Chain, read_noted
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.following import Find, followed
from kubothek.odf.dataset.ingesting import Ground, Made, events_made, history_of
from kubothek.odf.dataset.parts import parts_back
from kubothek.odf.dataset.slicing import SLICE_BYTES
from kubothek.odf.sources.readers.declared import require_declared
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    MetadataEvent,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetLicense,
    SetTransform,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.snapshots import resolved
from kubothek.odf.validation.state import ChainState
from kubothek.odf.view import History, Part
from kubothek.storage import Store
from kubothek.table.log import AlreadyApplied, Change, DatasetLog, Operation, Snapshot, Transaction
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainMove, LedgerChange
from kubothek.table.log.model.refs import named_block
from kubothek.table.log.prepare.draft import require_no_drift
from kubothek.table.scratch import MEMORY

_OWN: Final = (Seed, AddData, ExecuteTransform, SetDataSchema, SetTransform, Unknown)
"""Events that result from other operations, or have a method of their own."""
_MILLISECOND: Final = 10**6

Maker = Callable[[Ground], Made | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """The outcome of a change.

    ``up_to_date``  there was nothing new, and nothing was committed
    ``repeated``    the commit happened before; ``head`` and the fields after it are the present ones
    ``version``     of the dataset after it
    ``blocks``      the number of new blocks; ``slices`` of them have data, ``records`` in all
    """

    up_to_date: bool = False
    repeated: bool = False
    version: int
    head: Multihash
    blocks: int = 0
    slices: int = 0
    records: int = 0
    watermark: Timestamp | None = None
    system_time: Timestamp


class Ledger:
    """One ledger. Not thread-safe; its state is that of its last call, :meth:`refresh` reads the present one.

    ``slice_bytes``   of a slice, about
    ``merge_memory``  of the database of a merge, which spills to disk beyond it
    """

    def __init__(
        self,
        store: Store,
        log: DatasetLog,
        *,
        by: str = "",
        slice_bytes: int = SLICE_BYTES,
        merge_memory: str = MEMORY,
        known: Chain | None = None,
    ) -> None:
        """Read the state of the chain, with two requests. Raises NotALedger, DatasetNotFound."""
        self.store = store
        self.log = log
        self.uuid = log.uuid
        self.layout = Layout(keys.chain(log.uuid))
        self._by = by
        self._slice_bytes = slice_bytes
        self._merge_memory = merge_memory
        self._known = known
        self.chain = self._chain_of(self._look())

    @property
    def state(self) -> ChainState:
        """The state of the chain: sources, schema, vocabulary, watermark, offsets."""
        return self.chain.state

    @property
    def id(self) -> DatasetId:
        """The identity of the dataset, wherever it is stored."""
        assert self.state.seed is not None, "a chain has a seed"
        return self.state.seed.dataset_id

    @property
    def snapshot(self) -> Snapshot:
        """The present version of the table."""
        return self.log.snapshot()

    @property
    def info(self) -> SetInfo | None:
        """The description of the dataset."""
        return self.chain.definition.event(SetInfo)

    @property
    def license(self) -> SetLicense | None:
        """The licence of its data."""
        return self.chain.definition.event(SetLicense)

    @property
    def attachments(self) -> SetAttachments | None:
        """The attachments."""
        return self.chain.definition.event(SetAttachments)

    @property
    def history(self) -> History:
        """The slices of the chain."""
        return history_of(self.store, self.layout, self.state)

    def refresh(self) -> None:
        """Read the present state of the chain. Raises NotALedger, DatasetNotFound."""
        self.chain = self._chain_of(self._look())

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks, newest first, down to the seed; about as many are read as are consumed.

        Raises ChainCorrupt, FormatInvalid.
        """
        assert self.state.head is not None, "a chain has a seed"
        for stored in read_back(self.store, self.layout, self.state.head, self._committed_blocks()):
            yield stored.decode()

    def latest(self, records: int) -> History:
        """Return the slices that hold the last records, as many as given, or all. Raises as :meth:`blocks`."""
        found: list[Part] = []
        for part in parts_back(self.layout, self.blocks(), self.state):
            found.append(part)
            if part.start <= self.state.next_offset - records:
                break
        return replace(self.history, parts=found[::-1])

    # --- events ---

    def append_events(
        self, events: Sequence[MetadataEvent], *, commit_id: str | None = None, digest: str = ""
    ) -> Ingested:
        """Append events to the chain, all in one commit, without those that are in force already.

        Raises EventInvalid for an event that may not follow, that only the dataset itself writes, or for a source whose
        declared columns cannot be read.
        """
        for event in events:
            if isinstance(event, _OWN):
                raise EventInvalid(f"{event.kind} is no event that is given to a dataset")
        given = tuple(resolved(tuple(events), lambda reference: None))

        def make(ground: Ground) -> Made | None:
            extension = Extension(ground.chain, ground.now)
            for event in given:
                if not _is_in_force(extension.chain, event):
                    require_declared(event)
                    extension.add(event)
            return events_made(ground, extension) if extension.blocks else None

        return self._commit("events", make, commit_id, digest)

    def write_in(self, version: SpecVersion) -> Ingested:
        """Write later blocks in this version of the specification; no commit if that is so already."""

        def make(ground: Ground) -> Made | None:
            state = ground.chain.state
            if version == (state.version or SpecVersion.V0_34):
                return None
            chain = replace(ground.chain, state=replace(state, version=version))
            ledger = LedgerChange(ChainMove(base=str(state.head), head=str(state.head)), chain.note)
            change = Change(operation=Operation.LEDGER, ledger=ledger, by=ground.by)
            return Made(change=change, extension=Extension(chain, ground.now))

        return self._commit("version", make, None, version)

    # --- the chain as a whole ---

    def reset(self, block: Multihash) -> Ingested:
        """Reset the chain to one of its blocks, and the table with it; later blocks leave the dataset.

        Earlier versions can still be read while they are retained. Raises Diverged if it is not a block of the chain.
        """
        return self._commit("reset", lambda ground: moving.reset(ground, block), None, str(block), rebuilds=True)

    def follow(self, find: Find, *, force: bool = False) -> Ingested:
        """Move the chain to the end of foreign blocks, which are verified and stored by then.

        ``find``   returns the blocks for the present state of the chain; called again after a conflict
        ``force``  also if that drops blocks of the chain

        Raises Diverged, Drift, what ``find`` raises, and what a transaction raises.
        """

        def make(ground: Ground) -> Made | None:
            came = find(ground.chain.state, ground.note_written)
            return None if came is None else followed(ground, came, force=force)

        return self._commit("follow", make, None, "", rebuilds=force)

    def compact(self, *, slice_bytes: int = SLICE_BYTES, slice_records: int | None = None) -> Ingested:
        """Rewrite the chain with fewer, larger slices: the same records under the same offsets, other blocks.

        It is another chain of the same dataset: copies of the old one must be copied again as a whole. Both are
        verified. Raises ChainCorrupt; nothing is committed then, or if the number of blocks would not fall.
        """
        return self._commit("compact", lambda ground: compact(ground, slice_bytes, slice_records), None, "")

    def restore_view(self) -> Ingested:
        """Rebuild the table from the chain, whatever another program made of it, also if a manifest owns it.

        Raises Diverged.
        """
        by_hand = Ledger(self.store, self.log.by_hand(), by=self._by, slice_bytes=self._slice_bytes)
        done = by_hand._commit("restore-view", moving.view_made_anew, None, "", rebuilds=True)
        self.refresh()
        return done

    def keep_own(self) -> Multihash:
        """Set ``refs/head`` to the last block again, also if a manifest owns the dataset; return that block.

        This drops what another program wrote there, by decision of a user.
        """
        kept = moving.keep_own(self.store, self.log.by_hand())
        self.refresh()
        return kept

    # --- helpers ---

    def _committed_blocks(self) -> Iterator[Multihash]:
        """Yield the blocks of commits, newest first, as far back as there are commit records."""
        try:
            for record in self.log.history():
                brought = record.ledger.blocks if record.ledger is not None else ()
                yield from map(Multihash.parse, reversed(brought))
        except VersionIncomplete:
            return

    def _commit(
        self, what: str, make: Maker, commit_id: str | None, digest: str, *, rebuilds: bool = False
    ) -> Ingested:
        """Commit what ``make`` returns; with ``rebuilds``, whatever another program made of the table."""
        while True:
            named = named_block(self.store, self.uuid)
            started = self.log.begin(commit_id, digest) if commit_id else self.log.begin_new(what, digest)
            self.chain = self._chain_of(self._look() if isinstance(started, AlreadyApplied) else started.snapshot)
            if named != str(self.state.head) and not moving.ref_healed(self.store, self.log, self._by):
                continue
            if isinstance(started, AlreadyApplied):
                return self._told(started.version, repeated=True)
            if not rebuilds:
                require_no_drift(started.snapshot.head)
            return self._committed(started, make)

    def _committed(self, started: Transaction, make: Maker) -> Ingested:
        made: Made | None = None

        def attempt(snapshot: Snapshot) -> Change:
            nonlocal made
            chain = self._chain_of(snapshot)
            made = make(
                Ground(
                    store=self.store,
                    uuid=self.uuid,
                    snapshot=snapshot,
                    chain=chain,
                    now=system_now(self.log),
                    note_written=started.note_written,
                    by=self._by,
                    slice_bytes=self._slice_bytes,
                    merge_memory=self._merge_memory,
                )
            )
            if made is None:
                self.chain = chain
                raise _NothingNewError
            return made.change

        try:
            committed = started.commit(attempt(started.snapshot), on_conflict=attempt)
        except _NothingNewError:
            return self._told(started.snapshot.version, up_to_date=True)
        assert made is not None, "something was committed"
        self.chain = self._known = made.extension.chain
        return self._told(
            committed.version, blocks=len(made.extension.blocks), slices=made.slices, records=made.records
        )

    def _told(
        self,
        version: int,
        *,
        up_to_date: bool = False,
        repeated: bool = False,
        blocks: int = 0,
        slices: int = 0,
        records: int = 0,
    ) -> Ingested:
        state = self.state
        assert state.head is not None, "a chain has a seed"
        assert state.system_time is not None, "which has a time"
        return Ingested(
            up_to_date=up_to_date,
            repeated=repeated,
            version=version,
            head=state.head,
            blocks=blocks,
            slices=slices,
            records=records,
            watermark=state.watermark,
            system_time=state.system_time,
        )

    def _look(self) -> Snapshot:
        """Return the present version; if another program wrote it without the chain, adopt it first."""
        snapshot = self.log.snapshot()
        if snapshot.head.chain is None and snapshot.totals is None:
            self.log.settled()
            return self.log.snapshot()
        return snapshot

    def _chain_of(self, snapshot: Snapshot) -> Chain:
        note = snapshot.head.chain
        if note is None:
            raise NotALedger(f"dataset {self.uuid!r} in {self.store.url} is a table without a chain")
        self._known = read_noted(self.store, self.uuid, note, self._known)
        return self._known


def system_now(log: DatasetLog) -> Timestamp:
    """Return the time of the log's clock, to the millisecond, as slices hold it."""
    return Timestamp(Timestamp.of(log.journal.clock()).nanoseconds // _MILLISECOND * _MILLISECOND)


class _NothingNewError(Exception):
    """Signals that there is nothing to commit on the present head."""


def _is_in_force(chain: Chain, event: MetadataEvent) -> bool:
    """Return whether the event would change nothing."""
    if isinstance(event, DisablePollingSource):
        return chain.state.polling_source is None
    if isinstance(event, DisablePushSource):
        return event.source_name not in chain.state.push_sources
    return chain.definition.source(event) == event
