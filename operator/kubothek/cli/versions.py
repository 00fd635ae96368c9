"""Versions on the command line: a number, a time at which the version was current, a tag, or a block."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class AnyVersion(click.ParamType[int | datetime | str]):
    """``3``, ``2026-11-21T14:00`` (without a zone, UTC), or a tag or block hash, which begin with a letter."""

    name = "VERSION|TIME|TAG"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime | str:
        """Return the number, the time or the name."""
        text = str(value)
        if text[:1].isalpha():
            return text
        if text.isdigit():
            return int(text)
        moment = _moment(text)
        if moment is None:
            self.fail(f"{text!r} is neither a version number nor a time like 2026-11-21T14:00, nor a tag", param, ctx)
        return moment


class EventTime(click.ParamType[datetime]):
    """``2026-11-21T14:00``; without a zone, UTC."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment."""
        moment = _moment(str(value))
        if moment is None:
            self.fail(f"{value!r} is not a time like 2026-11-21T14:00", param, ctx)
        return moment


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
