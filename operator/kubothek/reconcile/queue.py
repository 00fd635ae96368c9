"""Which Commit of a Dataset is next.

Commits of one Dataset run one at a time, in the order of their creation, then of their names. A Commit keeps its place
while it waits for a retry or for something that is missing, so that what was applied first is committed first. Three
kinds give way: those that have ended, those that are suspended, and those that wait for other Commits (``dependsOn``),
which may have been created later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kubothek.reconcile.attempts import job_name
from kubothek.reconcile.world import JobPhase, World
from kubothek.resources.commit import Commit

_NEVER = datetime.max.replace(tzinfo=UTC)


def order(commit: Commit) -> tuple[datetime, str]:
    """What Commits are sorted by."""
    return commit.metadata.creation_timestamp or _NEVER, commit.name


def siblings(commit: Commit, world: World) -> Iterator[Commit]:
    """The other Commits of the same Dataset that have not ended."""
    for other in world.list(Commit, commit.namespace):
        if other.name != commit.name and other.spec.dataset_ref == commit.spec.dataset_ref and not other.finished:
            yield other


def may_go(commit: Commit, world: World) -> bool:
    """Whether no other Commit of the Dataset runs or comes first."""
    place = order(commit)
    return not any(
        is_active(other, world) or (order(other) < place and _keeps_place(other, world))
        for other in siblings(commit, world)
    )


def is_active(commit: Commit, world: World) -> bool:
    """Whether a job of the Commit exists and has not ended."""
    if not commit.status.attempt:
        return False
    view = world.job(commit.namespace, job_name(commit.name, commit.status.attempt))
    return (
        view is not None
        and view.phase in (JobPhase.PENDING, JobPhase.RUNNING)
        and view.owner_uid in ("", commit.metadata.uid)
    )


def _keeps_place(commit: Commit, world: World) -> bool:
    return not commit.deleting and not commit.spec.suspend and awaited(commit, world) is None


def awaited(commit: Commit, world: World) -> str | None:
    """The first Commit in ``dependsOn`` that is not complete."""
    for reference in commit.spec.depends_on:
        other = world.get(Commit, commit.namespace, reference.name)
        if other is None or not other.status.holds("Complete"):
            return reference.name
    return None


def depends_on_itself(commit: Commit, world: World) -> bool:
    """Whether ``dependsOn`` leads back to the Commit."""
    seen: set[str] = set()
    ahead = [reference.name for reference in commit.spec.depends_on]
    while ahead:
        name = ahead.pop()
        if name == commit.name:
            return True
        if name in seen:
            continue
        seen.add(name)
        other = world.get(Commit, commit.namespace, name)
        if other is not None and not other.finished:
            ahead.extend(reference.name for reference in other.spec.depends_on)
    return False
