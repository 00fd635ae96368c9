"""Two operations at once, the second in between any two calls of the first; and real plateau in between.

Where both land, the rows are those of one after the other. Where what one has read or removes was changed by the
other, it gets Conflict and leaves nothing, or runs again from the new head if it was asked to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.catalog import CommitResult, Dataset, OnConflict
from kubothek.errors import Conflict
from kubothek.table.log import Committed
from tests.faultstore import FaultStore
from tests.table.operations.deeds import BEFORE, DEEDS, copy, done, plateau_appends, prepared, table_in
from tests.table.operations.table import Row, rows

SAME = [
    ("replace 1", "replace 1 too"),
    ("replace 1", "append"),
    ("replace where", "append"),
    ("delete 1", "append"),
    ("delete 1", "overwrite"),
    ("delete rows", "append"),
    ("update", "delete 1"),
    ("upsert", "delete 1"),
    ("upsert", "append key"),
    ("merge", "append"),
    ("rollback", "append"),
    ("overwrite", "append"),
]
"""The second changes what the first depends on."""
RETRIED = [
    ("replace 1", "append"),
    ("delete rows", "append"),
    ("update", "delete 1"),
    ("rollback", "append"),
    ("upsert", "append key"),
    ("upsert", "delete 1"),
    ("merge", "append"),
]
APART = [
    ("append", "append too"),
    ("append", "replace 1"),
    ("append", "overwrite"),
    ("replace 1", "replace 2"),
    ("replace where", "replace 2"),
    ("delete 1", "replace 2"),
    ("upsert", "append"),
    ("upsert", "replace 2"),
]
"""It does not."""


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.table.log.settle._LONGEST_PAUSE", 0.0)


class Race:
    """``first``, with ``second`` ahead of any of its calls."""

    def __init__(self, tmp_path: Path, first: str, second: str) -> None:
        self._tmp = tmp_path
        self._names = first, second
        prepared(tmp_path / "lake")
        counting = FaultStore(copy(tmp_path / "lake", tmp_path / "counted"))
        DEEDS[first](table_in(counting), "Fail")
        self.calls = len(counting.calls)

    def after(self, *names: str) -> list[Row]:
        """The rows after these operations one after the other."""
        return done(self._tmp / "lake", self._tmp / " then ".join(names), *names)

    def run(self, at: int, on_conflict: OnConflict) -> tuple[CommitResult | Conflict, Dataset, FaultStore]:
        """The second comes ahead of call number ``at``; what became of the first."""
        first, second = self._names
        root = self._tmp / f"{at} {on_conflict}"
        walked = FaultStore(copy(self._tmp / "lake", root))

        def before_call(_name: str, _key: str) -> None:
            if len(walked.calls) != at:
                return
            if second == "plateau":
                plateau_appends(root)
            else:
                DEEDS[second](table_in(walked.inner), "Fail")

        walked.before_call = before_call
        table = table_in(walked.inner)
        try:
            return DEEDS[first](table_in(walked), on_conflict), table, walked
        except Conflict as error:
            return error, table, walked


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), SAME)
def test_concurrent_change_of_same_rows_is_conflict(tmp_path: Path, first: str, second: str) -> None:
    race = Race(tmp_path, first, second)
    only_second, in_turn = race.after(second), (race.after(first, second), race.after(second, first))
    conflicts = 0
    for at in range(1, race.calls + 1):
        outcome, table, _ = race.run(at, "Fail")
        if isinstance(outcome, Conflict):
            conflicts += 1
            reasons = ("month=", "no longer in the table", "changed rows", "rows were added or removed")
            assert any(reason in str(outcome) for reason in reasons), outcome
            assert rows(table) == only_second, at
        else:
            assert rows(table) in in_turn, at
    assert 0 < conflicts < race.calls


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), RETRIED)
def test_conflict_with_retry_policy_is_applied_in_sequence(tmp_path: Path, first: str, second: str) -> None:
    race = Race(tmp_path, first, second)
    in_turn = (race.after(first, second), race.after(second, first))
    for at in range(1, race.calls + 1):
        outcome, table, _ = race.run(at, "Retry")
        assert isinstance(outcome, Committed), at
        assert rows(table) in in_turn, at
        assert table.version == 5
        assert table.snapshot().totals is not None
        assert table.rows == len(rows(table))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), APART)
def test_disjoint_concurrent_changes_both_land_without_rewriting_data(tmp_path: Path, first: str, second: str) -> None:
    race = Race(tmp_path, first, second)
    in_turn = (race.after(first, second), race.after(second, first))
    rebased = 0
    for at in range(1, race.calls + 1):
        outcome, table, walked = race.run(at, "Fail")
        assert isinstance(outcome, Committed), (at, outcome)
        assert rows(table) in in_turn, at
        rebased += outcome.rebased
        files = [call.key for call in walked.calls if call.name == "put" and "/table/month=" in call.key]
        assert len(files) == outcome.added.files
    assert rebased > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["replace 1", "replace 2", "delete 1", "update", "merge", "rollback", "overwrite", "append"]
)
def test_foreign_write_between_operations_is_treated_as_commit(tmp_path: Path, first: str) -> None:
    """Plateau reads the head and puts its own, with another row of month 1, ahead of any call."""
    race = Race(tmp_path, first, "plateau")
    alone, row = race.after(first), (1, "PP", 1)
    apart = first in ("replace 2", "append")
    conflicts = 0
    for at in range(1, race.calls + 1):
        outcome, table, _ = race.run(at, "Fail")
        if isinstance(outcome, Conflict):
            conflicts += 1
            assert rows(table) == sorted([*BEFORE, row], key=repr), at
        else:
            # It came first, and was replaced, or last: then its row is there, beside ours.
            assert rows(table) in (alone, sorted([*alone, row], key=repr)), at
            assert row in rows(table) or not apart
    assert (conflicts > 0) is not apart
