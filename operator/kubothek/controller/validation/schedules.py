"""Rule about schedules without slots: unknown time zones, dates that never occur."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from kubothek.api.meta import Resource
from kubothek.api.rules import Path, render_path
from kubothek.api.schedules import Schedule
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.scheduling.schedule import fault


def timeless(resource: Resource, _: Lookup) -> Iterator[Finding]:
    """Yield a finding for each schedule of a resource that has no slots."""
    for path, schedule in _within(resource.spec, ("spec",)):
        mistake = fault(schedule)
        if mistake is not None:
            yield Finding("InvalidSchedule", path, mistake)


def _within(model: BaseModel, at: Path) -> Iterator[tuple[str, Schedule]]:
    for name, info in type(model).model_fields.items():
        here, value = (*at, info.alias or name), getattr(model, name)
        if isinstance(value, Schedule):
            yield render_path(here), value
        elif isinstance(value, BaseModel):
            yield from _within(value, here)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Schedule):
                    yield render_path((*here, index)), item
                elif isinstance(item, BaseModel):
                    yield from _within(item, (*here, index))
