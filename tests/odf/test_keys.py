"""Verification of what merge strategies promise: which operations they give, and which keys they let through."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.odf import Layout, verify
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.events import AddPushSource, SourceState
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
    ReadStepCsv,
)
from kubothek.odf.validation import keys
from kubothek.storage import Store
from tests.odf.making import Maker, changes, rows

LEDGER = MergeStrategyLedger(primary_key=("city",))
SNAPSHOT = MergeStrategySnapshot(primary_key=("city",))
APPEND = MergeStrategyAppend()
CHANGELOG = MergeStrategyChangelogStream(primary_key=("city",))
UPSERTS = MergeStrategyUpsertStream(primary_key=("city",))


def source(merge: MergeStrategy, name: str = "default") -> AddPushSource:
    return AddPushSource(
        source_name=name, read=ReadStepCsv(ddl_schema=("city STRING", "population BIGINT")), merge=merge
    )


def named(start: int, minutes: int, *cities: str | None, **columns: Any) -> pa.Table:
    return rows(start, len(cities), minutes, city=list(cities), **columns)


def found(store: Store) -> list[Problem]:
    """What is wrong beyond notes; the chain is sound."""
    verdict = verify(store, Layout(), threads=2)
    assert verdict.sound, verdict.problems
    return [each for each in verdict.problems if each.severity is Severity.REFUSED]


@pytest.mark.parametrize("merge", [APPEND, LEDGER])
def test_non_append_operation_of_append_only_source_is_reported(store: Store, merge: MergeStrategy) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(merge))
    maker.data(rows(0, 3, 1), 1)
    maker.data(changes(), 2)
    problem = found(store)[0]
    assert (problem.code, problem.number, problem.row, problem.column) == ("DataStrategy", 4, 4, "op")
    assert f"operation 1 of merge strategy {merge.kind}, which only appends" in problem.message


def test_operations_of_snapshot_and_unknown_sources_are_accepted(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    maker.add(source(SNAPSHOT), 1)
    maker.add(source(APPEND, "other"), 1)
    maker.data(changes(), 2)
    assert found(store) == []


def test_repeated_key_of_ledger_source_is_reported(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(LEDGER))
    maker.data(named(0, 1, "Oslo", "Rome", None), 1)
    maker.data(named(3, 2, "Bonn", "Bonn"), 2)  # within one slice other programs append both
    assert found(store) == []
    maker.data(named(5, 3, "Bern", "Rome", "Oslo"), 3)
    (problem,) = found(store)
    assert (problem.code, problem.rule, problem.number, problem.row) == ("DataKey", "MS-02", 5, 6)
    assert "the primary key (city) of the record at offset 1, which Ledger never does" in problem.message


def test_repeated_null_key_of_ledger_source_is_reported(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(LEDGER))
    maker.data(named(0, 1, None), 1)
    maker.data(named(1, 2, None), 2)
    assert [each.row for each in found(store)] == [1]


def test_snapshot_append_of_existing_key_is_reported(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(SNAPSHOT))
    maker.data(named(0, 1, "Oslo", "Rome", population=[1, 2]), 1)
    maker.data(named(2, 2, "Oslo", op=[1], population=[1], event_time=[BEFORE]), 2)
    maker.data(named(3, 3, "Oslo", population=[5]), 3)  # it was gone
    assert found(store) == []
    maker.data(named(4, 4, "Rome", population=[6]), 4)
    (problem,) = found(store)
    assert (problem.code, problem.rule, problem.row) == ("DataKey", "MS-04", 4)
    assert "offset 1, which Snapshot never does" in problem.message


@pytest.mark.parametrize(("merge", "rule"), [(UPSERTS, "MS-08"), (CHANGELOG, "MS-09")])
def test_a_key_that_a_stream_adds_while_it_exists_is_named(store: Store, merge: MergeStrategy, rule: str) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(merge))
    maker.data(named(0, 1, "Oslo", "Rome", population=[1, 2]), 1)
    time = BEFORE
    maker.data(named(2, 2, "Oslo", "Oslo", op=[2, 3], population=[1, 5], event_time=[time, time]), 2)
    assert found(store) == []
    last = maker.data(named(4, 3, "Oslo", "Rome", op=[2, 3], population=[5, 6], event_time=[time, time]), 3)
    (problem,) = found(store)
    assert (problem.code, problem.rule, problem.row) == ("DataKey", rule, 5)
    assert f"offset 1, which {merge.kind} never does" in problem.message
    assert problem.block == last.hash


@pytest.mark.parametrize("merge", [SNAPSHOT, UPSERTS, CHANGELOG])
def test_a_correction_to_another_key_is_named(store: Store, merge: MergeStrategy) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(merge))
    maker.data(named(0, 1, "Oslo", "Rome", population=[1, 2]), 1)
    maker.data(named(2, 2, "Oslo", "Bonn", op=[2, 3], population=[1, 5], event_time=[BEFORE, BEFORE]), 2)
    (problem,) = found(store)
    assert (problem.code, problem.row) == ("DataKey", 3)
    assert f"the record at offset 2 to another primary key (city), which {merge.kind} never does" in problem.message


BEFORE = rows(0, 1, 1).column("event_time")[0].as_py()


def test_key_check_uses_source_that_added_data(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(source(LEDGER, "one"))
    maker.add(source(APPEND, "two"))
    maker.data(named(0, 1, "Oslo"), 1, new_source_state=SourceState(source_name="two", kind="x", value="1"))
    maker.data(named(1, 2, "Oslo"), 2, new_source_state=SourceState(source_name="two", kind="x", value="2"))
    assert found(store) == []
    maker.data(named(2, 3, "Oslo"), 3, new_source_state=SourceState(source_name="one", kind="x", value="3"))
    assert [(each.code, each.row) for each in found(store)] == [("DataKey", 2)]


def test_key_check_compares_values_with_equal_hashes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = keys._hashes
    monkeypatch.setattr(keys, "_hashes", lambda *given: (real(*given)[0] * 0, real(*given)[1]))
    maker = Maker(store)
    maker.start()
    maker.add(source(LEDGER))
    maker.data(named(0, 1, "Oslo"), 1)
    maker.data(named(1, 2, "Rome"), 2)
    assert found(store) == []


def test_key_check_of_large_chain_is_skipped_with_note(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_RECORDS", 1)
    maker = Maker(store)
    maker.start()
    maker.add(source(LEDGER))
    maker.data(named(0, 1, "Oslo", "Oslo"), 1)
    (problem,) = [each for each in verify(store, Layout()).problems if each.code == "DataKey"]
    assert problem.severity is Severity.NOTE
