"""Repository: no job runs for it. Validation checks its spec; Syncs find out if it can be reached (decision 15)."""

from __future__ import annotations

from kubothek.api.conditions import ready
from kubothek.api.repository import Repository
from kubothek.controller.context import Outcome, World
from kubothek.controller.outcome import conclude, unchanged


def reconcile(repository: Repository, world: World) -> Outcome:
    """Reconcile a Repository."""
    if repository.deleting or repository.frozen:
        return unchanged(repository)
    use = "pull from it and push to it" if repository.spec.push else "pull from it"
    return conclude(repository, world, ready("Succeeded", f"Syncs may {use}; whether it answers, they tell"))
