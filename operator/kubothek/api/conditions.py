"""Conditions by the rules of kstatus, so that `kubectl wait`, Flux and Argo CD understand our resources.

Ready is always present. Reconciling and Stalled are present only while True, and never both. Ready is True when the
present generation is fully realised, Unknown while work is in progress (with Reconciling), else False.
``lastTransitionTime`` changes only with ``status``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kubothek.api.meta import Condition, Status

MESSAGE_LIMIT = 2048
"""Longest message that we write; the schema allows more, but users read messages in a table."""


_PATIENT = ("Suspended", "Waiting", "DependencyNotReady", "ConcurrencyLimit")
"""Reasons for not being ready that are normal and need no warning."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a resource in the terms of kstatus; only the functions below create it."""

    ready: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    abnormal: Literal["Reconciling", "Stalled", ""] = ""
    ended: Literal["Complete", "Failed", ""] = ""
    """For runs: how they ended, as for a Job of batch/v1."""
    damage: Literal["Corrupt", ""] = ""
    """For Datasets and Verifications: data is lost, which reconciliation cannot restore."""

    @property
    def worrying(self) -> bool:
        """Whether entering this state is worth an event of type Warning instead of Normal."""
        return self.abnormal == "Stalled" or (self.ready == "False" and self.reason not in _PATIENT)


def ready(reason: str, message: str) -> State:
    """Return the state of a fully realised spec."""
    return State("True", reason, message)


def progressing(reason: str, message: str) -> State:
    """Return the state of a resource on which work is in progress."""
    return State("Unknown", reason, message, "Reconciling")


def waiting(reason: str, message: str) -> State:
    """Return the state of a resource that can proceed later without an edit: after a dependency or a backoff."""
    return State("False", reason, message, "Reconciling")


def stalled(reason: str, message: str) -> State:
    """Return the state of a resource that can proceed only after a user changes something."""
    return State("False", reason, message, "Stalled")


def corrupt(message: str) -> State:
    """Return the state of lost data: a user must restore it, or accept the loss."""
    return State("False", "Corrupt", message, "Stalled", damage="Corrupt")


def found_corrupt(message: str) -> State:
    """Return the state of a run that has ended and found that data is not what was committed: a user must act."""
    return State("False", "Corrupt", message, "Stalled", "Failed", "Corrupt")


def resting(reason: str, message: str) -> State:
    """Return the state of a resource that is suspended on purpose."""
    return State("False", reason, message)


def complete(reason: str, message: str) -> State:
    """Return the state of a run that succeeded."""
    return State("True", reason, message, ended="Complete")


def failed(reason: str, message: str) -> State:
    """Return the state of a run that failed permanently."""
    return State("False", reason, message, "Stalled", "Failed")


def problem_text(reason: str, message: str) -> str:
    """Return a reason and message as the string that statuses and job results store."""
    return f"{reason}: {message}"


def problem_state(problem: str, *, transient: bool = False) -> State:
    """Return the state of a resource with a problem (``Reason: text``)."""
    reason, _, message = problem.partition(": ")
    return (waiting if transient else stalled)(reason, message)


def state_of(status: Status) -> State | None:
    """Return the state in a status; None if the resource was never reconciled."""
    condition = status.condition("Ready")
    if condition is None:
        return None
    abnormal: Literal["Reconciling", "Stalled", ""] = (
        "Stalled" if status.holds("Stalled") else "Reconciling" if status.holds("Reconciling") else ""
    )
    ended: Literal["Complete", "Failed", ""] = (
        "Complete" if status.holds("Complete") else "Failed" if status.holds("Failed") else ""
    )
    damage: Literal["Corrupt", ""] = "Corrupt" if status.holds("Corrupt") else ""
    return State(condition.status, condition.reason, condition.message, abnormal, ended, damage)


def conditions_of(state: State, previous: Status, generation: int, now: datetime) -> tuple[int, tuple[Condition, ...]]:
    """Return ``observedGeneration`` and the conditions of a state.

    The root ``observedGeneration`` is the last generation whose reconciliation ended, so it changes only when the state
    is Ready or Stalled.
    """
    wanted: list[tuple[str, Literal["True", "False", "Unknown"]]] = [("Ready", state.ready)]
    wanted += [(kind, "True") for kind in (state.abnormal, state.ended, state.damage) if kind]
    conditions = tuple(_condition(kind, status, state, previous, generation, now) for kind, status in wanted)
    is_final = state.ready == "True" or state.abnormal == "Stalled"
    return (generation if is_final else previous.observed_generation), conditions


def _condition(
    kind: str,
    status: Literal["True", "False", "Unknown"],
    state: State,
    previous: Status,
    generation: int,
    now: datetime,
) -> Condition:
    before = previous.condition(kind)
    unmoved = before is not None and before.status == status
    since = before.last_transition_time if before is not None and unmoved else None
    return Condition(
        type=kind,
        status=status,
        reason=state.reason,
        message=state.message[:MESSAGE_LIMIT],
        last_transition_time=since or now.replace(microsecond=0),
        observed_generation=generation,
    )
