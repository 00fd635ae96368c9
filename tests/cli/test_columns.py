"""Text in the width of a terminal, the pager, and ages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.cli.columns import age, fitted
from kubothek.cli.output import print_lines
from tests.cli.test_output import a_terminal


@pytest.mark.parametrize("columns", [1, 2, 3, 10, 29])
def test_fitted_table_stays_within_width(columns: int) -> None:
    names = [f"c{number}" for number in range(columns)]
    rows = [["v" * (number % 40) for number in range(columns)]] * 11
    assert max(map(len, fitted(names, rows, (), 70))) <= 70


def test_long_output_on_terminal_uses_pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.delenv("LESS", raising=False)
    monkeypatch.setenv("PAGER", f"sh -c 'echo $LESS > {tmp_path}/less; cat > {tmp_path}/out'")
    print_lines(map(str, range(23)))
    assert (len(terminal.getvalue().splitlines()), list(tmp_path.iterdir())) == (23, [])
    print_lines(map(str, range(24)))
    assert (tmp_path / "out").read_text().splitlines() == [str(number) for number in range(24)]
    assert (tmp_path / "less").read_text() == "FRX\n"


def test_pager_closed_early_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    a_terminal(monkeypatch)
    monkeypatch.setenv("PAGER", "true")
    print_lines("x" * 100_000 for _ in range(50))


def test_age_uses_largest_unit_with_value_of_two_or_more() -> None:
    now = datetime.now(UTC)
    spans = [timedelta(seconds=5), timedelta(minutes=119), timedelta(hours=47), timedelta(days=400)]
    assert [age(now - span) for span in spans] == ["5s", "119m", "47h", "400d"]
    assert age(None) == "-"
