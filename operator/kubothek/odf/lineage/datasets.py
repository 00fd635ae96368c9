"""The graph of datasets: nodes are the current ledgers, edges record how far each input was consumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from kubothek.errors import InputMissing
from kubothek.odf.derived.inputs import Input, Inputs, inputs_of, located
from kubothek.odf.spec.events import DatasetKind, TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.validation.state import Consumed
from kubothek.storage import Store
from kubothek.table.log.history.listing import dataset_names
from kubothek.table.log.records import parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A dataset. ``uuid`` is None if it is not in the store; then only ``id`` and ``name`` are known.

    ``name``  for display: its uuid, or its alias as an input
    """

    id: str
    name: str
    uuid: str | None = None
    kind: DatasetKind | None = None
    head: str | None = None
    blocks: int = 0
    records: int = 0
    watermark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``target`` is derived from ``source`` (ids).

    ``alias``   name of the source in the queries
    ``block``   last consumed block of the source, and ``offset``, of the last record; None: nothing yet
    ``latest``  whether that is its last block
    """

    source: str
    target: str
    alias: str
    block: str | None = None
    offset: int | None = None
    latest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Lineage of the dataset with the id ``of``; nodes are in topological order, sources first."""

    of: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, dataset_id: str) -> Node:
        """Return the dataset with this id. Raises KeyError."""
        return {node.id: node for node in self.nodes}[dataset_id]

    def sources(self, dataset_id: str) -> list[Edge]:
        """Return the edges from its sources."""
        return [edge for edge in self.edges if edge.target == dataset_id]

    def targets(self, dataset_id: str) -> list[Edge]:
        """Return the edges to the datasets derived from it."""
        return [edge for edge in self.edges if edge.source == dataset_id]


def graph(store: Store, uuid: str, *, inputs: Inputs | None = None, up: bool = True, down: bool = True) -> Graph:
    """Return the current sources of a dataset, and the datasets derived from it.

    ``down``  reads the head of every dataset of the store

    Raises InputMissing if there is no such ledger, StoreError.
    """
    inputs = inputs or inputs_of(store)
    start = inputs(uuid)
    if start is None:
        raise InputMissing(f"there is no ledger {uuid!r} in {store.url}")
    found: dict[DatasetId, Input] = {start.id: start}
    if up:
        _upstream(start, inputs, found)
    followed = frozenset(found) if up else frozenset[DatasetId]()
    if down:
        here = inputs
        known = [each for each in parallel(lambda name: here(name), dataset_names(store)) if each is not None]
        _downstream(start.id, known, found)
    return graph_of(start.id, found, followed)


def graph_of(of: DatasetId, found: Mapping[DatasetId, Input], followed: Set[DatasetId]) -> Graph:
    """Return the graph of these ledgers.

    ``followed``  ledgers whose inputs were all looked up: an input that is not among the ledgers is missing
    """
    edges = [
        edge
        for each in found.values()
        for edge in _edges(each, found)
        if each.id in followed or DatasetId.parse(edge.source) in found
    ]
    absent = {edge.source: edge.alias for edge in edges if DatasetId.parse(edge.source) not in found}
    nodes = [Node(id=name, name=alias) for name, alias in absent.items()]
    nodes += [_node(found[each]) for each in _sources_first(found)]
    return Graph(of=str(of), nodes=tuple(nodes), edges=tuple(edges))


def _upstream(start: Input, inputs: Inputs, found: dict[DatasetId, Input]) -> None:
    waiting = [start]
    while waiting:
        for each in _named(waiting.pop()):
            try:
                source = located(inputs, each)
            except InputMissing:
                continue
            if source.id not in found:
                found[source.id] = source
                waiting.append(source)


def _downstream(start: DatasetId, known: Iterable[Input], found: dict[DatasetId, Input]) -> None:
    users: dict[DatasetId, list[Input]] = {}
    for each in known:
        for named in _named(each):
            users.setdefault(DatasetId.parse(named.dataset_ref), []).append(each)
    waiting, seen = [start], {start}
    while waiting:
        for user in users.get(waiting.pop(), []):
            found.setdefault(user.id, user)
            if user.id not in seen:
                seen.add(user.id)
                waiting.append(user.id)


def _sources_first(found: Mapping[DatasetId, Input]) -> list[DatasetId]:
    order: dict[DatasetId, None] = {}
    entered: set[DatasetId] = set()
    stack: list[tuple[DatasetId, Iterator[DatasetId]]] = []
    for first in sorted(found, key=lambda each: found[each].uuid):
        stack.append((first, _sources_of(found, first)))
        while stack:
            each, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                order[each] = None
                stack.pop()
            elif following not in entered:
                entered.add(following)
                stack.append((following, _sources_of(found, following)))
    return [*order]


def _sources_of(found: Mapping[DatasetId, Input], of: DatasetId) -> Iterator[DatasetId]:
    ids = (DatasetId.parse(each.dataset_ref) for each in _named(found[of]))
    return iter([each for each in ids if each in found])


def _named(each: Input) -> tuple[TransformInput, ...]:
    transform = each.chain.state.transform
    return () if transform is None else transform.inputs


def _node(each: Input) -> Node:
    state = each.chain.state
    return Node(
        id=str(each.id),
        name=each.uuid,
        uuid=each.uuid,
        kind=None if state.seed is None else state.seed.dataset_kind,
        head=str(each.head),
        blocks=state.length,
        records=state.next_offset,
        watermark=None if state.watermark is None else str(state.watermark),
    )


def _edges(each: Input, found: Mapping[DatasetId, Input]) -> Iterator[Edge]:
    for named in _named(each):
        source = DatasetId.parse(named.dataset_ref)
        consumed = each.chain.state.consumed.get(source, Consumed())
        yield Edge(
            source=str(source),
            target=str(each.id),
            alias=named.alias or named.dataset_ref,
            block=None if consumed.block is None else str(consumed.block),
            offset=consumed.offset,
            latest=source in found and found[source].head == consumed.block,
        )
