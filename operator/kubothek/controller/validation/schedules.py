"""Rule about schedules without slots: unknown time zones, dates that never occur."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.meta import Resource
from kubothek.api.rules import parts, render_path
from kubothek.api.schedules import Schedule
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.scheduling.schedule import fault


def timeless(resource: Resource, _: Lookup) -> Iterator[Finding]:
    """Yield a finding for each schedule of a resource that has no slots."""
    for path, part in parts(resource.spec, ("spec",)):
        if isinstance(part, Schedule) and (mistake := fault(part)) is not None:
            yield Finding("InvalidSchedule", render_path(path), mistake)
