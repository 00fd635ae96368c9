"""Pull: a dataset of another party, created here or updated to its current head there.

Blocks first, then the objects that they name, then one commit, which makes all of it visible. Every step can be
interrupted; the next pull finds what was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kubothek.errors import ChainCorrupt, Diverged
from kubothek.odf.chain import Stored, read_chain
from kubothek.odf.dataset import Came, Root, Table, take_over
from kubothek.odf.named import named_by
from kubothek.odf.spec.events import DatasetKind
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.object_links import link_columns
from kubothek.odf.sync.compare import Difference, Relation, compare
from kubothek.odf.sync.gathering import Gathering
from kubothek.odf.sync.repository import Reach, Repository
from kubothek.odf.sync.smart.pulling import SmartRepository
from kubothek.odf.sync.stores import StoreRepository
from kubothek.odf.sync.transfer import Brought, Progress, Told, bring_objects
from kubothek.odf.sync.urls import parse
from kubothek.odf.sync.web import Web
from kubothek.odf.validation.linked import linking, links_in, list_missing, listed_missing
from kubothek.odf.validation.state import ChainState
from kubothek.odf.validation.verification import audit, verify_new
from kubothek.storage import Store
from kubothek.table.log import DatasetLog

_REFUSED: Final = {
    Relation.BEHIND: "our chain continues theirs",
    Relation.DIVERGED: "neither continues the other",
}
_NOTHING = Brought(objects=0, bytes=0, fetched_objects=0, fetched_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Result of a pull.

    ``relation``  of their chain to ours before it
    ``head``      the last block after it
    ``version``   of the dataset after it
    ``created``   whether the dataset did not exist before
    ``blocks``    number of new blocks; ``brought``, the objects that they name, and linked ones that were missing
    """

    relation: Relation
    head: Multihash
    version: int
    created: bool = False
    blocks: int = 0
    brought: Brought = _NOTHING


def pull(
    store: Store,
    log: DatasetLog,
    theirs: Repository,
    *,
    table: Table | None = None,
    force: bool = False,
    rows: bool | None = None,
    at_once: int = 8,
    by: str = "",
    told: Told = lambda progress: None,
) -> Pulled:
    """Update the dataset to its state in their repository.

    ``table``    layout of a new dataset's table; None: no table
    ``force``    drop blocks that exist only here from the chain
    ``rows``     verify the records as well; None: if there is a table. Blocks, their rules and the bytes of all objects
                 that they name are verified in any case
    ``at_once``  number of concurrent downloads

    Raises Diverged if there are blocks only here, ChainCorrupt for anything wrong with their data, DatasetNotFound,
    StoreError, and what a commit raises; the dataset is unchanged then.
    """
    step = _Step(store, theirs, rows=rows, force=force, at_once=at_once, told=told)
    if log.settled() is None:
        return _made(step, log, table, by)
    root = Root(store, log, by=by)
    done = root.follow(lambda state, note: step.came(root.layout, state, note, table=root.chain.table), force=force)
    assert step.difference is not None, "they were compared"
    return Pulled(
        relation=step.difference.relation,
        head=done.head,
        version=done.version,
        blocks=len(step.difference.blocks),
        brought=step.brought,
    )


def pull_remote(
    store: Store,
    log: DatasetLog,
    url: str,
    *,
    reach: Reach,
    table: Table | None = None,
    force: bool = False,
    rows: bool | None = None,
    by: str = "",
    told: Told = lambda progress: None,
) -> Pulled:
    """Update the dataset to its state at a URL, by the protocol of the URL. As :func:`pull`; InputError for no URL."""
    place = parse(url, reach)
    with ExitStack() as held:
        theirs: Repository
        if place.store is None:
            seen = log.settled()
            note = None if seen is None else seen.head.chain
            after, length = (None, 0) if note is None else (Multihash.parse(note.head), note.length)
            web = Web(place.url, reach)
            theirs = held.enter_context(SmartRepository(web, after, length, asking=not place.smart))
        else:
            theirs = StoreRepository(place.store)
        return pull(
            store, log, theirs, table=table, force=force, rows=rows, at_once=reach.objects_at_once, by=by, told=told
        )


def _made(step: _Step, log: DatasetLog, table: Table | None, by: str) -> Pulled:
    head = step.theirs.head()

    def bring(ours: Layout, note_written: Callable[[str], None]) -> Sequence[Stored]:
        step.bring(head, ours, ChainState(), note_written, table=table is not None)
        assert step.difference is not None, "they were compared"
        return step.difference.blocks

    root = take_over(step.store, log, head, bring, table=table, by=by)
    assert step.difference is not None, "they were compared"
    return Pulled(
        relation=Relation.AHEAD,
        head=head,
        version=root.snapshot.version,
        created=True,
        blocks=len(step.difference.blocks),
        brought=step.brought,
    )


class _Step:
    """The comparison with their chain, and the transfer of what is new here."""

    def __init__(
        self, store: Store, theirs: Repository, *, rows: bool | None, force: bool, at_once: int, told: Told
    ) -> None:
        self.store = store
        self.theirs = theirs
        self.difference: Difference | None = None
        self.brought = _NOTHING
        self._rows = rows
        self._force = force
        self._at_once = at_once
        self._told = told

    def came(
        self, layout: Layout, state: ChainState, note_written: Callable[[str], None], *, table: bool
    ) -> Came | None:
        """Return what follows our chain, for :meth:`Root.follow`."""
        difference = self.bring(self.theirs.head(), layout, state, note_written, table=table)
        return None if difference.relation is Relation.EQUAL else Came(difference.head, difference.blocks)

    def bring(
        self,
        head: Multihash,
        layout: Layout,
        state: ChainState,
        note_written: Callable[[str], None],
        *,
        table: bool,
    ) -> Difference:
        """Compare, and fetch what is new; all of it is durable then."""
        with block_writer(self.store, layout) as writing:
            difference = self._brought(head, layout, state, note_written, writing, table=table)
        self.store.flush(layout.block(each.hash) for each in difference.blocks)
        return difference

    def _brought(
        self,
        head: Multihash,
        layout: Layout,
        state: ChainState,
        note_written: Callable[[str], None],
        writing: Gathering[Stored],
        *,
        table: bool,
    ) -> Difference:
        difference = compare(
            self.theirs,
            head,
            self.store,
            layout,
            state,
            writing,
            wholly=self._force,
            told=lambda blocks: self._told(Progress(blocks=blocks)),
        )
        self.difference = difference
        if difference.relation in _REFUSED and not self._force:
            raise Diverged(
                f"{self.theirs.url} ends with {difference.head}, our chain with {state.head}, and "
                f"{_REFUSED[difference.relation]}. With force, the blocks that exist only here are discarded"
            )
        blocks = difference.blocks
        lacked = [*listed_missing(self.store, layout)] if _links(state) else []
        if not blocks:
            if lacked:
                self._bring(layout, blocks, lacked, (), note_written)
            return difference
        before = _state_below(self.store, layout, state, blocks[0])
        self._require_sound(layout, before, blocks, rows=False)  # before any large download
        links = links_in(self.store, layout, linking(blocks, before.data_schema))
        self._bring(layout, blocks, lacked, links, note_written)
        if self._rows if self._rows is not None else table:
            self._require_sound(layout, before, blocks, rows=True)
        return difference

    def _bring(
        self,
        layout: Layout,
        blocks: Sequence[Stored],
        lacked: Sequence[list[Multihash]],
        links: Iterable[list[Multihash]],
        note_written: Callable[[str], None],
    ) -> None:
        """Fetch what blocks name and link to, and what an earlier pull lacked; list what is still missing."""
        self.brought = bring_objects(
            self.theirs,
            named_by(blocks),
            self.store,
            layout,
            chain(lacked, links),
            at_once=self._at_once,
            blocks=len(blocks),
            told=self._told,
            note_written=note_written,
        )
        if lacked or self.brought.missing:
            list_missing(self.store, layout, self.brought.missing)

    def _require_sound(self, layout: Layout, before: ChainState, blocks: Sequence[Stored], *, rows: bool) -> None:
        if (problem := verify_new(self.store, layout, before, blocks, rows=rows)) is not None:
            raise ChainCorrupt(f"the chain at {self.theirs.url} is not sound, and nothing of it was taken: {problem}")


def _state_below(store: Store, layout: Layout, state: ChainState, first: Stored) -> ChainState:
    """Return the state of the chain before a block: ``state`` if it is the last one."""
    before = first.decode().content.prev_block_hash
    if before is None:
        return ChainState()
    derived = state.seed is not None and state.seed.dataset_kind is DatasetKind.DERIVATIVE
    # a head does not record how far inputs were consumed, nor which doubts data events have settled
    if before == state.head and not derived and not state.doubts:
        return state
    return audit(read_chain(store, layout, before), notes=False).state


def _links(state: ChainState) -> bool:
    """Return whether columns of a chain link to objects."""
    return state.data_schema is not None and bool(link_columns(state.data_schema.schema))


# Blocks are written concurrently with the walk.


_WAITING: Final = 256
"""Largest number of blocks waiting to be written: a chain can be long, and its store slow."""


def block_writer(store: Store, layout: Layout) -> Gathering[Stored]:
    """Return a writer. On exit all of its blocks are stored, and durable with the store's next flush."""

    def put(blocks: Sequence[Stored]) -> None:
        store.put_many([(layout.block(each.hash), each.data) for each in blocks])

    return Gathering(put, _WAITING, "blocks")
