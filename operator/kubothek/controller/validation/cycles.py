"""Rules about cycles: derivatives of their own descendants, Commits that depend on each other, Queries that follow each
other's results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubothek.api.commit import Commit
from kubothek.api.dataset import Dataset
from kubothek.api.query import Query
from kubothek.controller.context import Lookup
from kubothek.controller.derivation import find_cycle, own_cycle
from kubothek.controller.finding import Finding
from kubothek.controller.scheduling.queue import CIRCLE, depends_on_itself
from kubothek.controller.tasks.transforms import circle


def of_inputs(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if a Dataset would be derived from itself, directly or through other derivatives."""
    way = own_cycle(dataset, there)
    if way is not None:
        yield Finding("Cycle", "spec.ledger.metadata", circle(way))


def of_commits(commit: Commit, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if a Commit depends on itself, directly or through other Commits."""
    if not commit.finished and depends_on_itself(commit, there):
        yield Finding("DependencyCycle", "spec.dependsOn", CIRCLE)


def of_queries(query: Query, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if a run of a Query would start the next one, directly or through other Queries."""
    way = query_cycle(query, there)
    if way is not None:
        yield Finding("Cycle", "spec.follow", circle_of_queries(way))


def query_cycle(query: Query, there: Lookup) -> tuple[str, ...] | None:
    """Return the path, by Datasets, from the result of a Query through followed ones back to itself, or None."""
    target = query.spec.result.dataset_ref
    if target is None or not query.spec.follow:
        return None
    followed: dict[str, list[str]] = {}
    for other in there.list(Query, query.namespace):
        if other.spec.result.dataset_ref is not None:
            names = (reference.name for reference in other.spec.follow)
            followed.setdefault(other.spec.result.dataset_ref.name, []).extend(names)
    return find_cycle(target.name, lambda name: followed.get(name, ()))


def circle_of_queries(way: Sequence[str]) -> str:
    """Return the message about Queries whose runs would start each other, of Datasets along this path."""
    return f"runs would start each other without end: {' follows '.join(way)}; remove one of these from spec.follow"
