"""How often, and how soon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.api.engine import Engine, EngineSpec, Retry
from kubothek.api.meta import ObjectMeta
from kubothek.controller.context import FailureClass
from kubothek.controller.scheduling.retries import DISRUPTION_LIMIT, Budget, budget_of

RETRY, REPORT, INFRASTRUCTURE = FailureClass.RETRY, FailureClass.REPORT, FailureClass.INFRASTRUCTURE


def test_retry_delay_doubles_up_to_maximum() -> None:
    budget = Budget(initial=timedelta(seconds=2), maximum=timedelta(seconds=15))
    assert [budget.delay(n).total_seconds() for n in (1, 2, 3, 4, 5, 10_000)] == [2, 4, 8, 15, 15, 15]


@pytest.mark.parametrize(
    ("failure", "failures", "disruptions", "allowed"),
    [
        (REPORT, 0, 0, False),
        (RETRY, 3, 0, True),
        (RETRY, 4, 0, False),
        (RETRY, 3, 99, True),
        (INFRASTRUCTURE, 99, DISRUPTION_LIMIT, True),
        (INFRASTRUCTURE, 0, DISRUPTION_LIMIT + 1, False),
    ],
)
def test_retry_budget_is_separate_for_each_failure_class(
    failure: FailureClass, failures: int, disruptions: int, allowed: bool
) -> None:
    assert Budget(limit=3).allows(failure, failures=failures, disruptions=disruptions) is allowed


def test_retry_budget_without_limit_ends_on_permanent_failure_only() -> None:
    budget = Budget(limit=None)
    assert budget.allows(RETRY, failures=10**6, disruptions=10**6)
    assert not budget.allows(REPORT, failures=0, disruptions=0)


def test_retry_limit_of_run_overrides_engine_and_operator() -> None:
    engine = Engine(metadata=ObjectMeta(name="e"), spec=EngineSpec(retry=Retry(limit=7)))
    assert budget_of(None).limit == 3
    assert budget_of(engine).limit == 7
    assert budget_of(engine, 0).limit == 0
    assert budget_of(None, 9).limit == 9
    assert budget_of(engine).maximum == timedelta(minutes=5)
