"""Conditions as kstatus reads them, so that `kubectl wait`, Flux and Argo CD need to know nothing about us.

Ready is always there. Reconciling and Stalled are there only while True, and never both. Ready is True when the present
generation is fully realised, Unknown only in mid-flight (with Reconciling), else False. ``lastTransitionTime`` moves
only when ``status`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kubothek.api.meta import Condition, Status

MESSAGE_LIMIT = 2048
"""Longest message that we write; the schema would allow more, but people read it in a table."""


_PATIENT = ("Suspended", "Waiting", "DependencyNotReady", "ConcurrencyLimit")
"""Reasons for not being ready that are part of the normal course of things."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a resource in the terms of kstatus; made by the functions below only."""

    ready: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    abnormal: Literal["Reconciling", "Stalled", ""] = ""
    ended: Literal["Complete", "Failed", ""] = ""
    """For runs: how they ended, in the sense of a Job of batch/v1."""
    damage: Literal["Corrupt", ""] = ""
    """For Datasets, and what verifies them: data is lost, which no reconciling brings back."""

    @property
    def worrying(self) -> bool:
        """Whether a person should be warned, rather than told, when this state is entered."""
        return self.abnormal == "Stalled" or (self.ready == "False" and self.reason not in _PATIENT)


def ready(reason: str, message: str) -> State:
    """The spec is fully realised."""
    return State("True", reason, message)


def progressing(reason: str, message: str) -> State:
    """Something is being done right now."""
    return State("Unknown", reason, message, "Reconciling")


def waiting(reason: str, message: str) -> State:
    """Nothing can be done now, but may be later without an edit of this resource: a dependency, a retry."""
    return State("False", reason, message, "Reconciling")


def stalled(reason: str, message: str) -> State:
    """Nothing will happen until a person changes something."""
    return State("False", reason, message, "Stalled")


def corrupt(message: str) -> State:
    """Data is lost: a person must put it back, or do without it."""
    return State("False", "Corrupt", message, "Stalled", damage="Corrupt")


def found_corrupt(message: str) -> State:
    """A run has found that data is not what was committed: it is through, and a person must act."""
    return State("False", "Corrupt", message, "Stalled", "Failed", "Corrupt")


def resting(reason: str, message: str) -> State:
    """Not realised, and on purpose: suspended."""
    return State("False", reason, message)


def complete(reason: str, message: str) -> State:
    """A run has done what it was for."""
    return State("True", reason, message, ended="Complete")


def failed(reason: str, message: str) -> State:
    """A run is given up for good."""
    return State("False", reason, message, "Stalled", "Failed")


def problem_text(reason: str, message: str) -> str:
    """A reason and message in the one string that statuses and job results keep."""
    return f"{reason}: {message}"


def problem_state(problem: str, *, transient: bool = False) -> State:
    """The state that a problem (``Reason: text``) leaves a resource in."""
    reason, _, message = problem.partition(": ")
    return (waiting if transient else stalled)(reason, message)


def state_of(status: Status) -> State | None:
    """The state that a status tells of; None if nobody has looked at the resource yet."""
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
    """``observedGeneration`` and the conditions of a state.

    The root ``observedGeneration`` says which generation was dealt with to the end, so it moves only when the state is
    Ready or Stalled.
    """
    wanted: list[tuple[str, Literal["True", "False", "Unknown"]]] = [("Ready", state.ready)]
    wanted += [(kind, "True") for kind in (state.abnormal, state.ended, state.damage) if kind]
    conditions = tuple(_condition(kind, status, state, previous, generation, now) for kind, status in wanted)
    settled = state.ready == "True" or state.abnormal == "Stalled"
    return (generation if settled else previous.observed_generation), conditions


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
