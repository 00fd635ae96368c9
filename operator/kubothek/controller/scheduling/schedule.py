"""When something that is scheduled is to start: slots, jitter and deadlines. Arithmetic only.

A **slot** is a moment that the cron expression names in its time zone; it is known by that moment in UTC and has no
seconds. It **starts** later by its jitter: a hash of the owner's uid and the slot, so that a restarted operator finds
the same moment. Whoever works off slots keeps the last one in its status and does this::

    problem = fault(schedule)                       # say it, and start nothing
    slot = due_slot(schedule, since, now, uid=uid)  # since: the last slot, at first the time of creation
    if slot is not None:
        ...                                         # start; the slot is `since` from now on
    look_again = next_start(schedule, slot or since, now, uid=uid) - now

Of slots that were missed only the newest is due, if ``startingDeadline`` has not passed since its start. Only the clock
of ``now`` counts. When it is set back a little, no slot is worked off twice; a ``since`` far in the future, left by a
clock that was wrong, counts for nothing: the newest slot is due, worked off or not, and from that on all is well.

When the clocks of a time zone change, it is as with Debian's cron: a wall time that is skipped happens at the moment of
the jump, and one that comes twice happens the first time; but expressions whose minute or hour begins with ``*`` go by
real time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kubothek.api.schedules import Schedule
from kubothek.api.values import parse_duration

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MINUTE = timedelta(minutes=1)
SETBACK = timedelta(hours=1)
"""How far a clock may be set back without a slot happening again."""


def fault(schedule: Schedule) -> str | None:
    """Why this schedule has no slots, in words that say what to do; None if it has some.

    The CRD refuses what does not look like a schedule; this is about time zones, and about dates that never come.
    """
    try:
        ZoneInfo(schedule.time_zone)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, or that of a directory
        return f"timeZone {schedule.time_zone!r} is unknown: use an IANA name such as Europe/Berlin"
    try:
        next_slot(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return f"cron {schedule.cron!r} names no time: {str(error).lower()}, correct it"
    return None


def next_slot(schedule: Schedule, after: datetime) -> datetime:
    """The first slot after a moment."""
    return next(_slots(schedule, after))


def start_of(slot: datetime, schedule: Schedule, *, uid: str) -> datetime:
    """When a slot starts: at its time, or whole seconds later, ``jitter`` at most."""
    jitter = int(parse_duration(schedule.jitter).total_seconds())
    seed = hashlib.sha256(f"{uid} {slot.astimezone(UTC).isoformat()}".encode()).digest()
    return slot + timedelta(seconds=int.from_bytes(seed[:8]) % (jitter + 1))


def due_slot(schedule: Schedule, since: datetime, now: datetime, *, uid: str) -> datetime | None:
    """The newest slot after ``since`` that has started by ``now``, unless it is too late for it."""
    jitter, deadline = parse_duration(schedule.jitter), parse_duration(schedule.starting_deadline)
    oldest = now - jitter - deadline - _MINUTE
    since = oldest if _is_wrong(since, now) else max(since, oldest)
    certain = max(since, now - jitter)  # slots up to here have started, those behind it perhaps
    maybe = takewhile(lambda slot: slot <= now, _slots(schedule, certain))
    started = [slot for slot in maybe if start_of(slot, schedule, uid=uid) <= now]
    slot = started[-1] if started else _newest(schedule, since, certain)
    return slot if slot is not None and now <= start_of(slot, schedule, uid=uid) + deadline else None


def next_start(schedule: Schedule, since: datetime, now: datetime, *, uid: str) -> datetime:
    """When the next slot starts that has not started by ``now`` and is after ``since``."""
    earliest: datetime | None = None
    oldest = now - parse_duration(schedule.jitter) - _MINUTE
    for slot in _slots(schedule, oldest if _is_wrong(since, now) else max(since, oldest)):
        if earliest is not None and slot >= earliest:
            return earliest
        start = start_of(slot, schedule, uid=uid)
        if start > now:
            earliest = start if earliest is None else min(earliest, start)
    raise AssertionError("slots never end")


def soonest(*waits: timedelta | None) -> timedelta | None:
    """The shortest wait; None where nothing waits."""
    return min((wait for wait in waits if wait is not None), default=None)


def _is_wrong(since: datetime, now: datetime) -> bool:
    return since > now + SETBACK


def _newest(schedule: Schedule, since: datetime, until: datetime) -> datetime | None:
    """The newest slot after ``since`` and not after ``until``, found by halving: there may be thousands between."""
    if next_slot(schedule, since) > until:
        return None
    low, high = 0, (until - since) // _MINUTE + 1
    while high - low > 1:
        middle = (low + high) // 2
        if next_slot(schedule, since + middle * _MINUTE) <= until:
            low = middle
        else:
            high = middle
    return next_slot(schedule, since + low * _MINUTE)


def _slots(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All slots after a moment, in order, each once, in UTC."""
    last = after.astimezone(UTC)
    cron = _MACROS.get(schedule.cron.lower(), schedule.cron)
    for wall in CronSim(cron, last.astimezone(ZoneInfo(schedule.time_zone))):
        slot = wall.astimezone(UTC)
        if slot > last:  # several skipped wall times fall on one moment, and repeated ones lie behind
            yield slot
            last = slot
