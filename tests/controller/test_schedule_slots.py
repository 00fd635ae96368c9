"""When scheduled things start: time zones, clocks that jump, missed slots, jitter, and clocks that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.api.schedules import Schedule
from kubothek.controller.scheduling.schedule import SETBACK, due_slot, fault, next_slot, next_start, start_of

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BERLIN_SPRING = datetime(2026, 3, 29, tzinfo=UTC)  # 02:00 becomes 03:00, at 01:00 UTC
BERLIN_AUTUMN = datetime(2026, 10, 25, tzinfo=UTC)  # 03:00 becomes 02:00, at 01:00 UTC


def schedule(cron: str, zone: str = "Etc/UTC", *, jitter: str = "0s", deadline: str = "1h") -> Schedule:
    return Schedule(cron=cron, time_zone=zone, jitter=jitter, starting_deadline=deadline)


def slots(given: Schedule, after: datetime, count: int) -> list[str]:
    """The next slots after a moment, in UTC."""
    found: list[datetime] = []
    for _ in range(count):
        found.append(next_slot(given, found[-1] if found else after))
    assert all(slot.utcoffset() == timedelta(0) for slot in found)
    return [slot.strftime("%m-%d %H:%M") for slot in found]


@pytest.mark.parametrize(
    ("cron", "zone", "expected"),
    [
        ("30 2 * * *", "Etc/UTC", ["11-22 02:30", "11-23 02:30"]),
        ("30 2 * * *", "Europe/Berlin", ["11-22 01:30", "11-23 01:30"]),
        ("30 2 * * *", "America/New_York", ["11-22 07:30", "11-23 07:30"]),
        ("30 2 * * *", "Asia/Kathmandu", ["11-21 20:45", "11-22 20:45"]),
        ("0 0 * * MON-FRI", "Pacific/Kiritimati", ["11-22 10:00", "11-23 10:00"]),
        ("0 0 1 * 1", "Etc/UTC", ["11-23 00:00", "11-30 00:00", "12-01 00:00"]),  # a day of either kind
        ("0 12 * * 7", "Etc/UTC", ["11-22 12:00"]),
        ("@hourly", "Etc/UTC", ["11-21 13:00", "11-21 14:00"]),
        ("@weekly", "Etc/UTC", ["11-22 00:00", "11-29 00:00"]),
        ("@monthly", "Asia/Tokyo", ["11-30 15:00"]),
        ("@yearly", "Etc/UTC", ["01-01 00:00"]),
    ],
)
def test_schedule_uses_wall_clock_of_time_zone(cron: str, zone: str, expected: list[str]) -> None:
    assert slots(schedule(cron, zone), NOON, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
        (
            "0,30 2,3 * * *",
            ["03-28 01:00", "03-28 01:30", "03-28 02:00", "03-28 02:30", "03-29 01:00", "03-29 01:30"],
        ),
        ("0 1-4 * * *", ["03-28 00:00", "03-28 01:00", "03-28 02:00", "03-28 03:00", "03-29 00:00", "03-29 01:00"]),
    ],
)
def test_slot_in_skipped_hour_fires_once_at_clock_change(cron: str, expected: list[str]) -> None:
    assert slots(schedule(cron, "Europe/Berlin"), BERLIN_SPRING - DAY - HOUR, len(expected)) == expected


def test_slot_in_repeated_hour_fires_at_first_occurrence() -> None:
    nightly = schedule("30 2 * * *", "Europe/Berlin")
    assert slots(nightly, BERLIN_AUTUMN - DAY, 3) == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]
    between = BERLIN_AUTUMN + HOUR + 10 * MINUTE  # 02:10 for the second time
    assert slots(nightly, between, 1) == ["10-26 01:30"]


def test_hourly_schedule_follows_elapsed_time_across_clock_changes() -> None:
    half_hourly, even = schedule("*/30 * * * *", "Europe/Berlin"), schedule("0 */2 * * *", "Europe/Berlin")
    for night in (BERLIN_SPRING, BERLIN_AUTUMN):
        assert slots(half_hourly, night, 4) == [
            f"{night:%m-%d} {time}" for time in ("00:30", "01:00", "01:30", "02:00")
        ]
    assert slots(even, BERLIN_AUTUMN - HOUR, 4) == ["10-25 00:00", "10-25 01:00", "10-25 03:00", "10-25 05:00"]
    assert slots(even, BERLIN_SPRING - 2 * HOUR, 3) == ["03-28 23:00", "03-29 02:00", "03-29 04:00"]


JUMPS = [
    ("Europe/Berlin", BERLIN_SPRING),
    ("Europe/Berlin", BERLIN_AUTUMN),
    ("America/Santiago", datetime(2026, 4, 5, tzinfo=UTC)),  # 24:00 becomes 23:00
    ("America/Santiago", datetime(2026, 9, 6, tzinfo=UTC)),  # 00:00 becomes 01:00
    ("Africa/Cairo", datetime(2026, 4, 24, tzinfo=UTC)),  # 00:00 becomes 01:00
]
CRONS: dict[str, Callable[[datetime], bool]] = {
    "30 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 30),
    "0 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 0),
    "15,45 0-3,23 * * *": lambda wall: wall.hour in (0, 1, 2, 3, 23) and wall.minute in (15, 45),
    "*/20 * * * *": lambda wall: wall.minute % 20 == 0,
    "0 */3 * * *": lambda wall: wall.hour % 3 == 0 and wall.minute == 0,
}


@pytest.mark.parametrize(("zone", "day"), JUMPS, ids=str)
@pytest.mark.parametrize("cron", CRONS)
def test_slots_around_clock_change_match_naive_enumeration(cron: str, zone: str, day: datetime) -> None:
    first, last = day - DAY, day + 2 * DAY
    found: list[datetime] = [next_slot(schedule(cron, zone), first)]
    while found[-1] <= last:
        found.append(next_slot(schedule(cron, zone), found[-1]))
    assert found[:-1] == _enumerated(cron, zone, first, last)


def _enumerated(cron: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    matches, tz = CRONS[cron], ZoneInfo(zone)
    if "*" in cron.split()[0] + cron.split()[1]:
        moments = (first + MINUTE * number for number in range(1, (last - first) // MINUTE + 1))
        return [moment for moment in moments if matches(moment.astimezone(tz))]
    wall = (first - DAY).replace(tzinfo=None)
    found = set()
    while wall < last.replace(tzinfo=None) + DAY:
        if matches(wall):
            found.add(_moment(wall, tz))
        wall += MINUTE
    return sorted(moment for moment in found if first < moment <= last)


def _moment(wall: datetime, tz: ZoneInfo) -> datetime:
    """When a clock shows this time first, or passes over it."""
    moment = wall.replace(tzinfo=tz).astimezone(UTC)
    while moment.astimezone(tz).replace(tzinfo=None) != wall:
        wall += MINUTE
        moment = wall.replace(tzinfo=tz).astimezone(UTC)
    return moment


# --- missed slots ---


def due(given: Schedule, since: datetime, now: datetime, uid: str = "uid") -> datetime | None:
    return due_slot(given, since, now, uid=uid)


def test_slot_is_due_from_its_time_and_only_once() -> None:
    hourly = schedule("0 * * * *")
    assert due(hourly, NOON, NOON + HOUR - timedelta(microseconds=1)) is None
    assert due(hourly, NOON, NOON + HOUR) == NOON + HOUR
    assert due(hourly, NOON, NOON + HOUR + 20 * MINUTE) == NOON + HOUR
    assert due(hourly, NOON + HOUR, NOON + HOUR + 20 * MINUTE) is None


def test_new_schedule_waits_for_first_slot() -> None:
    assert due(schedule("0 12 * * *"), NOON, NOON + MINUTE) is None
    assert due(schedule("0 12 * * *"), NOON, NOON + DAY) == NOON + DAY


def test_newest_of_missed_slots_is_due() -> None:
    assert due(schedule("*/15 * * * *"), NOON - 30 * DAY, NOON + 20 * MINUTE) == NOON + 15 * MINUTE
    assert due(schedule("30 2 * * *", deadline="10h"), NOON - 30 * DAY, NOON) == NOON.replace(hour=2, minute=30)


def test_slot_past_starting_deadline_is_skipped() -> None:
    daily = schedule("0 12 * * *", deadline="1h")
    assert due(daily, NOON - DAY, NOON + HOUR) == NOON
    assert due(daily, NOON - DAY, NOON + HOUR + timedelta(seconds=1)) is None


def test_slot_in_repeated_hour_is_not_due_twice() -> None:
    nightly = schedule("30 2 * * *", "Europe/Berlin", deadline="3h")
    first = BERLIN_AUTUMN + 30 * MINUTE
    assert due(nightly, BERLIN_AUTUMN - DAY, first) == first
    assert due(nightly, first, first + HOUR) is None


# --- clocks that are wrong ---


def test_clock_set_back_slightly_repeats_no_slot() -> None:
    hourly = schedule("0 * * * *")
    assert due(hourly, NOON, NOON - SETBACK) is None
    assert next_start(hourly, NOON, NOON - SETBACK, uid="uid") == NOON + HOUR


def test_slot_recorded_in_future_by_wrong_clock_blocks_no_slot() -> None:
    hourly, left = schedule("0 * * * *", deadline="30m"), NOON + 365 * DAY
    assert due(hourly, left, NOON - MINUTE) is None
    assert next_start(hourly, left, NOON - MINUTE, uid="uid") == NOON
    slot = due_slot(hourly, left, NOON + MINUTE, uid="uid")
    assert slot == NOON, "once more, perhaps, and never only in a year"
    assert due(hourly, slot, NOON + MINUTE) is None
    assert next_start(hourly, slot, NOON + MINUTE, uid="uid") == NOON + HOUR


# --- jitter ---


def test_jitter_spreads_starts_within_its_limit() -> None:
    nightly = schedule("0 2 * * *", jitter="10m")
    slot = next_slot(nightly, NOON)
    starts = [start_of(slot, nightly, uid=str(number)) - slot for number in range(200)]
    assert all(timedelta(0) <= start <= 10 * MINUTE for start in starts)
    assert len(set(starts)) > 100
    assert max(starts) - min(starts) > 8 * MINUTE


def test_slot_start_is_deterministic_and_differs_between_slots() -> None:
    nightly = schedule("0 2 * * *", jitter="10m")
    nights = [NOON.replace(hour=2) + DAY * number for number in range(20)]
    starts = [start_of(night, nightly, uid="uid") - night for night in nights]
    assert starts == [
        start_of(night.astimezone(ZoneInfo("Asia/Tokyo")), nightly, uid="uid") - night for night in nights
    ]
    assert len(set(starts)) > 10


crons = st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "10,11,50 */5 * * *", "30 2 * * *", "0 0 * * 1"])
spans = st.sampled_from(["0s", "45s", "5m", "90m", "12h"])


@settings(deadline=None, max_examples=60)
@given(crons, spans, spans, st.integers(0, 4 * 1440), st.integers(0, 86400))
def test_due_slot_is_newest_started_slot(cron: str, jitter: str, late: str, gone: int, after: int) -> None:
    """Against the plain way: look at each slot since."""
    given = schedule(cron, "Europe/Berlin", jitter=jitter, deadline=late)
    since = BERLIN_SPRING - 2 * DAY
    now = since + gone * MINUTE + timedelta(seconds=after / 100)
    started = None
    slot = next_slot(given, since)
    while slot <= now:
        if start_of(slot, given, uid="u") <= now:
            started = slot
        slot = next_slot(given, slot)
    allowed = timedelta(seconds={"0s": 0, "45s": 45, "5m": 300, "90m": 5400, "12h": 43200}[late])
    if started is not None and now > start_of(started, given, uid="u") + allowed:
        started = None
    assert due_slot(given, since, now, uid="u") == started


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["0 * * * *", "30 2 * * *", "0 0 * * 1"]), st.sampled_from(["0s", "9m"]), st.integers(0, 2880))
def test_next_start_is_earliest_time_with_due_slot(cron: str, jitter: str, gone: int) -> None:
    given = schedule(cron, "Europe/Berlin", jitter=jitter)
    now = BERLIN_AUTUMN - DAY + gone * MINUTE
    since = due_slot(given, now - 2 * DAY, now, uid="u") or now - 2 * DAY
    start = next_start(given, since, now, uid="u")
    assert start > now
    if due_slot(given, since, now, uid="u") is None:
        assert due_slot(given, since, start, uid="u") is not None
        assert due_slot(given, since, start - timedelta(seconds=1), uid="u") is None


# --- what is no schedule ---


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4 *", "0 5-3 * * *", "0 0 * * FRI-MON", "0 0 31 6 */2"])
def test_cron_without_possible_date_is_reported(cron: str) -> None:
    problem = fault(schedule(cron))
    assert problem is not None
    assert problem.startswith(f"cron {cron!r} names no time: bad ")


@pytest.mark.parametrize("zone", ["Europe/Berln", "Europe", "/etc/passwd", "Mars/Base", "Local", "-", "a//b"])
def test_unknown_time_zone_is_reported(zone: str) -> None:
    problem = fault(schedule("0 0 * * *", zone))
    assert problem == f"timeZone {zone!r} is unknown: use an IANA name such as Europe/Berlin"


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 29 2 */7", "0 0 31 2 MON", "0/15 3 * JAN-mar 1-5", "@daily"])
def test_cron_with_rare_dates_is_accepted(cron: str) -> None:
    assert fault(schedule(cron)) is None
    assert list(islice(slots(schedule(cron), NOON, 3), 3))
