"""State transitions of a GCPolicy's round, as its status holds it: begin, progress and result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubothek.api.conditions import problem_text
from kubothek.api.gcpolicy import Mode, Round
from kubothek.api.jobs import CollectOutcome
from kubothek.api.observed import KindCount
from kubothek.api.values import render_bytes
from kubothek.controller.kinds.targets import Candidate

_PROBLEMS, _PROBLEM_LENGTH = 8, 300


def begin(last: Round | None, slot: datetime, mode: Mode, now: datetime) -> Round:
    """Return the round of a slot, after the last one; the number of an observed job is never reused."""
    before = last or Round()
    return Round(
        attempt=before.attempt, observed_attempt=before.observed_attempt, slot=slot, mode=mode, started_time=now
    )


def announced(before: Round, until: str) -> Round:
    """Return the round with a job for the Datasets up to ``until``."""
    fresh = {"attempt": before.attempt + 1, "failures": 0, "disruptions": 0, "next_attempt_time": None}
    return before.model_copy(update=fresh | {"until": until})


def advanced(before: Round, done: CollectOutcome) -> Round:
    """Return the round after a job that succeeded. The job may have left the rest of its Datasets to the next one."""
    reached = f"{before.until.partition('/')[0]}/{done.after}"
    return before.model_copy(
        update={
            "after": reached if before.after < reached <= before.until else before.until,
            "until": "",
            "datasets": before.datasets + done.datasets,
            "failed": before.failed + done.failed,
            "problems": (*before.problems, *(text[:_PROBLEM_LENGTH] for text in done.problems))[:_PROBLEMS],
            "collected": _added(before.collected, done),
        }
    )


def passed_over(before: Round, left_out: Sequence[Candidate], reason: str, message: str) -> Round:
    """Return the round after a job that was given up: these Datasets could not be collected."""
    who = left_out[0].name if len(left_out) == 1 else counted(len(left_out), "Dataset")
    problem = problem_text(f"{who}: {reason}", message)[:_PROBLEM_LENGTH]
    return before.model_copy(
        update={
            "after": left_out[-1].key if left_out else before.until,
            "until": "",
            "datasets": before.datasets + len(left_out),
            "failed": before.failed + len(left_out),
            "problems": (*before.problems, problem)[:_PROBLEMS],
        }
    )


def describe(round_: Round) -> str:
    """Describe, for a message, the result of a round."""
    objects, size = (sum(getattr(count, what) for count in round_.collected) for what in ("objects", "bytes"))
    done = "deleted" if round_.mode == "Enforce" else "that would be deleted (mode is DryRun)"
    collected = counted(round_.datasets - round_.failed, "Dataset")
    return f"{counted(objects, 'object')} ({render_bytes(size)}) of {collected} {done}"


def counted(number: int, thing: str) -> str:
    """Return a number of things, for a message."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _added(counts: Sequence[KindCount], done: CollectOutcome) -> tuple[KindCount, ...]:
    """Return the sums by kind."""
    totals = {count.kind: count for count in counts}
    for count in done.collected:
        so_far = totals.get(count.kind, KindCount(kind=count.kind))
        totals[count.kind] = KindCount(
            kind=count.kind, objects=so_far.objects + count.objects, bytes=so_far.bytes + count.bytes
        )
    return tuple(totals[kind] for kind in sorted(totals))
