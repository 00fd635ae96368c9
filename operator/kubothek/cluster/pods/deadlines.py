"""When a pod should have a node, and when it should run: its Engine's deadlines, which it carries with it.

So an edit of the Engine changes nothing for a pod that is there, and what a pod shows is enough to judge it. How long a
driver may run is ``activeDeadlineSeconds``, which the kubelet watches as well.
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
    """Until when a pod should have got further; if it has not, what to say."""

    moment: datetime
    reason: str
    message: str


def notes(engine: EngineSpec) -> dict[str, str]:
    """The annotations of a driver that say when it is given up."""
    found = {START: engine.deadlines.start}
    if engine.deadlines.schedule is not None:
        found[SCHEDULE] = engine.deadlines.schedule
    return found


def deadline(pod: Mapping[str, Any]) -> Deadline | None:
    """The deadline that a pod has ahead of it, or missed; None if it has none, or is past them."""
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
    """Annotations are edited by people, too: what is no duration is no deadline."""
    try:
        return None if limit is None else parse_duration(limit)
    except ValueError:
        return None
