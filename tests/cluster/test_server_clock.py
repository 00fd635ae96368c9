"""The operator's time is the API server's, whatever becomes of its own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from kubothek.cluster.api import Api, ServerClock
from tests.cluster.harness import Clock

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def test_server_clock_keeps_correct_local_clock() -> None:
    ticks = Clock()
    clock = ServerClock(lambda: NOON + timedelta(milliseconds=700), ticks)
    clock.heard(date(NOON), sent=0)
    clock.heard(None, sent=0)
    ticks.now = 30.0  # a slow answer: told after 10 of its 30 seconds
    clock.heard(date(NOON + timedelta(seconds=10)), sent=0)
    assert clock() == NOON + timedelta(seconds=30, milliseconds=700)


def test_server_clock_corrects_wrong_local_clock() -> None:
    for off in (timedelta(hours=1), -timedelta(hours=1)):
        ticks = Clock()
        clock = ServerClock(lambda off=off: NOON + off, ticks)  # type: ignore[misc]
        clock.heard(date(NOON), sent=0)
        ticks.now = 5.0
        assert clock() == NOON + timedelta(seconds=5)


def test_server_clock_ignores_invalid_date_header() -> None:
    clock = ServerClock(lambda: NOON, Clock())
    for told in (None, "", "soon", "Mon, 99 Foo 2026 12:00:00 GMT", "Mon, 23 Nov 2026 12:00:01 -0000"):
        clock.heard(told, sent=0)
    assert clock() == NOON


async def test_server_clock_is_updated_by_every_response(api: Api) -> None:
    api.clock = ServerClock(lambda: datetime.now(UTC) + timedelta(hours=1))
    await api.get("Lease", "default", "none")
    assert abs(api.clock() - datetime.now(UTC)) < timedelta(minutes=10)
