"""Deadlines by which a pod must be scheduled and started: those of its Engine, as annotations of the pod.

So an edit of the Engine does not affect existing pods, and a pod alone suffices to judge it. The run time of a driver
is limited by ``activeDeadlineSeconds``, which the kubelet enforces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.engine import EngineSpec
from kubothek.api.meta import GROUP
from kubothek.api.values import parse_duration

SCHEDULE = f"{GROUP}/schedule-deadline"
START = f"{GROUP}/start-deadline"
"""Annotations of drivers; their values are durations, as in the Engine."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which a pod must make progress, and the reason and message if it does not."""

    moment: datetime
    reason: str
    message: str


def notes(engine: EngineSpec) -> dict[str, str]:
    """Return the annotations of a driver with its deadlines."""
    found = {START: engine.deadlines.start}
    if engine.deadlines.schedule is not None:
        found[SCHEDULE] = engine.deadlines.schedule
    return found


def deadline(pod: Mapping[str, Any]) -> Deadline | None:
    """Return the deadline that a pending pod has to meet, or missed; None if it has none."""
    meta, status = pod["metadata"], pod["status"]
    if status.get("phase") != "Pending":
        return None
    given = meta.get("annotations") or {}
    conditions: list[dict[str, str]] = status.get("conditions") or []
    scheduled = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    if scheduled.get("status") != "True":
        return _deadline(
            given.get(SCHEDULE), meta.get("creationTimestamp"), "ScheduleDeadlineExceeded", "the pod got no node in"
        )
    since = scheduled.get("lastTransitionTime") or meta.get("creationTimestamp")
    return _deadline(given.get(START), since, "StartDeadlineExceeded", "the pod has a node and did not start in")


def _deadline(limit: str | None, since: str | None, reason: str, what: str) -> Deadline | None:
    span = _span(limit)
    if span is None or since is None:
        return None
    return Deadline(datetime.fromisoformat(since) + span, reason, f"{what} {limit}")


def _span(limit: str | None) -> timedelta | None:
    """Return the duration; None if it is invalid, as users may edit annotations."""
    try:
        return None if limit is None else parse_duration(limit)
    except ValueError:
        return None
