"""Retention of ended runs and of their pods. Computes only; never touches data."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.query import Query
from kubothek.api.runs import tracker_of
from kubothek.api.values import parse_duration
from kubothek.api.verification import Verification
from kubothek.controller.context import Action, CancelJob, Context, DeleteRun
from kubothek.controller.scheduling.attempts import job_name

Run = Commit | Query | Compaction | Verification

SOONEST = timedelta(seconds=10)
"""Minimum time that an ended run stays, so that its watchers, above all its Dataset, observe its end."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Deletions that are due now for an ended run, and when to check again."""

    actions: tuple[Action, ...] = ()
    again: timedelta | None = None


def kept(run: Run, prefix: str, engine: Engine | None, context: Context) -> Kept:
    """Return what to delete of an ended run: the run, its pods, or nothing yet.

    ``prefix`` is the prefix of its job names; ``engine`` is the Engine that it ran on, in its present state.
    """
    end = _ended(run)
    if end is None or context.settings.keep_runs:
        return Kept()
    limit, patience = _limit(run, context), _patience(run, engine)
    expires = limit is not None or run.spec.ttl_seconds_after_finished is not None
    awaited = _awaited(run, context) if expires else frozenset()
    life = _life(run, awaited)
    if life is not None and end + life <= context.now:
        return Kept((DeleteRun(run),))
    pods: tuple[Action, ...] = ()
    waits = [] if life is None else [end + life - context.now]
    elders: tuple[Action, ...] = ()
    if limit is not None:
        if end + SOONEST <= context.now:
            elders = tuple(map(DeleteRun, _beyond(limit, run, context, awaited)))
        else:
            waits.append(end + SOONEST - context.now)
    names = [name for name in _jobs(run, prefix) if context.job(run.namespace, name) is not None]
    if patience is not None and names:
        if end + patience <= context.now:
            pods = tuple(CancelJob(run.namespace, name) for name in names)
        else:
            waits.append(end + patience - context.now)
    return Kept((*pods, *elders), min(waits, default=None))


def _ended(run: Run) -> datetime | None:
    """Return when the run completed or failed; None if it has not."""
    for kind in ("Complete", "Failed"):
        condition = run.status.condition(kind)
        if condition is not None and condition.status == "True":
            return condition.last_transition_time
    return None


def _life(run: Run, awaited: Set[str]) -> timedelta | None:
    """Return how long after its end the run is deleted; None: never, or not while another run depends on it."""
    seconds = run.spec.ttl_seconds_after_finished
    if seconds is None or not _may_go(run, awaited):
        return None
    return max(SOONEST, timedelta(seconds=seconds))


def _limit(run: Run, context: Context) -> int | None:
    """Return how many runs like this one its Dataset keeps; None: all."""
    reference = None if isinstance(run, Query) else run.spec.dataset_ref
    dataset = None if reference is None else context.get(Dataset, run.namespace, reference.name)
    if dataset is None:
        return None
    history = dataset.spec.run_history
    return history.complete if run.status.holds("Complete") else history.failed


def _beyond(limit: int, run: Run, context: Context, awaited: Set[str]) -> list[Run]:
    """Return the oldest runs of the same kind, Dataset and result that exceed the limit."""
    well = run.status.holds("Complete")
    alike: list[tuple[datetime, str, Run]] = []
    for other in context.list(type(run), run.namespace):
        if isinstance(other, Query) or isinstance(run, Query) or other.spec.dataset_ref != run.spec.dataset_ref:
            continue
        end = _ended(other)
        if end is not None and other.status.holds("Complete") == well and _may_go(other, awaited):
            alike.append((end, other.name, other))
    alike.sort(key=lambda each: each[:2], reverse=True)
    return [other for _, _, other in alike[limit:]]


def _may_go(run: Run, awaited: Set[str]) -> bool:
    """Return whether the run may be deleted: nothing would create it again, and no run depends on it."""
    return not run.deleting and run.controller is None and tracker_of(run.metadata) is None and run.name not in awaited


def _awaited(run: Run, context: Context) -> Set[str]:
    """Return the names of the runs of the same kind that unfinished runs depend on.

    A deleted run would look to them as if it had never existed. Only Commits have dependents. Of a standing Query, only
    the first run depends on them.
    """
    if not isinstance(run, Commit):
        return frozenset()
    others: list[Commit | Query] = [*context.list(Commit, run.namespace), *context.list(Query, run.namespace)]
    waiting = (other for other in others if not other.finished and other.status.completion_time is None)
    return {reference.name for other in waiting for reference in other.spec.depends_on}


def _patience(run: Run, engine: Engine | None) -> timedelta | None:
    """Return how long after the run's end its pods are deleted; None: not before the run itself."""
    if engine is None:
        return None
    retention = engine.spec.pod_retention
    at_once = retention.policy == "Never" or (retention.policy == "OnFailure" and run.status.holds("Complete"))
    if at_once:
        return timedelta(0)
    return None if retention.duration is None else parse_duration(retention.duration)


def _jobs(run: Run, prefix: str) -> list[str]:
    return [job_name(prefix, number) for number in range(1, run.status.observed_attempt + 1)]
