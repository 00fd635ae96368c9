"""Push: our chain to another party, as far as it is missing there."""

from __future__ import annotations

from dataclasses import dataclass

from kubothek.errors import DatasetNotFound, Diverged, InputError
from kubothek.odf.chain import BrokenChain, read_chain
from kubothek.odf.dataset import Root
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.compare import Relation
from kubothek.odf.sync.repository import Reach
from kubothek.odf.sync.smart.pushing import push_smart
from kubothek.odf.sync.stores import StoreRepository, push_store
from kubothek.odf.sync.transfer import Told
from kubothek.odf.sync.urls import parse
from kubothek.odf.sync.web import Web, WebRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Result of a push.

    ``relation``  of our chain to theirs before it: Equal, or Ahead; Diverged by force
    ``blocks``, ``objects``, ``bytes``  that were sent
    """

    relation: Relation
    head: Multihash
    created: bool = False
    blocks: int = 0
    objects: int = 0
    bytes: int = 0


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
        return Pushed(relation=Relation.EQUAL, head=head)
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
    if isinstance(remote, WebRepository):
        objects, size = push_smart(remote.web, root.store, root.layout, blocks, theirs, force=force, told=told)
    else:
        objects, size = push_store(
            remote.store, root.store, root.layout, blocks, at_once=reach.objects_at_once, told=told
        )
    return Pushed(relation=relation, head=head, created=theirs is None, blocks=len(blocks), objects=objects, bytes=size)
