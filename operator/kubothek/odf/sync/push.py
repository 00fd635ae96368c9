"""Push: our chain to another party, as far as it is missing there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kubothek.errors import ChainCorrupt, DatasetNotFound, Diverged, InputError, ObjectNotFound
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.dataset import Root
from kubothek.odf.named import Named
from kubothek.odf.spec.events import SetDataSchema
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.object_links import link_columns
from kubothek.odf.sync.compare import Relation
from kubothek.odf.sync.repository import Reach, Stream
from kubothek.odf.sync.smart.pushing import push_smart
from kubothek.odf.sync.stores import StoreRepository, complete_store, push_store
from kubothek.odf.sync.transfer import Told
from kubothek.odf.sync.urls import parse
from kubothek.odf.sync.web import Web, WebRepository
from kubothek.odf.validation.linked import linking, links_in
from kubothek.odf.validation.verification import audit
from kubothek.storage import Store
from kubothek.storage.hashed import hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Result of a push.

    ``relation``  of our chain to theirs before it: Equal, or Ahead; Diverged by force
    ``blocks``, ``objects``, ``bytes``  that were sent; if the chains are equal, linked objects that the target lacked
    ``missing``   linked objects that our store lacks, the first 100
    """

    relation: Relation
    head: Multihash
    created: bool = False
    blocks: int = 0
    objects: int = 0
    bytes: int = 0
    missing: tuple[Multihash, ...] = ()


def push_remote(
    root: Root, url: str, *, reach: Reach, force: bool = False, told: Told = lambda progress: None
) -> Pushed:
    """Update the dataset at a URL to ours.

    ``force``  drop blocks that exist only there from the chain

    Raises Diverged if there are any, InputError for a read-only URL, StoreError, and what a server refuses; the dataset
    there is unchanged then.
    """
    place = parse(url, reach)
    if place.store is None and not place.smart:
        raise InputError(f"{url!r} is read only: a gateway takes a push at odf+{url}")
    root.refresh()
    remote = WebRepository(Web(place.url, reach)) if place.store is None else StoreRepository(place.store)
    head = root.state.head
    assert head is not None, "a chain has a seed"
    try:
        theirs = remote.head()
    except DatasetNotFound:
        theirs = None
    if theirs == head:
        return _completed(root, remote, head, reach, told)
    relation = Relation.AHEAD
    try:
        blocks = read_chain(root.store, root.layout, head, theirs)
    except BrokenChain as error:
        if theirs is None or error.problem.code != "Diverged":
            raise
        if not force:
            raise Diverged(
                f"{place.url} ends with {theirs}, which is not below our {head}: pull, or compare both; with force, "
                "the blocks that exist only there are discarded"
            ) from error
        relation, blocks = Relation.DIVERGED, read_chain(root.store, root.layout, head)
    linked = links_in(root.store, root.layout, linking(blocks, _schema_before(root, blocks)))
    if isinstance(remote, WebRepository):
        sent = push_smart(remote.web, root.store, root.layout, blocks, theirs, linked, force=force, told=told)
    else:
        sent = push_store(
            remote.store, root.store, root.layout, blocks, linked, at_once=reach.objects_at_once, told=told
        )
    return Pushed(
        relation=relation,
        head=head,
        created=theirs is None,
        blocks=len(blocks),
        objects=sent.fetched_objects,
        bytes=sent.fetched_bytes,
        missing=sent.missing,
    )


def _completed(
    root: Root, remote: WebRepository | StoreRepository, head: Multihash, reach: Reach, told: Told
) -> Pushed:
    """Send the linked objects that a target with the same chain lacks. A server that takes none without blocks is left
    as it is.
    """
    ours = root.state.data_schema
    if ours is None or not link_columns(ours.schema):
        return Pushed(relation=Relation.EQUAL, head=head)
    slices = linking(read_chain(root.store, root.layout, head), None)
    linked = links_in(root.store, root.layout, slices)
    if isinstance(remote, WebRepository):
        sent = push_smart(remote.web, root.store, root.layout, (), head, linked, force=False, told=told)
    else:
        sent = complete_store(remote.store, root.store, root.layout, linked, at_once=reach.objects_at_once, told=told)
    return Pushed(
        relation=Relation.EQUAL,
        head=head,
        objects=sent.fetched_objects,
        bytes=sent.fetched_bytes,
        missing=sent.missing,
    )


def _schema_before(root: Root, blocks: Sequence[Stored]) -> SetDataSchema | None:
    """Return the schema in force before the last blocks of our chain."""
    if not any(isinstance(each.decode().content.event, SetDataSchema) for each in blocks):
        return root.state.data_schema
    before = blocks[0].decode().content.prev_block_hash
    return None if before is None else audit(read_chain(root.store, root.layout, before), notes=False).state.data_schema


# A client's push as a repository: its blocks in memory, and its objects where it uploaded them in our store.


class PushedRepository:
    """Committing a push is a pull from this repository: uploaded objects are found and hashed, and need no copy."""

    url = "the push"

    def __init__(self, blocks: Sequence[Stored], store: Store, layout: Layout, head: Multihash | None = None) -> None:
        """``head``: of a push without blocks, which brings linked objects only. Raises ChainCorrupt without both."""
        if not blocks and head is None:
            raise ChainCorrupt("a push has at least one block")
        self._head = blocks[-1].hash if blocks else head
        self._blocks = {block.hash: block.data for block in blocks}
        self._store = store
        self._layout = layout

    def head(self) -> Multihash:
        """Return the last block received, or present."""
        assert self._head is not None, "there are blocks, or a head"
        return self._head

    def block(self, block: Multihash) -> bytes:
        """Return one of the blocks received."""
        try:
            return self._blocks[block]
        except KeyError:
            raise ObjectNotFound(str(block), self.url) from None

    def size(self, link: Multihash) -> int:
        """Return the size of the data object of this hash in our store."""
        return self._store.stat(self._layout.data(link)).size

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Raise ObjectNotFound: a pull asks only for objects that it did not find. Delete wrong bytes at the key."""
        key = named.key(self._layout)
        with hashed(self._store, key) as found:
            wrong = found.digest != named.hash.digest  # a size other than the block's is not wrong
        if wrong:
            self._store.delete([key])
        raise ObjectNotFound(key, self.url)
        yield
