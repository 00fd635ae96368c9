"""Schedules: a cron expression in a time zone, as in ``CronJob`` of batch/v1."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Duration, parse_duration

LEAST_DEADLINE = timedelta(minutes=1)


def _field(value: str) -> str:
    """Return the pattern of one field of a cron expression: values, ranges and steps, separated by commas."""
    item = f"([*]|({value})(-({value}))?)(/[1-9][0-9]?)?"
    return f"{item}(,{item})*"


_FIELDS = (
    "[0-5]?[0-9]",
    "[01]?[0-9]|2[0-3]",
    "0?[1-9]|[12][0-9]|3[01]",
    "0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
    "[0-7]|sun|mon|tue|wed|thu|fri|sat",
)
CRON_PATTERN = f"(?i)^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{' +'.join(map(_field, _FIELDS))})$"
"""A match may still have no time, such as 30 February: see :func:`kubothek.controller.scheduling.schedule.fault`."""


def _at_most(field: str, attribute: str, longest: timedelta, text: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || duration(self.{field}) <= duration('{text}')",
        message=f"{field} is longer than {text}: slots would pile up, choose less",
        holds=lambda self: (value := getattr(self, attribute)) is None or parse_duration(value) <= longest,
    )


class Schedule(Strict):
    """A schedule: its slots, and how late a start may be."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _at_most("jitter", "jitter", timedelta(hours=12), "12h"),
        _at_most("startingDeadline", "starting_deadline", timedelta(hours=168), "168h"),
        Rule(
            cel=f"self.cron.matches('{CRON_PATTERN}')",
            message="cron is no cron expression of five fields: write minute, hour, day of month, month and day of "
            "week, such as 30 2 * * *, or @daily",
            holds=lambda self: re.fullmatch(CRON_PATTERN, self.cron) is not None,
        ),
        Rule(
            cel="!has(self.startingDeadline) || duration(self.startingDeadline) >= duration('1m')",
            message="startingDeadline is shorter than 1m: slots would be skipped by chance, choose more",
            holds=lambda self: parse_duration(self.starting_deadline) >= LEAST_DEADLINE,
        ),
    )

    cron: Annotated[str, StringConstraints(max_length=128)]
    """Minute, hour, day of month, month and day of week, as in cron: `30 2 * * *` is 02:30 each day. Also `@hourly`,
    `@daily`, `@weekly`, `@monthly`, `@yearly`."""
    time_zone: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+\-/]+$")] = (
        "Etc/UTC"
    )
    """The time zone of `cron`, by its IANA name: `Europe/Berlin`."""
    jitter: Duration = "0s"
    """Maximum delay of a start, to spread the load; the delay is pseudo-random by resource and slot. At most 12h."""
    starting_deadline: Duration = "1h"
    """A slot that cannot start within this time is skipped. From 1m to 168h."""
