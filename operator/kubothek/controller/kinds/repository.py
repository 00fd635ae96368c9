"""Repository: no job runs for it. Validation checks its spec; Syncs find out if it can be reached (decision 15)."""

from __future__ import annotations

from kubothek.api.conditions import ready
from kubothek.api.repository import Repository
from kubothek.controller.context import Context, Outcome
from kubothek.controller.outcome import conclude, unchanged


def reconcile(repository: Repository, context: Context) -> Outcome:
    """Reconcile a Repository."""
    if repository.deleting or repository.frozen:
        return unchanged(repository)
    use = "pull from it and push to it" if repository.spec.push else "pull from it"
    return conclude(repository, context, ready("Succeeded", f"Syncs may {use}; whether it answers, they tell"))
