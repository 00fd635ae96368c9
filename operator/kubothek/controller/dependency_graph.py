"""Which Dataset refers to which, as an index that a runtime keeps while it watches: a change costs what it changes.

A derivative names its inputs by Dataset or by identity, so what is kept is by reference: who has this name or this
identity, and who names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Space:
    """One namespace: of each Dataset its references and its identity, and the same the other way round."""

    references: dict[str, tuple[str, ...]] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    holders: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class DependencyGraph:
    """The relations of all Datasets, by namespace. What is no derivative and has no chain takes no room."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = defaultdict(_Space)

    def put(self, namespace: str, name: str, references: Iterable[str], identity: str | None) -> None:
        """A Dataset is there, or is another one than before."""
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
        """A Dataset is gone."""
        self.put(namespace, name, (), None)

    def holder(self, namespace: str, identity: str) -> str | None:
        """The name of the Dataset with this identity; of several, the first by name."""
        return min(self._spaces[namespace].holders.get(identity, ()), default=None)

    def readers(self, namespace: str, *references: str | None) -> set[str]:
        """The names of those that name one of these as an input."""
        readers = self._spaces[namespace].readers
        return set().union(*(readers.get(each, ()) for each in references if each is not None))

    def descendants(self, namespace: str, name: str, identity: str | None) -> set[str]:
        """The names of all that is derived from a Dataset, however many transformations lie between."""
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
