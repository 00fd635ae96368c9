"""Durations on the command line."""

from __future__ import annotations

import re
from datetime import timedelta

import click

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


class Duration(click.ParamType[timedelta]):
    """``7d``, ``36h``, ``1d12h``: whole numbers of weeks, days, hours, minutes and seconds, the largest first."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration."""
        text = str(value)
        match = re.fullmatch("".join(rf"(?:(?P<{unit}>\d{{1,6}}){unit})?" for unit in _UNITS), text)
        if not match or not text:
            self.fail(f"{text!r} is not a duration: write 7d, 36h or 1d12h", param, ctx)
        return timedelta(**{_UNITS[unit]: int(count) for unit, count in match.groupdict().items() if count})
