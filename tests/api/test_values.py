"""Durations, quantities and sizes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.api.values import parse_duration, parse_quantity, render_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("0.5s", 0.5), ("250ms", 0.25), ("1m1m", 120), ("10m", 600), ("1.5h", 5400)],
)
def test_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "1d", "-1s", "1 s", "1h30", "1s\n"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        (0, 0),
        (5, 5),
        ("5", 5),
        ("1k", 1000),
        ("1Ki", 1024),
        ("128Mi", 2**27),
        ("1.5Gi", 3 * 2**29),
        ("2T", 2 * 10**12),
        ("1Ti", 2**40),
    ],
)
def test_quantity_is_parsed(quantity: int | str, size: int) -> None:
    assert parse_quantity(quantity) == size


@pytest.mark.parametrize("quantity", ["", "4g", "1K", "Mi", "-1", -1, "1e3", "1Mi\n", "1.Mi"])
def test_invalid_quantity_is_refused(quantity: int | str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(quantity)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (15 * 1024, "15.0 KiB"),
        (2**30, "1.00 GiB"),
        (700 * 2**40, "700 TiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_size_is_rendered_for_people(size: int, text: str) -> None:
    assert render_bytes(size) == text
