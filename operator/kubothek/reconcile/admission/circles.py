"""Resources that wait for themselves: derivatives of what is derived from them, Commits in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.reconcile.admission.finding import Finding
from kubothek.reconcile.care.transforming import circle
from kubothek.reconcile.derivation import own_cycle
from kubothek.reconcile.running.queue import CIRCLE, depends_on_itself
from kubothek.reconcile.world import Lookup
from kubothek.resources.commit import Commit
from kubothek.resources.dataset import Dataset


def of_inputs(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """A Dataset that would be derived from itself, however many transformations lie between."""
    way = own_cycle(dataset, there)
    if way is not None:
        yield Finding("Cycle", "spec.ledger.metadata", circle(way))


def of_commits(commit: Commit, there: Lookup) -> Iterator[Finding]:
    """Commits of which each waits for the next."""
    if not commit.finished and depends_on_itself(commit, there):
        yield Finding("DependencyCycle", "spec.dependsOn", CIRCLE)
