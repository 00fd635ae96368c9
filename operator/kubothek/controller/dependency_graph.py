"""Index of the references between Datasets, which a runtime updates while it watches.

The cost of an update depends only on the change. A derivative names its inputs by Dataset or by identity. The index
therefore maps each reference to the Datasets that name it, and each identity to the Datasets that have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Space:
    """One namespace: references and identity by Dataset, and the inverse of both."""

    references: dict[str, tuple[str, ...]] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    holders: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class DependencyGraph:
    """References and identities of all Datasets, by namespace. A Dataset that has neither takes no space."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = defaultdict(_Space)

    def put(self, namespace: str, name: str, references: Iterable[str], identity: str | None) -> None:
        """Add or update a Dataset."""
        space, named = self._spaces[namespace], tuple(dict.fromkeys(references))
        if named != space.references.get(name, ()):
            _replace(space.readers, name, space.references.pop(name, ()), named)
            if named:
                space.references[name] = named
        known = space.identities.get(name)
        if identity != known:
            _replace(space.holders, name, () if known is None else (known,), () if identity is None else (identity,))
            space.identities.pop(name, None)
            if identity is not None:
                space.identities[name] = identity

    def remove(self, namespace: str, name: str) -> None:
        """Remove a Dataset."""
        self.put(namespace, name, (), None)

    def holder(self, namespace: str, identity: str) -> str | None:
        """Return the name of the Dataset with this identity; of several, the first by name."""
        return min(self._spaces[namespace].holders.get(identity, ()), default=None)

    def readers(self, namespace: str, *references: str | None) -> set[str]:
        """Return the names of the Datasets that name one of these references as an input."""
        readers = self._spaces[namespace].readers
        return set().union(*(readers.get(each, ()) for each in references if each is not None))

    def descendants(self, namespace: str, name: str, identity: str | None) -> set[str]:
        """Return the names of all Datasets derived from this one, directly or through other derivatives."""
        found, waiting = set[str](), [(name, identity)]
        while waiting:
            new = self.readers(namespace, *waiting.pop()) - found
            found |= new
            waiting += [(each, self._spaces[namespace].identities.get(each)) for each in new]
        return found


def _replace(index: dict[str, set[str]], name: str, old: Iterable[str], new: Iterable[str]) -> None:
    for key in old:
        index[key].discard(name)
        if not index[key]:
            del index[key]
    for key in new:
        index[key].add(name)
