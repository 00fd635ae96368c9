"""The table of docs/commit-protocol.md, "A merge": another commit lands between the plan of a merge and its swap.

The oracle is the commits one after the other, on copies of the same table. A compaction is the rival in one test, and
in another the commit that a merge overtakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kubothek.catalog import CommitResult, Dataset, OnConflict
from kubothek.errors import Conflict
from kubothek.table.log import Committed
from kubothek.table.log.model import keys
from tests.faultstore import FaultStore
from tests.table.operations.deeds import copy, prepared, table_in
from tests.table.operations.table import flights, rows

Rival = Callable[[Dataset], object]

CLAUSES: Final[Mapping[str, Mapping[str, Any]]] = {
    "update": {"when_matched": "Update"},
    "delete": {"when_matched": "Delete"},
    "upsert": {"when_matched": "Update", "when_not_matched": "Insert"},
    "insert": {"when_not_matched": "Insert"},
    "by source": {"when_not_matched_by_source": {"action": "Delete", "where": "target.delay = 11"}},
}
SOURCE: Final = flights((1, "ZZ", 10), (7, "NN", 70))
"""A key of month 1 of the table, and a new one."""

RIVALS: Final[Mapping[str, tuple[Rival, tuple[str, ...]]]] = {
    "removes a row with a key of the source": (lambda t: t.delete("month = 1"), tuple(CLAUSES)),
    "changes a row with a key of the source": (
        lambda t: t.update({"carrier": "UP"}, where="delay = 10", row_level=True),
        tuple(CLAUSES),
    ),
    "replaces a file with a key of the source": (lambda t: t.replace(flights((1, "RR", 10))), tuple(CLAUSES)),
    "adds a key of the source": (lambda t: t.append(flights((5, "KK", 70))), tuple(CLAUSES)),
    "overwrites everything": (lambda t: t.overwrite(flights((8, "OO", 8))), tuple(CLAUSES)),
    "merges a key of the source": (lambda t: t.upsert(flights((6, "MM", 70)), key="delay"), tuple(CLAUSES)),
    "adds another key": (lambda t: t.append(flights((1, "AP", 99))), ("by source",)),
    "replaces another file": (lambda t: t.replace(flights((2, "SS", 2))), ("by source",)),
    "removes another file": (lambda t: t.delete("month = 2"), ("by source",)),
    "compacts": (lambda t: t.compact(), ()),
    "tags": (lambda t: t.tag("kept"), ()),
}
"""Commits by name, and the clauses of merges that conflict with them."""


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.table.log.settle._LONGEST_PAUSE", 0.0)


def merge(table: Dataset, clauses: str, on_conflict: OnConflict) -> CommitResult:
    return table.merge(SOURCE, key="delay", id="m", on_conflict=on_conflict, **CLAUSES[clauses])


def overtaken(root: Path, target: Path, act: Callable[[Dataset], object], rival: Rival) -> tuple[object, Dataset]:
    """What became of a commit before whose first PUT of the head another one lands, and the table."""
    store = FaultStore(copy(root, target))
    landed: list[str] = []

    def before_call(name: str, key: str) -> None:
        if not landed and name.startswith("put") and key == keys.head("flights"):
            landed.append(key)
            rival(table_in(store.inner))

    store.before_call = before_call
    outcome: object
    try:
        outcome = act(table_in(store))
    except Conflict as error:
        outcome = error
    assert landed, "no PUT of the head"
    return outcome, table_in(store.inner)


def lake(root: Path) -> Path:
    """Month 1 has two files, which a compaction joins."""
    prepared(root).append(flights((1, "BB", 12)))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("clauses", CLAUSES)
def test_commit_between_plan_and_swap_of_merge_obeys_conflict_table(tmp_path: Path, clauses: str, rival: str) -> None:
    root = lake(tmp_path / "lake")
    other, conflicts = RIVALS[rival]
    in_turn = table_in(copy(root, tmp_path / "in turn"))
    other(in_turn)
    only_other = rows(in_turn)
    merge(in_turn, clauses, "Fail")
    outcome, table = overtaken(root, tmp_path / "fail", lambda t: merge(t, clauses, "Fail"), other)
    if clauses in conflicts:
        assert isinstance(outcome, Conflict)
        assert rows(table) == only_other
    else:
        assert isinstance(outcome, Committed)
        assert rows(table) == rows(in_turn)
    outcome, table = overtaken(root, tmp_path / "retry", lambda t: merge(t, clauses, "Retry"), other)
    assert isinstance(outcome, Committed)
    assert rows(table) == rows(in_turn)


@pytest.mark.parametrize("clauses", CLAUSES)
def test_merge_between_plan_and_swap_of_compaction_keeps_its_rows(tmp_path: Path, clauses: str) -> None:
    root = lake(tmp_path / "lake")
    alone = table_in(copy(root, tmp_path / "alone"))
    merge(alone, clauses, "Fail")
    _, table = overtaken(root, tmp_path / "raced", lambda t: t.compact(), lambda t: merge(t, clauses, "Fail"))
    assert rows(table) == rows(alone)
    table.compact()
    assert rows(table) == rows(alone)
