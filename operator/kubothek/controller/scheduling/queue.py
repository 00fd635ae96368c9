"""Order of the Commits of a Dataset or a Cube.

Commits of one Dataset or Cube run one at a time, in the order of their creation, then of their names. A Commit keeps
its place while it waits for a retry or for a missing resource, so that commits happen in the order of creation. Three
kinds of Commits do not block others: ended ones, suspended ones, and those that wait for other Commits (``dependsOn``),
which may have been created later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.conditions import stalled, state_of, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.query import Query
from kubothek.controller.context import Context, JobPhase, Lookup
from kubothek.controller.references import Blocked, missing
from kubothek.controller.run_index import unfinished
from kubothek.controller.scheduling.attempts import job_name

CIRCLE = "spec.dependsOn leads back to this Commit; create the Commits again without the cycle"
_NEVER = datetime.max.replace(tzinfo=UTC)


def order(run: Commit | Compaction) -> tuple[datetime, str]:
    """Return the sort key of a Dataset's runs."""
    return run.metadata.creation_timestamp or _NEVER, run.name


def siblings(commit: Commit, context: Context) -> Iterator[Commit]:
    """Yield the other unfinished Commits of the same Dataset or Cube, in their order."""
    for other in unfinished(Commit, commit.namespace, commit.subject, context):
        if other.name != commit.name:
            yield other


def queued(dataset: Dataset, context: Context) -> Iterator[Commit]:
    """Yield the unfinished Commits of the Dataset, and of the Cube that it belongs to."""
    yield from unfinished(Commit, dataset.namespace, ("Dataset", dataset.name), context)
    if dataset.cube is not None:
        yield from unfinished(Commit, dataset.namespace, ("Cube", dataset.cube), context)


def datasets_of(commit: Commit, context: Context) -> list[Dataset]:
    """Return the Datasets that the Commit may change: the one, or all of its Cube."""
    kind, name = commit.subject
    if kind == "Cube":
        return [dataset for dataset in context.list(Dataset, commit.namespace) if dataset.cube == name]
    dataset = context.get(Dataset, commit.namespace, name)
    return [] if dataset is None else [dataset]


def may_go(commit: Commit, context: Context) -> bool:
    """Return whether no other Commit of the same subject is active or comes first, and no intake job is active."""
    if any(intake_active(dataset, context) for dataset in datasets_of(commit, context)):
        return False
    place = order(commit)
    return not any(
        is_active(other, context) or (order(other) < place and _keeps_place(other, context))
        for other in siblings(commit, context)
    )


def is_active(commit: Commit, context: Context) -> bool:
    """Return whether a job of the Commit exists and has not ended."""
    if not commit.status.attempt:
        return False
    return job_is_there(commit, job_name(commit.name, commit.status.attempt), context)


def intake_prefix(dataset: Dataset) -> str:
    """Return the prefix of the names of a Dataset's intake jobs."""
    return f"{dataset.name}-intake"


def intake_active(dataset: Dataset, context: Context) -> bool:
    """Return whether an intake job of one of the Dataset's sources is active."""
    intake = dataset.status.intake
    if intake is None or intake.source is None:
        return False
    return job_is_there(dataset, job_name(intake_prefix(dataset), intake.attempt), context)


def about_to_commit(dataset: Dataset, context: Context) -> bool:
    """Return whether a Commit of the Dataset is active, or waits only for its turn."""
    queue = list(queued(dataset, context))
    if any(is_active(commit, context) for commit in queue):
        return True
    following = min((commit for commit in queue if _keeps_place(commit, context)), key=order, default=None)
    return following is not None and could_run(following)


def could_run(run: Commit | Query | Compaction) -> bool:
    """Return whether a run that has no job yet waits only for its turn or for a place."""
    if run.deleting or run.spec.suspend:
        return False
    state = state_of(run.status)
    return state is None or state.reason in ("Waiting", "Progressing", "ConcurrencyLimit")


def job_is_there(owner: Resource, name: str, context: Context) -> bool:
    """Return whether the job exists, belongs to ``owner``, and has not ended."""
    view = context.job(owner.namespace, name)
    return (
        view is not None
        and view.phase in (JobPhase.PENDING, JobPhase.RUNNING)
        and view.owner_uid in ("", owner.metadata.uid)
    )


def _keeps_place(commit: Commit, context: Context) -> bool:
    return not commit.deleting and not commit.spec.suspend and awaited(commit, context) is None


def awaited(commit: Commit, context: Context) -> str | None:
    """Return the first Commit in ``dependsOn`` that is not complete, or None."""
    for reference in commit.spec.depends_on:
        other = context.get(Commit, commit.namespace, reference.name)
        if other is None or not other.status.holds("Complete"):
            return reference.name
    return None


def depends_on_itself(commit: Commit, context: Lookup) -> bool:
    """Return whether ``dependsOn`` leads back to the Commit."""
    seen: set[str] = set()
    ahead = [reference.name for reference in commit.spec.depends_on]
    while ahead:
        name = ahead.pop()
        if name == commit.name:
            return True
        if name in seen:
            continue
        seen.add(name)
        other = context.get(Commit, commit.namespace, name)
        if other is not None and not other.finished:
            ahead.extend(reference.name for reference in other.spec.depends_on)
    return False


def turn(commit: Commit, context: Context) -> Blocked | None:
    """Return what a Commit has to wait for: Commits that it depends on, and those that come before it."""
    name = awaited(commit, context)
    if name is not None:
        if depends_on_itself(commit, context):
            return Blocked(stalled("DependencyCycle", CIRCLE))
        other = context.get(Commit, commit.namespace, name)
        if other is None:
            return missing("Commit", name, commit, context)
        if other.status.holds("Failed"):
            message = f"Commit {name!r} of spec.dependsOn failed; create it again under the same name to continue"
            return Blocked(stalled("DependencyFailed", message))
        return Blocked(waiting("DependencyNotReady", f"Commit {name!r} of spec.dependsOn is not complete"))
    if not may_go(commit, context):
        message = (
            f"Commits of {commit.subject} run one at a time, in the order of their creation: "
            "others come first; one that hangs can be suspended or deleted"
        )
        return Blocked(waiting("Waiting", message))
    return None
