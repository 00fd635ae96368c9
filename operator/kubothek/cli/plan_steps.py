"""Lines of a plan, from what a dry run recorded and the statuses in which it left the resources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubothek.api.commit import Commit
from kubothek.api.conditions import state_of
from kubothek.api.engine import Engine
from kubothek.api.meta import FREEZE_ANNOTATION, Resource
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.cli.plan_commits import subject_of
from kubothek.cli.steps import Outlook, Step, Verb
from kubothek.local.apply import Applied
from kubothek.local.changes import changes
from kubothek.local.context import Objects
from kubothek.local.manifests import Key

_AFTER_OTHERS: Final = ("AwaitingChain", "InputNotReady", "Waiting")
"""Reasons of resources that wait for data which jobs of this plan may bring."""


def steps_of(applied: Applied, objects: Objects, outlooks: Mapping[Key, Sequence[Outlook]]) -> Iterator[Step]:
    """Yield the lines of all resources: by kind, then in the order of their jobs; edits first, then their effects."""
    order = {key: number for number, key in enumerate(outlooks)}
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(key.kind for key in applied.resources))}

    def place(key: Key) -> tuple[int, int]:
        ended = getattr(applied.resources[key], "finished", False)
        return kinds[key.kind], -1 if ended else order.get(key, len(order))

    for key in sorted(applied.resources, key=place):
        state = applied.states.get(key)
        resource = objects[key]
        old = state.load(type(resource), key) if state is not None else None
        if old is not None:
            for change in changes(old.spec, resource.spec):
                effect = f" ({change.effect})" if change.effect else ""
                yield Step(key, Verb.CHANGE, f"{change.path}: {_shown(change.before)} → {_shown(change.after)}{effect}")
        recorded = outlooks.get(key, ())
        yield from (Step(key, each.verb, each.why) for each in recorded)
        last = _last(key, resource)
        blocked = any(each.verb is Verb.BLOCKED for each in recorded)
        if not recorded or (last.verb in (Verb.BLOCKED, Verb.SUSPENDED) and not blocked):
            yield last


def _last(key: Key, resource: Resource) -> Step:
    """Return the step that the status of a resource shows after the dry run."""
    if isinstance(resource, Engine):
        return Step(key, Verb.KEEP, "runs jobs on this machine")
    if resource.frozen:
        return Step(key, Verb.SUSPENDED, f"the annotation {FREEZE_ANNOTATION} is disabled")
    state = state_of(resource.status)
    assert state is not None, "the dry run has reconciled every resource"
    if state.reason == "Suspended":
        return Step(key, Verb.SUSPENDED, "spec.suspend is true")
    if state.abnormal and state.reason not in _AFTER_OTHERS:
        return Step(key, Verb.BLOCKED, f"{state.reason}: {state.message}")
    if isinstance(resource, Repository):
        use = "is pulled from and pushed to" if resource.spec.push else "is pulled from"
        return Step(key, Verb.KEEP, f"{resource.spec.url} {use}")
    if isinstance(resource, Commit) and resource.finished:
        return Step(key, Verb.KEEP, f"is version {resource.status.version} of {subject_of(resource)}")
    if isinstance(resource, Query) and resource.finished:
        return Step(key, Verb.KEEP, f"its rows are {resource.spec.result.target}")
    return Step(key, Verb.KEEP, f"after other jobs: {state.message}" if state.abnormal else state.message)


def _shown(value: object) -> str:
    """Return a value as manifests write it."""
    return value if isinstance(value, str) else json.dumps(value)
