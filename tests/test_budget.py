"""The budget of time of the whole suite: a verdict in CI, a report elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import BUDGET_SECONDS, Budget


@pytest.mark.parametrize(("ci", "exit_code"), [("true", pytest.ExitCode.TESTS_FAILED), ("", pytest.ExitCode.OK)])
def test_suite_over_time_budget_fails_in_ci_only(
    monkeypatch: pytest.MonkeyPatch, ci: str, exit_code: pytest.ExitCode
) -> None:
    monkeypatch.delenv("KUBOTHEK_SOAK", raising=False)
    monkeypatch.setenv("CI", ci)
    budget = Budget()
    budget.started -= BUDGET_SECONDS["all tests"] + 60
    session = cast("Any", SimpleNamespace(exitstatus=pytest.ExitCode.OK))
    budget.pytest_sessionfinish(session)
    assert session.exitstatus == exit_code
    lines: list[str] = []
    budget.pytest_terminal_summary(cast("Any", SimpleNamespace(write_line=lambda line, **_: lines.append(line))))
    assert any(line.startswith("OVER BUDGET all tests") for line in lines)
    assert any("a report, not a verdict" in line for line in lines) == (ci != "true")
