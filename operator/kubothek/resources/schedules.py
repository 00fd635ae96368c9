"""When something is done again and again: a cron expression in a time zone, as in ``CronJob`` of batch/v1."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from kubothek.resources.meta import Strict
from kubothek.resources.rules import Rule
from kubothek.resources.values import Duration, parse_duration

_FIELD = r"[0-9*/,\-A-Za-z]+"
CRON_PATTERN = rf"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_FIELD}( +{_FIELD}){{4}})$"


def _at_most(field: str, attribute: str, longest: timedelta, text: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || duration(self.{field}) <= duration('{text}')",
        message=f"{field} is longer than {text}: slots would pile up, choose less",
        holds=lambda self: (value := getattr(self, attribute)) is None or parse_duration(value) <= longest,
    )


class Schedule(Strict):
    """When to start."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _at_most("jitter", "jitter", timedelta(hours=12), "12h"),
        _at_most("startingDeadline", "starting_deadline", timedelta(hours=168), "168h"),
    )

    cron: Annotated[str, StringConstraints(max_length=128, pattern=CRON_PATTERN)]
    """Minute, hour, day of month, month and day of week, as cron has them: `30 2 * * *` is half past two each night.
    Also `@hourly`, `@daily`, `@weekly`, `@monthly`."""
    time_zone: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+\-/]+$")] = (
        "Etc/UTC"
    )
    """The time zone of the clock that `cron` reads, by its IANA name: `Europe/Berlin`."""
    jitter: Duration = "0s"
    """Start up to so much later, by a time that is fixed for each resource and slot: not everything at once."""
    starting_deadline: Duration = "1h"
    """A slot that could not be started this long after its time is skipped."""
