"""The versions that a statement reads: of Queries and of Commits whose rows are those of a SELECT."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field, StringConstraints

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Duration, TagName

Moment = Annotated[
    str,
    StringConstraints(
        max_length=40,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$",
    ),
]
DEFAULT_TIME_LIMIT: Final[Duration] = "1h"
"""Maximum duration of a statement, if its resource gives none."""
Statement = Annotated[str, StringConstraints(min_length=1, max_length=65536)]


class AsOf(Strict):
    """The version to read: exactly one of `version`, `time` and `tag`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.version) ? 1 : 0) + (has(self.time) ? 1 : 0) + (has(self.tag) ? 1 : 0) == 1",
            message="asOf has a version, a time or a tag: set exactly one of them",
            holds=lambda self: [self.version, self.time, self.tag].count(None) == 2,
        ),
    )

    version: Annotated[int | None, Field(ge=1)] = None
    """The version of every dataset that the statement names."""
    time: Moment | None = None
    """A time at which the versions were current, with a time zone: `2026-11-21T14:00:00Z`."""
    tag: TagName | None = None
    """The tag of the version, which every dataset that the statement names must have."""
