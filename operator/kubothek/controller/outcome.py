"""Construction of the outcome that a runtime carries out."""

from __future__ import annotations

from datetime import timedelta

from kubothek.api.conditions import State, conditions_of, state_of
from kubothek.api.meta import Resource, Status
from kubothek.controller.context import Action, Context, Event, Outcome


def conclude(
    resource: Resource,
    context: Context,
    state: State,
    status: Status | None = None,
    *,
    actions: tuple[Action, ...] = (),
    events: tuple[Event, ...] = (),
    again: timedelta | None = None,
) -> Outcome:
    """Return the outcome with this state. ``status`` is the status to publish, its conditions excepted; default:
    unchanged.

    A transition (another Ready status or reason than before) emits one event.
    """
    generation, conditions = conditions_of(state, resource.status, resource.metadata.generation, context.now)
    published = (status or resource.status).model_copy(
        update={"observed_generation": generation, "conditions": conditions}
    )
    return Outcome(
        status=render(published),
        actions=actions,
        events=(*events, *transition(state, resource.status)),
        requeue_after=again,
    )


def unchanged(resource: Resource, *, actions: tuple[Action, ...] = (), events: tuple[Event, ...] = ()) -> Outcome:
    """Return the outcome that leaves the status as it is."""
    return Outcome(status=render(resource.status), actions=actions, events=events)


def render(status: Status) -> dict[str, object]:
    """Return a status as JSON."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def transition(state: State, previous: Status) -> tuple[Event, ...]:
    """Return the event of entering a state; empty if the previous state had the same Ready status and reason."""
    before = state_of(previous)
    if before is not None and (before.ready, before.reason) == (state.ready, state.reason):
        return ()
    return (Event("Warning" if state.worrying else "Normal", state.reason, state.message),)
