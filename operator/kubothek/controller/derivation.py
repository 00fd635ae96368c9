"""Derivation between ledgers, and how far each derivative lags behind its inputs. Reads the snapshot, decides nothing.

A derivative names its inputs by Dataset or by identity. Its status records how far its last job read each of them
(``status.ledger.inputs``); the statuses of the inputs record their present extent. From both follows which state of
each ancestor a derivative reflects: see :meth:`Ledgers.reflects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Final

from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.api.ledger import LedgerState
from kubothek.api.transforms import LedgerInput, Lineage, is_identity
from kubothek.controller.context import Context, Lookup

Extent = tuple[int, bool]
"""Known extent of a ledger: the offset of the last record, and whether it reaches up to the ledger's last block."""

UNKNOWN: Final[Extent] = (-1, False)
_MOST: Final = 64
"""Maximum number of names in a status."""


def references(dataset: Dataset) -> tuple[str, ...]:
    """Return the inputs in a Dataset's manifest; empty if it is not a derivative."""
    return () if dataset.spec.ledger is None else dataset.spec.ledger.inputs


def identity(dataset: Dataset) -> str | None:
    """Return the identity of a Dataset's chain, or None if it is not known."""
    chain = dataset.status.ledger
    return None if chain is None else chain.id


def find_cycle(start: str, inputs: Callable[[str], Iterable[str]]) -> tuple[str, ...] | None:
    """Return the path from a dataset through its inputs back to itself, or None if there is no cycle."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = set[str]()
    while ways:
        way = ways.pop()
        for name in inputs(way[-1]):
            if name == start:
                return (*way, start)
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return None


def find_input(reference: str, namespace: str, there: Lookup) -> Dataset | None:
    """Return the Dataset that an input names, by name or identity."""
    named = there.dependency_graph.holder(namespace, reference) if is_identity(reference) else reference
    return None if named is None else there.get(Dataset, namespace, named)


def own_cycle(dataset: Dataset, there: Lookup) -> tuple[str, ...] | None:
    """Return the path, by names, from a Dataset through its inputs back to itself, or None if there is no cycle."""

    def inputs(name: str) -> list[str]:
        each = dataset if name == dataset.name else there.get(Dataset, dataset.namespace, name)
        found = (find_input(reference, dataset.namespace, there) for reference in references(each)) if each else ()
        return [other.name for other in found if other is not None]

    return find_cycle(dataset.name, inputs)


class Ledgers:
    """Ledgers around a Dataset at one moment; others in the namespace are not read.

    Results are cached, because many paths of a graph can lead to one ledger.
    """

    def __init__(self, context: Context, namespace: str) -> None:
        self.now = context.now
        self._context = context
        self._namespace = namespace
        self._ancestors: dict[str, dict[str, int]] = {}
        self._extents: dict[tuple[str, str], Extent] = {}

    def find(self, reference: str) -> Dataset | None:
        """Return the Dataset that an input names, by name or identity."""
        return find_input(reference, self._namespace, self._context)

    def cycle(self, dataset: Dataset) -> tuple[str, ...] | None:
        """Return the path, by names, from a Dataset through its inputs back to itself, or None if there is no cycle."""
        return own_cycle(dataset, self._context)

    def inputs(self, dataset: Dataset) -> list[Dataset]:
        """Return the inputs that exist."""
        found = map(self.find, references(dataset))
        return [other for other in found if other is not None]

    def ancestors(self, dataset: Dataset) -> Mapping[str, int]:
        """Return all ancestors of a Dataset by name, each with the largest number of transformations between."""
        if dataset.name not in self._ancestors:
            self._ancestors[dataset.name] = {}  # ends the recursion in a cycle
            found: dict[str, int] = {}
            for other in self.inputs(dataset):
                for name, depth in {other.name: 0, **self.ancestors(other)}.items():
                    found[name] = max(found.get(name, 0), depth + 1)
            self._ancestors[dataset.name] = found
        return self._ancestors[dataset.name]

    def lineage(self, dataset: Dataset) -> Lineage | None:
        """Return roots, depth and consumers of a Dataset's chain; None if it has no ancestors and no consumers."""
        if dataset.spec.ledger is None:
            return None
        above = self.ancestors(dataset)
        roots = (name for name in above if not self._is_derived(name))
        readers = self._context.dependency_graph.readers(self._namespace, dataset.name, identity(dataset))
        consumers = nsmallest(_MOST, (name for name in readers if self.find(name) is not None))
        if not above and not consumers:
            return None
        depth = max(above.values(), default=0)
        return Lineage(roots=tuple(nsmallest(_MOST, roots)), depth=depth, consumers=tuple(consumers))

    def _is_derived(self, name: str) -> bool:
        found = self.find(name)
        return found is not None and bool(references(found))

    def reflects(self, dataset: Dataset, ancestor: str) -> Extent:
        """Return how much of an ancestor the present state of a Dataset reflects; the minimum over all paths.

        UNKNOWN if an input on a path has advanced since it was read: no status records the origin of its earlier state.
        """
        key = (dataset.name, ancestor)
        if key not in self._extents:
            self._extents[key] = UNKNOWN  # ends the recursion in a cycle
            self._extents[key] = self._reflected(dataset, ancestor)
        return self._extents[key]

    def _reflected(self, dataset: Dataset, ancestor: str) -> Extent:
        chain = dataset.status.ledger
        if dataset.name == ancestor:
            return UNKNOWN if chain is None else (chain.records - 1, True)
        read, found = read_so_far(chain), list[Extent]()
        for other in self.inputs(dataset):
            if other.name != ancestor and ancestor not in self.ancestors(other):
                continue
            seen, there = read.get(identity(other) or ""), other.status.ledger
            if seen is None or seen.block is None or there is None:
                return UNKNOWN
            if other.name == ancestor:
                found.append((UNKNOWN[0] if seen.offset is None else seen.offset, seen.block == there.head))
            elif seen.block == there.head:
                found.append(self.reflects(other, ancestor))
            else:
                return UNKNOWN
        return min(found, default=UNKNOWN)

    def placed(self, dataset: Dataset, status: DatasetStatus) -> DatasetStatus:
        """Return the status with its lineage: its ancestors, its consumers, and how far it is behind its inputs."""
        chain = status.ledger
        if chain is not None and chain.inputs:
            known = {identity(other): other for other in self.inputs(dataset)}
            chain = chain.model_copy(
                update={"inputs": tuple(_input(each, known.get(each.id)) for each in chain.inputs)}
            )
        return status.model_copy(update={"ledger": chain, "lineage": self.lineage(dataset)})


# --- read progress ----------------------------------------------------------------------------------------------------


def read_so_far(chain: LedgerState | None) -> Mapping[str, LedgerInput]:
    """Return how far each input was read, by identity."""
    return {} if chain is None else {each.id: each for each in chain.inputs}


def behind(status: DatasetStatus, inputs: Iterable[Dataset]) -> list[Dataset]:
    """Return the inputs with blocks that were not read yet."""
    read = read_so_far(status.ledger)
    found = []
    for other in inputs:
        chain = other.status.ledger
        seen = read.get(chain.id or "") if chain is not None else None
        if chain is not None and (seen is None or seen.block != chain.head):
            found.append(other)
    return found


def new_records(status: DatasetStatus, inputs: Iterable[Dataset]) -> int:
    """Return how many records of the inputs were not read yet."""
    read = read_so_far(status.ledger)
    chains = [other.status.ledger for other in inputs]
    return sum(_left(chain, read.get(chain.id or "")) for chain in chains if chain is not None)


def _left(chain: LedgerState, seen: LedgerInput | None) -> int:
    read = 0 if seen is None or seen.offset is None else seen.offset + 1
    return max(0, chain.records - read)


def _input(seen: LedgerInput, dataset: Dataset | None) -> LedgerInput:
    chain = None if dataset is None else dataset.status.ledger
    if dataset is None or chain is None:
        return seen.model_copy(update={"behind": None})
    return seen.model_copy(update={"name": dataset.name, "behind": _left(chain, seen)})
