"""How a version is named on the command line: by its number, by a time at which it was current, or by a tag."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class AnyVersion(click.ParamType[int | datetime | str]):
    """``3``, ``2026-11-21T14:00`` (without a zone, UTC), or the name of a tag, which begins with a letter."""

    name = "VERSION|TIME|TAG"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime | str:
        """The number, the moment or the name."""
        text = str(value)
        if text[:1].isalpha():
            return text
        if text.isdigit():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is neither a version number nor a time like 2026-11-21T14:00, nor a tag", param, ctx)
