"""How a version is named on the command line: by its number, or by a time at which it was current."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class VersionOrTime(click.ParamType[int | datetime]):
    """``3``, or ``2026-11-21T14:00``; without a zone, UTC."""

    name = "VERSION|TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | datetime:
        """The number or the moment."""
        text = str(value)
        if text.isdigit():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is neither a version number nor a time like 2026-11-21T14:00", param, ctx)
