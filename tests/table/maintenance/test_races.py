"""Compaction and another commit at once, the second in between any two calls of the first; and real plateau.

Compaction never fails: what another commit took first is left out. And nobody fails because of compaction: a commit
whose files it took is made anew, for the same rows in other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import Conflict
from kubothek.storage import StoreConfig, open_store
from kubothek.table.indexes import IndexKind
from kubothek.table.log import DatasetLog
from kubothek.table.log.update_indexes import reindex
from tests.faultstore import FaultStore
from tests.table.maintenance.table import ROWS, filled
from tests.table.operations.deeds import copy, plateau_appends, table_in
from tests.table.operations.table import Row, flights, rows

pytestmark = pytest.mark.slow

Deed = Callable[[Dataset], Any]

DEEDS: Final[Mapping[str, Deed]] = {
    "append": lambda t: t.append(flights((1, "NN", 1), (4, "NN", 4)), id="append"),
    "replace 1": lambda t: t.replace(flights((1, "RR", 1)), id="replace"),
    "replace where": lambda t: t.replace(flights((2, "WW", 1)), where="month IN (2, 9)", id="where"),
    "delete 1": lambda t: t.delete("month = 1", id="delete"),
    "delete rows": lambda t: t.delete("delay = 11", row_level=True, id="rows"),
    "update": lambda t: t.update({"delay": 77}, where="carrier = 'B2'", row_level=True, id="update"),
    "overwrite": lambda t: t.overwrite(flights((8, "OO", 8)), id="overwrite"),
    "rollback": lambda t: t.rollback(3, id="rollback"),
    "index": lambda t: reindex(t._store, DatasetLog(t._store, "flights"), {"delay": IndexKind.NATIVE}),
    "compact": lambda t: t.compact(id="other"),
}
TAKES: Final = {"replace 1", "replace where", "delete 1", "delete rows", "update", "overwrite", "rollback"}


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.table.log.settle._LONGEST_PAUSE", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of small files, with an index."""
    path = tmp_path / "lake"
    path.mkdir()
    filled(Lake(open_store(StoreConfig(path.as_uri()))), indices={"carrier": "Native"})
    return path


def calls_of(root: Path, tmp_path: Path, deed: Deed) -> int:
    counting = FaultStore(copy(root, tmp_path / "counted"))
    deed(table_in(counting))
    return len(counting.calls)


def raced(
    root: Path, target: Path, first: Deed, second: Callable[[Dataset, Path], Any], at: int
) -> tuple[Any, Dataset]:
    """``first``, with ``second`` ahead of its call number ``at``; what the first returned, and the table."""
    walked = FaultStore(copy(root, target))

    def before_call(_name: str, _key: str) -> None:
        if len(walked.calls) == at:
            second(table_in(walked.inner), target)

    walked.before_call = before_call
    result = first(table_in(walked))
    return result, table_in(walked.inner)


def check_indices(table: Dataset) -> None:
    """Every row is found by its carrier, and the totals are right."""
    found = rows(table)
    assert table.rows == len(found)
    for carrier in {row[1] for row in found if row[1] is not None}:
        expected = sum(row[1] == carrier for row in found)
        assert table.scan(where=f"carrier = '{carrier}'").read_all().num_rows == expected, carrier


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEDS)
def test_compaction_yields_to_concurrent_change_and_never_fails(root: Path, tmp_path: Path, name: str) -> None:
    calls = calls_of(root, tmp_path, lambda t: t.compact(id="mine"))
    alone = copy(root, tmp_path / "alone")
    DEEDS[name](table_in(alone))
    expected = rows(table_in(alone))
    given_way = 0
    for at in range(1, calls + 1):
        done, table = raced(root, tmp_path / str(at), lambda t: t.compact(id="mine"), lambda t, _: DEEDS[name](t), at)
        assert rows(table) == expected, at
        check_indices(table)
        given_way += bool(done.skipped)
        if name in ("append", "index"):
            assert not done.skipped, at
            assert done.version is not None
    assert (given_way > 0) is (name in TAKES or name == "compact")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append", *sorted(TAKES - {"rollback", "overwrite"})])
def test_commit_concurrent_with_compaction_succeeds(root: Path, tmp_path: Path, name: str) -> None:
    calls = calls_of(root, tmp_path, DEEDS[name])
    alone = copy(root, tmp_path / "alone")
    DEEDS[name](table_in(alone))
    expected = rows(table_in(alone))
    for at in range(1, calls + 1):
        _, table = raced(root, tmp_path / str(at), DEEDS[name], lambda t, _: t.compact(), at)
        assert rows(table) == expected, at
        check_indices(table)


@pytest.mark.parametrize("name", ["overwrite", "rollback"])
def test_full_table_change_concurrent_with_compaction_is_retried(root: Path, tmp_path: Path, name: str) -> None:
    deed = DEEDS[name]
    calls = calls_of(root, tmp_path, deed)
    for at in (calls // 2, calls - 2):
        _, table = raced(root, tmp_path / str(at), deed, lambda t, _: t.compact(), at)
        check_indices(table)


def test_conflict_with_real_change_is_raised_despite_compaction(root: Path, tmp_path: Path) -> None:
    calls = calls_of(root, tmp_path, DEEDS["replace 1"])
    conflicts = 0

    def both(table: Dataset, _: Path) -> None:
        table.append(flights((1, "NN", 1)), id="append")
        table.compact()

    for at in range(1, calls + 1):
        try:
            raced(root, tmp_path / str(at), DEEDS["replace 1"], both, at)
        except Conflict:
            conflicts += 1
            assert ((1, "NN", 1)) in rows(table_in(open_store(StoreConfig((tmp_path / str(at)).as_uri()))))
    assert conflicts > 0


@pytest.mark.slow
def test_foreign_write_during_compaction_loses_no_row(root: Path, tmp_path: Path) -> None:
    calls = calls_of(root, tmp_path, lambda t: t.compact(id="mine"))
    row: Row = (1, "PP", 1)
    for at in range(1, calls + 1):
        _, table = raced(
            root, tmp_path / str(at), lambda t: t.compact(id="mine"), lambda _, path: plateau_appends(path), at
        )
        DatasetLog(table._store, "flights").settle()
        assert rows(table) == sorted([*ROWS, row], key=repr), at
        assert DatasetLog(table._store, "flights").inspect().problem is None, at
        table.compact()
        assert rows(table) == sorted([*ROWS, row], key=repr), at
        check_indices(table)
