"""Which versions are kept: pure arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubothek.errors import InputError
from kubothek.gc.retention import Retention, is_retained, may_be_read

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 29, 3, tzinfo=UTC)
DAY = timedelta(days=1)


def kept(*policies: Retention, stopped: list[datetime | None]) -> list[int]:
    """Which of these versions stay, by how many are newer."""
    return [n for n, at in enumerate(stopped) if is_retained(policies, newer=n, stopped=at, now=NOW)]


DAILY: list[datetime | None] = [None, *(NOW - n * DAY for n in range(1, 10))]


def test_retention_by_number_keeps_newest_versions() -> None:
    assert kept(Retention(versions=3), stopped=DAILY) == [0, 1, 2]
    assert kept(Retention(versions=1), stopped=DAILY) == [0]


def test_retention_by_age_counts_from_replacement_of_version() -> None:
    assert kept(Retention(time=2 * DAY), stopped=DAILY) == [0, 1, 2]
    assert kept(Retention(time=timedelta(0)), stopped=DAILY) == [0]


def test_retention_keeps_versions_of_either_rule() -> None:
    assert kept(Retention(versions=2, time=4 * DAY), stopped=DAILY) == [0, 1, 2, 3, 4]
    assert kept(Retention(versions=6, time=1 * DAY), stopped=DAILY) == [0, 1, 2, 3, 4, 5]


def test_retention_keeps_versions_of_any_policy() -> None:
    assert kept(Retention(versions=2), Retention(time=3 * DAY), stopped=DAILY) == [0, 1, 2, 3]
    assert kept(Retention(versions=2), Retention(), stopped=DAILY) == list(range(10))


def test_retention_keeps_present_version_of_any_age() -> None:
    assert is_retained([Retention(versions=1)], newer=0, stopped=None, now=NOW)
    assert is_retained([Retention(time=timedelta(0))], newer=5, stopped=None, now=NOW)


def test_retention_time_is_absolute_across_clock_changes() -> None:
    """Clocks in Berlin went forward two hours ago; two days are 48 hours."""
    berlin_before = datetime.fromisoformat("2026-03-27T04:00:00+01:00")
    berlin_after = datetime.fromisoformat("2026-03-29T05:00:00+02:00")
    rule = Retention(time=2 * DAY)
    assert rule.keeps(newer=1, stopped=berlin_before, now=berlin_after)
    assert not rule.keeps(newer=1, stopped=berlin_before, now=berlin_after + timedelta(seconds=1))


@pytest.mark.parametrize(("replaced", "readable"), [(1.5, True), (1.51, False), (0.1, True)])
def test_version_is_readable_for_grace_period_after_latest_possible_swap(replaced: float, readable: bool) -> None:
    assert may_be_read(replaced=NOW - replaced * DAY, now=NOW, grace=DAY) is readable


def test_version_written_by_fast_clock_is_not_old() -> None:
    """The machine that wrote it is an hour ahead of the store."""
    later = NOW + timedelta(hours=1)
    assert may_be_read(replaced=later, now=NOW, grace=DAY)
    assert Retention(time=timedelta(0)).keeps(newer=1, stopped=later, now=NOW)


@pytest.mark.parametrize("wrong", [{"versions": 0}, {"versions": -1}, {"time": timedelta(seconds=-1)}])
def test_retention_with_invalid_rule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Retention(**wrong)  # type: ignore[arg-type]
