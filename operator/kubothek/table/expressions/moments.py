"""Dates and timestamps in text, in ISO form only."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,6}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


def parse_date(text: str) -> date:
    """Parse ``2019-07-28``. Raise ValueError for other forms."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"{text!r} is no date YYYY-MM-DD")
    return date.fromisoformat(text)


def parse_timestamp(text: str) -> datetime:
    """Parse ``2019-07-28 12:30:00.123456``, with ``+02:00`` or ``Z`` if it has a zone; a date is its midnight.

    Raises ValueError, also for digits beyond microseconds, which no table stores.
    """
    if _DATE.fullmatch(text):
        return datetime.fromisoformat(text)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp YYYY-MM-DD hh:mm:ss[.ffffff][±hh:mm]")
    day, clock, fraction, zone = match.groups()
    seconds = "" if clock.count(":") == 2 else ":00"
    return datetime.fromisoformat(f"{day} {clock}{seconds}.{(fraction or '').ljust(6, '0')}{zone or ''}")
