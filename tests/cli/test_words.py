"""Counts and durations in messages."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.api.values import parse_duration
from kubothek.words import count, duration


@pytest.mark.parametrize(
    ("number", "noun", "told"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (336776, "row", "336,776 rows"),
        (2, "Query", "2 Queries"),
        (2, "day", "2 days"),
        (1, "piece of work", "1 piece of work"),
        (3, "piece of work", "3 pieces of work"),
    ],
)
def test_count_uses_singular_or_plural_by_number(number: int, noun: str, told: str) -> None:
    assert count(number, noun) == told


def test_count_with_irregular_noun_uses_given_plural() -> None:
    assert [count(number, "index", "indices") for number in (1, 2)] == ["1 index", "2 indices"]


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (0.25, "0.2s"), (90, "1m30s"), (3600, "1h"), (86400, "24h"), (133200.0, "37h")]
)
def test_duration_is_written_as_parsed_by_manifests(seconds: float, told: str) -> None:
    assert duration(timedelta(seconds=seconds)) == told
    assert abs(parse_duration(told).total_seconds() - seconds) < 0.1
