"""Schedules: slots, jitter and deadlines. Computes only.

A **slot** is a moment that the cron expression names in its time zone; it is identified by that moment in UTC and has
no seconds. It **starts** later by its jitter, a hash of the owner's uid and the slot, so that a restarted operator
computes the same moment. A user of this module keeps the last slot in its status and does this:

    problem = fault(schedule)                       # report it, and start nothing
    slots = Slots.of(resource, schedule, last, now) # last: the last slot, None at first
    if slots.due is not None:
        ...                                         # start; this slot is the last one from now on
    again = slots.wait

Of missed slots only the newest is due, if ``startingDeadline`` has not passed since its start. Only the clock of
``now`` counts. If the clock is set back by up to :data:`SETBACK`, no slot is due twice. A ``since`` further in the
future comes from a wrong clock and is ignored: the newest slot is due once, even if it was done before.

Changes of daylight saving time work as in Debian's cron. A skipped wall time happens at the moment of the jump, and a
repeated one happens the first time only. Expressions whose minute or hour begins with ``*`` follow real time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kubothek.api.meta import Resource
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
"""How far a clock may be set back without repeating a slot."""


def fault(schedule: Schedule) -> str | None:
    """Return why this schedule has no slots and what to do about it; None if it has some.

    The CRD rejects malformed schedules; this function finds unknown time zones and dates that never occur.
    """
    try:
        ZoneInfo(schedule.time_zone)
    except (KeyError, ValueError, OSError):  # unknown, not a name, or the name of a directory
        return f"timeZone {schedule.time_zone!r} is unknown: use an IANA name such as Europe/Berlin"
    try:
        next_slot(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return f"cron {schedule.cron!r} names no time: {str(error).lower()}, correct it"
    return None


def next_slot(schedule: Schedule, after: datetime) -> datetime:
    """Return the first slot after a moment."""
    return next(_slots(schedule, after))


def start_of(slot: datetime, schedule: Schedule, *, uid: str) -> datetime:
    """Return when a slot starts: at its time plus whole seconds, at most ``jitter``."""
    jitter = int(parse_duration(schedule.jitter).total_seconds())
    seed = hashlib.sha256(f"{uid} {slot.astimezone(UTC).isoformat()}".encode()).digest()
    return slot + timedelta(seconds=int.from_bytes(seed[:8]) % (jitter + 1))


def due_slot(schedule: Schedule, since: datetime, now: datetime, *, uid: str) -> datetime | None:
    """Return the newest slot after ``since`` that has started by ``now``, unless its deadline has passed."""
    jitter, deadline = parse_duration(schedule.jitter), parse_duration(schedule.starting_deadline)
    oldest = now - jitter - deadline - _MINUTE
    since = oldest if _is_wrong(since, now) else max(since, oldest)
    certain = max(since, now - jitter)  # slots up to here have started, later ones perhaps
    maybe = takewhile(lambda slot: slot <= now, _slots(schedule, certain))
    started = [slot for slot in maybe if start_of(slot, schedule, uid=uid) <= now]
    slot = started[-1] if started else _newest(schedule, since, certain)
    return slot if slot is not None and now <= start_of(slot, schedule, uid=uid) + deadline else None


def next_start(schedule: Schedule, since: datetime, now: datetime, *, uid: str) -> datetime:
    """Return when the next slot starts that is after ``since`` and has not started by ``now``."""
    earliest: datetime | None = None
    oldest = now - parse_duration(schedule.jitter) - _MINUTE
    for slot in _slots(schedule, oldest if _is_wrong(since, now) else max(since, oldest)):
        if earliest is not None and slot >= earliest:
            return earliest
        start = start_of(slot, schedule, uid=uid)
        if start > now:
            earliest = start if earliest is None else min(earliest, start)
    raise AssertionError("slots never end")


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots of a resource's schedule after ``since``, the last one that it used; none without a valid schedule."""

    schedule: Schedule | None
    since: datetime
    now: datetime
    uid: str

    @classmethod
    def of(cls, resource: Resource, schedule: Schedule | None, last: datetime | None, now: datetime) -> Slots:
        """Return the slots after the last one; without one, after the creation of the resource."""
        usable = schedule if schedule is not None and fault(schedule) is None else None
        return cls(usable, last or resource.metadata.creation_timestamp or now, now, resource.metadata.uid)

    @property
    def due(self) -> datetime | None:
        """The slot that is due now."""
        return None if self.schedule is None else due_slot(self.schedule, self.since, self.now, uid=self.uid)

    @property
    def next_start(self) -> datetime | None:
        """When the next slot starts."""
        return None if self.schedule is None else next_start(self.schedule, self.since, self.now, uid=self.uid)

    @property
    def wait(self) -> timedelta | None:
        """The time until the next slot starts."""
        start = self.next_start
        return None if start is None else start - self.now


def soonest(*waits: timedelta | None) -> timedelta | None:
    """Return the shortest wait; None if there is none."""
    return min((wait for wait in waits if wait is not None), default=None)


def _is_wrong(since: datetime, now: datetime) -> bool:
    return since > now + SETBACK


def _newest(schedule: Schedule, since: datetime, until: datetime) -> datetime | None:
    """Return the newest slot in (``since``, ``until``], found by bisection because there may be thousands."""
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
    """Yield all slots after a moment, in order, each once, in UTC."""
    last = after.astimezone(UTC)
    cron = _MACROS.get(schedule.cron.lower(), schedule.cron)
    for wall in CronSim(cron, last.astimezone(ZoneInfo(schedule.time_zone))):
        slot = wall.astimezone(UTC)
        if slot > last:  # several skipped wall times map to one moment, and repeated ones are earlier
            yield slot
            last = slot
