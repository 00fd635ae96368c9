"""Everything that can prevent the launch of an attempt, and the state while its job exists."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kubothek.api.conditions import State, stalled, waiting
from kubothek.api.engine import Engine
from kubothek.api.meta import Resource
from kubothek.controller.context import AwaitSlot, Context, JobPhase, LaunchJob
from kubothek.controller.references import Blocked
from kubothek.controller.scheduling.attempts import ENGINE_FAULTS, Active
from kubothek.controller.scheduling.concurrency import admit, job_slot_of

REFUSALS = {
    # reason: (whether only a user can resolve it, when to try again)
    "AdmissionDenied": (True, timedelta(minutes=5)),
    "NamespaceTerminating": (True, timedelta(minutes=5)),
    "PodInvalid": (True, timedelta(minutes=5)),
    "QuotaExceeded": (False, timedelta(seconds=30)),
    "ServiceAccountNotFound": (False, timedelta(seconds=30)),
}
"""Reasons for which the API server may refuse a pod; all others count as temporary."""
SILENT = frozenset({"NodeLost"})
"""Reasons why a running job is no longer observed."""
_ANY_REFUSAL = (False, timedelta(seconds=30))


def suspended(launch: LaunchJob) -> State | None:
    """Return the state while the launch's Engine is suspended, or None. An edit of the Engine wakes its users."""
    engine, job = launch.engine, launch.job
    takes_slot = job_slot_of(job.verb, launch.owner.namespace, job.store.name) is not None
    if not isinstance(engine, Engine) or not engine.spec.suspend or not takes_slot:
        return None
    message = f"nothing is started on Engine {engine.name!r} while its spec.suspend is true"
    return waiting("DependencyNotReady", message)


def held_back(launch: LaunchJob, context: Context) -> tuple[Blocked, AwaitSlot] | None:
    """Return what a launch waits for, and the action to wait, if the operator's limits hold it back; otherwise None."""
    slot = job_slot_of(launch.job.verb, launch.owner.namespace, launch.job.store.name)
    blocked = admit(slot, context.settings.limits, context.load) if slot is not None else None
    if slot is None or blocked is None:
        return None
    return blocked, AwaitSlot(slot)


def refused(name: str, owner: Resource, context: Context) -> Blocked | None:
    """Return why the last try to start this job was refused, or None."""
    refusal = context.launch_refusal(owner.namespace, name)
    if refusal is None:
        return None
    reason, message = refusal
    for_good, again = REFUSALS.get(reason, _ANY_REFUSAL)
    return Blocked(stalled(reason, message) if for_good else waiting(reason, message), again)


def under_way(active: Active, doing: State) -> State:
    """Return the state while a job exists: it runs, starts, or makes no progress."""
    view = active.view
    if not view.reason or (view.phase is JobPhase.RUNNING and view.reason not in SILENT):
        return with_setback(doing, active.setback)
    return (stalled if view.reason in ENGINE_FAULTS else waiting)(view.reason, view.message)


def with_setback(doing: State, setback: str | None) -> State:
    """Add the failure of the previous attempt to the state's message."""
    return doing if setback is None else replace(doing, message=f"{doing.message}; the attempt before ended: {setback}")
