"""Rules about cycles: derivatives of their own descendants, and Commits that depend on each other."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.commit import Commit
from kubothek.api.dataset import Dataset
from kubothek.controller.context import Lookup
from kubothek.controller.derivation import own_cycle
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
