"""How a version is named on the command line: by its number, a time at which it was current, a tag, or a block."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class AnyVersion(click.ParamType[int | datetime | str]):
    """``3``, ``2026-11-21T14:00`` (without a zone, UTC), the name of a tag, or the hash of a ledger's
    block, which begin with a letter.
    """

    name = "VERSION|TIME|TAG"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime | str:
        """The number, the moment or the name."""
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
