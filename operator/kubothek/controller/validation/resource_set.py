"""Resource sets in memory that rules look resources up in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kubothek.api.bounds import Bound
from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.sizes import Sizes
from kubothek.controller.context import Lookup
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.derivation import identity, references

R = TypeVar("R", bound=Resource)
_NONE: Final[Mapping[str, Sequence[Bound]]] = MappingProxyType({})


class Gathered:
    """A :class:`~kubothek.controller.context.Lookup` over resources in memory; of two with one name, the last one."""

    engine_limits = Sizes()
    """No limits: callers have no operator, and the same holds for its defaults."""

    engine_defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, resources: Iterable[Resource], bounds: Mapping[str, Sequence[Bound]] = _NONE) -> None:
        """``bounds`` by namespace."""
        self._bounds = bounds
        self._by_key: dict[tuple[str, str], dict[str, Resource]] = {}
        for each in resources:
            self._by_key.setdefault((each.kind, each.namespace), {})[each.name] = each
        self.dependency_graph = DependencyGraph()
        for (_, namespace), found in self._by_key.items():
            for name, each in found.items():
                if isinstance(each, Dataset):
                    self.dependency_graph.put(namespace, name, references(each), identity(each))

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """Return the bounds that the namespace's ResourceQuotas and LimitRanges set."""
        return self._bounds.get(namespace, ())

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return the resource, or None."""
        found = self._by_key.get((kind.__name__, namespace), {}).get(name)
        return found if isinstance(found, kind) else None

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        """Return all resources of a kind in the namespace."""
        return [each for each in self._by_key.get((kind.__name__, namespace), {}).values() if isinstance(each, kind)]


class Beside:
    """A :class:`~kubothek.controller.context.Lookup` over the existing resources, with one replaced or added."""

    def __init__(self, resource: Resource, there: Lookup) -> None:
        self._resource = resource
        self._there = there

    @property
    def dependency_graph(self) -> DependencyGraph:
        """That of the existing resources: identities are in statuses, which users do not edit."""
        return self._there.dependency_graph

    @property
    def engine_limits(self) -> Sizes:
        """The operator's limits."""
        return self._there.engine_limits

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        """The operator's defaults."""
        return self._there.engine_defaults

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """Return the bounds of the namespace."""
        return self._there.bounds(namespace)

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return the resource, or None."""
        own = self._resource
        if isinstance(own, kind) and (own.namespace, own.name) == (namespace, name):
            return own
        return self._there.get(kind, namespace, name)

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        """Return all resources of a kind in the namespace."""
        own, found = self._resource, self._there.list(kind, namespace)
        if not isinstance(own, kind) or own.namespace != namespace:
            return found
        return [*(each for each in found if each.name != own.name), own]
