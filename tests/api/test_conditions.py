"""Conditions: what each state publishes, what kstatus makes of it, and what moves when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubothek.api.conditions import (
    MESSAGE_LIMIT,
    State,
    complete,
    conditions_of,
    failed,
    problem_state,
    problem_text,
    progressing,
    ready,
    resting,
    stalled,
    state_of,
    waiting,
)
from kubothek.api.meta import Status
from tests import kstatus

NOW = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
STATES = {
    "Current": [ready("Succeeded", "m"), complete("Succeeded", "m")],
    "InProgress": [progressing("Progressing", "m"), waiting("Waiting", "m"), resting("Suspended", "m")],
    "Failed": [stalled("InvalidSpec", "m"), failed("SourceNotFound", "m")],
}
EVERY = [(expected, state) for expected, states in STATES.items() for state in states]


def publish(state: State, previous: Status | None = None, generation: int = 1, now: datetime = NOW) -> Status:
    observed, conditions = conditions_of(state, previous or Status(), generation, now)
    return Status(observed_generation=observed, conditions=conditions)


def dump(status: Status) -> dict[str, object]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize(("expected", "state"), EVERY)
def test_published_state_matches_kstatus(expected: str, state: State) -> None:
    published = dump(publish(state))
    assert kstatus.compute({"metadata": {"generation": 1}, "status": published}) == expected


@pytest.mark.parametrize(("_", "before"), EVERY)
@pytest.mark.parametrize(("__", "after"), EVERY)
def test_state_transition_keeps_condition_invariants(_: str, before: State, __: str, after: State) -> None:
    first = publish(before)
    second = publish(after, first, generation=2, now=NOW + timedelta(minutes=1))
    assert kstatus.check(2, dump(second), dump(first)) == []


@pytest.mark.parametrize(("_", "state"), EVERY)
def test_published_state_can_be_read_back(_: str, state: State) -> None:
    assert state_of(publish(state)) == state


def test_empty_status_has_no_state() -> None:
    assert state_of(Status()) is None


def test_transition_time_changes_with_condition_status_only() -> None:
    first = publish(waiting("A", "a"))
    later = NOW + timedelta(hours=1)
    second = publish(waiting("B", "b"), first, now=later)
    assert {c.last_transition_time for c in second.conditions} == {NOW.replace(microsecond=0)}
    third = publish(progressing("C", "c"), second, now=later)
    times = {c.type: c.last_transition_time for c in third.conditions}
    assert times == {"Ready": later.replace(microsecond=0), "Reconciling": NOW.replace(microsecond=0)}


@pytest.mark.parametrize(("expected", "state"), EVERY)
def test_observed_generation_advances_only_when_generation_is_handled(expected: str, state: State) -> None:
    old = publish(ready("Succeeded", "m"), generation=3)
    assert publish(state, old, generation=4).observed_generation == (3 if expected == "InProgress" else 4)


def test_edited_resource_is_in_progress_until_reconciled() -> None:
    status = dump(publish(ready("Succeeded", "m"), generation=1))
    assert kstatus.compute({"metadata": {"generation": 2}, "status": status}) == "InProgress"


def test_long_condition_message_is_truncated() -> None:
    assert len(publish(stalled("A", "x" * 10_000)).conditions[0].message) == MESSAGE_LIMIT


def test_problem_state_survives_text_roundtrip() -> None:
    assert problem_state(problem_text("AccessDenied", "no: not you")) == stalled("AccessDenied", "no: not you")
    assert problem_state("StoreUnavailable: x", transient=True) == waiting("StoreUnavailable", "x")


@pytest.mark.parametrize(
    ("state", "worrying"),
    [
        (ready("Succeeded", ""), False),
        (progressing("Progressing", ""), False),
        (waiting("Waiting", ""), False),
        (waiting("DependencyNotReady", ""), False),
        (resting("Suspended", ""), False),
        (waiting("StoreUnavailable", ""), True),
        (stalled("DependencyNotReady", ""), True),
        (failed("SourceEmpty", ""), True),
    ],
)
def test_state_that_needs_user_attention_is_worrying(state: State, worrying: bool) -> None:
    assert state.worrying is worrying


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ([], "Ready is always present"),
        ([("Ready", "True"), ("Stalled", "True")], "nothing negative while Ready"),
        ([("Ready", "Unknown")], "Ready is Unknown only while Reconciling"),
        ([("Ready", "False"), ("Stalled", "False")], "all but Ready are there only while True"),
        (
            [("Ready", "False"), ("Stalled", "True"), ("Reconciling", "True")],
            "Reconciling and Stalled exclude each other",
        ),
        ([("Ready", "False"), ("Complete", "True")], "Complete means Ready"),
        ([("Ready", "False"), ("Failed", "True")], "Failed means Stalled"),
    ],
)
def test_kstatus_checker_finds_invalid_conditions(broken: list[tuple[str, str]], rule: str) -> None:
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "R",
            "message": "m",
            "lastTransitionTime": "t",
            "observedGeneration": 1,
        }
        for kind, status in broken
    ]
    assert rule in kstatus.check(1, {"observedGeneration": 1, "conditions": conditions})
