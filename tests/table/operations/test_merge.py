"""Merge by key: which rows it changes, which files it rewrites, and what it refuses before it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kubothek import Expression, MergeClause
from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    DataTypeMismatch,
    DuplicateKeys,
    FilterInvalid,
    InputError,
    LakeError,
    PartitionInvalid,
    SchemaMismatch,
)
from kubothek.storage import Store
from kubothek.table.log import AlreadyApplied, Committed
from kubothek.table.operations.merging import source as sources
from kubothek.table.scratch import Scratch
from tests.faultstore import FaultStore
from tests.table.operations.table import everything, flights, labels, rows


def changes(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def pieces_of(*tables: pa.Table) -> Iterator[pa.RecordBatch]:
    return (batch for table in tables for batch in table.to_batches())


def test_upsert_updates_known_keys_and_inserts_others(table: Dataset) -> None:
    before = labels(table)
    done = table.upsert(flights((1, "ZZ", 10), (4, "NN", 40)), key=["month", "delay"])
    assert isinstance(done, Committed)
    assert (1, "ZZ", 10) in rows(table)
    assert (4, "NN", 40) in rows(table)
    assert (1, "AA", 10) not in rows(table)
    assert table.rows == 7
    kept = [label for label in before if not label.startswith("month=1")]
    assert set(kept) <= set(labels(table))
    assert len(set(before) - set(labels(table))) == 1


def test_merge_records_operation_in_history(table: Dataset) -> None:
    table.upsert(flights((1, "ZZ", 10)), key="delay")
    assert next(record.operation for record in table.history()) == "Merge"


def test_merge_with_null_in_key_matches_nothing_and_inserts(table: Dataset) -> None:
    table.upsert(flights((3, "XX", None), (3, "YY", None)), key="delay")
    assert {(3, "B6", None), (3, "XX", None), (3, "YY", None)} <= set(rows(table))


def test_merge_first_true_clause_applies(table: Dataset) -> None:
    table.merge(
        flights((1, "KEEP", 10), (1, "GO", 11), (2, "NEW", 20)),
        key="delay",
        when_matched=[
            MergeClause("Nothing", where="source.carrier = 'KEEP'"),  # type: ignore[arg-type]
            {"action": "Delete", "where": "source.carrier = 'GO'"},
            "Update",
        ],
    )
    assert [row for row in rows(table) if row[0] < 3] == [(1, "AA", 10), (2, "NEW", 20), (2, None, 21)]


def test_merge_without_applying_clause_rewrites_no_file(table: Dataset) -> None:
    before = labels(table)
    table.merge(flights((1, "AA", 10)), key="delay", when_matched={"action": "Update", "where": "source.month > 5"})
    assert labels(table) == before


def test_merge_by_source_changes_rows_without_source_row(table: Dataset) -> None:
    table.merge(
        changes(delay=[10, 20]),
        key="delay",
        when_not_matched_by_source=[
            {"action": "Delete", "where": "target.month = 1"},
            {"action": "Update", "set": {"carrier": "'gone'"}, "where": "target.month = 2"},
        ],
    )
    assert rows(table) == [(1, "AA", 10), (2, "UA", 20), (2, "gone", 21), (3, "AA", 30), (3, "B6", None)]


def test_merge_of_partition_column_moves_row(table: Dataset) -> None:
    table.merge(
        changes(delay=[10], to=[9]), key="delay", when_matched={"action": "Update", "set": {"month": "source.to"}}
    )
    assert [label.split("/")[0] for label in labels(table)].count("month=9") == 1
    assert (9, "AA", 10) in rows(table)


def test_merge_evolves_columns(table: Dataset) -> None:
    table.upsert(changes(month=[1, 5], delay=[10, 50], note=["x", "y"]), key="delay", evolve=True)
    found = {row["delay"]: row for row in table.scan().read_all().to_pylist()}
    assert found[10] == {"month": 1, "delay": 10, "carrier": "AA", "note": "x"}
    assert found[50] == {"month": 5, "delay": 50, "carrier": None, "note": "y"}
    assert found[11]["note"] is None


def test_merge_fills_empty_table(store: Store) -> None:
    dataset = Lake(store).create_dataset("empty", ["month"])
    dataset.upsert(flights((1, "AA", 1), (2, None, 2)), key="delay")
    assert rows(dataset) == [(1, "AA", 1), (2, None, 2)]


def test_merge_casts_without_loss(table: Dataset) -> None:
    table.upsert(
        pa.table({"month": pa.array([1], pa.int8()), "carrier": ["QQ"], "delay": pa.array([10.0])}), key="delay"
    )
    assert (1, "QQ", 10) in rows(table)


def test_merge_of_empty_source_commits_unchanged_files(table: Dataset) -> None:
    before = labels(table)
    table.upsert(flights(), key="delay")
    assert labels(table) == before


def test_merge_of_empty_source_deletes_rows_without_source_row(table: Dataset) -> None:
    table.merge(flights(), key="delay", when_not_matched_by_source="Delete")
    assert rows(table) == []


def test_merge_with_same_id_is_applied_once(table: Dataset) -> None:
    assert isinstance(table.upsert(flights((1, "ZZ", 10)), key="delay", id="a"), Committed)
    assert isinstance(table.upsert(flights((1, "ZZ", 10)), key="delay", id="a"), AlreadyApplied)


@pytest.mark.parametrize("indices", [[], ["delay"]])
def test_merge_reads_only_files_that_may_hold_keys(store: Store, indices: list[str]) -> None:
    dataset = Lake(store).create_dataset("flights", ["month"], indices=indices)
    for month in range(1, 9):
        dataset.append(flights((month, "AA", month * 10), (month, "AA", month * 10 + 1)))
    files = labels(dataset)
    watched = FaultStore(store)
    Dataset(Lake(watched), "flights").upsert(flights((2, "ZZ", 20)), key="delay")
    assert set(files) - set(labels(dataset)) == {label for label in files if label.startswith("month=2")}


def test_merge_keeps_nested_values_and_dictionaries(store: Store) -> None:
    dataset = Lake(store).create_dataset("d", ["p"])
    plain = pa.table({"p": [1] * 3000, "id": range(3000), "kind": ["a", "b", "c"] * 1000})
    dataset.upsert(plain, key="id")
    dataset.upsert(plain.slice(5, 1), key="id")
    nested = plain.slice(5, 3).append_column("z", pa.array([[{"a": 1}]] * 3))
    dataset.upsert(nested, key="id", evolve=True)
    dataset.upsert(nested.slice(1, 1), key="id")
    found = {row["id"]: row["z"] for row in dataset.scan().read_all().to_pylist()}
    assert (found[5], found[8], len(found)) == ([{"a": 1}], None, 3000)


def test_merge_keeps_index_and_skipping_exact(store: Store) -> None:
    dataset = Lake(store).create_dataset("flights", ["month"], indices=["carrier"])
    dataset.append(flights((1, "AA", 1), (2, "BB", 2)))
    dataset.upsert(flights((1, "CC", 1), (3, "AA", 3)), key="delay")
    found = dataset.scan(where="carrier = 'AA'").read_all().to_pylist()
    assert [row["delay"] for row in found] == [3]
    assert [row["delay"] for row in dataset.scan(where="carrier = 'CC'").read_all().to_pylist()] == [1]


def test_merge_of_source_beyond_memory_uses_disk(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.dataset.merging.Scratch", lambda: Scratch(memory="200MB", in_memory=1))
    held: list[int] = []
    keep = sources.MergeSource.__init__

    def init(self: Any, rows: pa.Table, *more: Any) -> None:
        held.append(pa.total_allocated_bytes())
        keep(self, rows, *more)

    monkeypatch.setattr(sources.MergeSource, "__init__", init)
    count = 200_000
    pieces = (flights(*((month, "BB", number) for number in range(month, count, 8))) for month in range(8))
    table.upsert(pieces_of(*pieces), key="delay")
    assert held
    assert table.rows == count + 1
    assert (10 % 8, "BB", 10) in rows(table)


BAD: Mapping[str, tuple[Callable[[Dataset], object], type[LakeError], str]] = {
    "duplicate": (
        lambda t: t.upsert(flights((1, "A", 7), (2, "B", 7), (2, "C", 8), (3, "D", 8), (3, "D", 8)), key="delay"),
        DuplicateKeys,
        r"3 rows of the source have the key delay = 8 \(2 keys occur several times\)",
    ),
    "no key": (lambda t: t.upsert(flights(), key=[]), InputError, "name each column"),
    "unknown key": (lambda t: t.upsert(flights((1, "A", 1)), key="x"), InputError, "no column 'x' in the table"),
    "missing column": (lambda t: t.upsert(changes(month=[1], delay=[1]), key="delay"), SchemaMismatch, "carrier"),
    "other type": (
        lambda t: t.upsert(changes(month=[1], delay=["1"], carrier=["A"]), key="delay"),
        SchemaMismatch,
        "delay",
    ),
    "lossy": (
        lambda t: t.upsert(changes(month=[1], delay=[1.5], carrier=["A"]), key="delay"),
        SchemaMismatch,
        "1.5 in row 1",
    ),
    "lossy value": (
        lambda t: t.merge(
            changes(delay=[10]), key="delay", when_matched={"action": "Update", "set": {"month": "target.month / 3"}}
        ),
        SchemaMismatch,
        "'month'",
    ),
    "null partition": (
        lambda t: t.merge(
            changes(delay=[10]), key="delay", when_matched={"action": "Update", "set": {"month": "NULL"}}
        ),
        PartitionInvalid,
        "nulls",
    ),
    "no partition": (
        lambda t: t.merge(
            changes(delay=[77]), key="delay", when_not_matched={"action": "Insert", "set": {"delay": "source.delay"}}
        ),
        PartitionInvalid,
        "whenNotMatched: set: no value for the partition column 'month'",
    ),
    "no clause": (lambda t: t.merge(flights((1, "A", 1)), key="delay"), InputError, "without clauses"),
    "action": (
        lambda t: t.merge(flights((1, "A", 1)), key="delay", when_matched="Insert"),
        InputError,
        "whenMatched: action 'Insert' is not one of Update, Delete, Nothing",
    ),
    "field": (
        lambda t: t.merge(flights((1, "A", 1)), key="delay", when_matched={"action": "Update", "if": "TRUE"}),
        InputError,
        "unknown field 'if'",
    ),
    "by source without set": (
        lambda t: t.merge(flights((1, "A", 1)), key="delay", when_not_matched_by_source="Update"),
        InputError,
        "name columns",
    ),
    "no condition": (
        lambda t: t.merge(
            flights((1, "A", 1)), key="delay", when_matched={"action": "Delete", "where": "source.delay"}
        ),
        FilterInvalid,
        "is int64, no condition",
    ),
    "side": (
        lambda t: t.merge(
            flights((1, "A", 1)), key="delay", when_not_matched={"action": "Insert", "where": "target.delay > 1"}
        ),
        FilterInvalid,
        "unknown column target.delay; write source.delay",
    ),
    "subquery": (
        lambda t: t.merge(
            flights((1, "A", 1)), key="delay", when_matched={"action": "Delete", "where": "(SELECT TRUE)"}
        ),
        FilterInvalid,
        "subquery is not allowed",
    ),
    "chance": (
        lambda t: t.merge(
            flights((1, "A", 1)), key="delay", when_matched={"action": "Delete", "where": "random() > 0.5"}
        ),
        FilterInvalid,
        "random is no function",
    ),
    "several pieces": (
        lambda t: t.upsert(pieces_of(flights((1, "A", 1)), changes(a=[1])), key="delay"),
        SchemaMismatch,
        "one schema",
    ),
    "nested key": (
        lambda t: t.upsert(pa.table({"month": [1], "carrier": ["a"], "delay": [[1]]}), key="delay"),
        SchemaMismatch,
        "delay",
    ),
    "nanoseconds": (
        lambda t: t.merge(
            pa.table({"delay": [10], "at": pa.array([1], pa.timestamp("ns"))}),
            key="delay",
            when_matched={"action": "Update", "set": {"carrier": "CAST(source.at AS VARCHAR)"}},
        ),
        DataTypeMismatch,
        "'at'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_merge_is_refused_and_leaves_no_object(table: Dataset, store: Store, name: str) -> None:
    act, error, message = BAD[name]
    before = everything(store)
    with pytest.raises(error, match=message):
        act(table)
    assert everything(store) == before


# --- update with expressions ---


def test_update_with_expression_reads_row_before_change(table: Dataset) -> None:
    table.update(
        {"delay": Expression("delay * 2"), "month": Expression("month + delay"), "carrier": "ZZ"},
        where="month = 1",
        row_level=True,
    )
    assert [row for row in rows(table) if row[1] == "ZZ"] == [(11, "ZZ", 20), (12, "ZZ", 22)]
    assert table.rows == 6


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("delay * 1.5", SchemaMismatch, "16.5"),
        ("carrier", SchemaMismatch, "set delay: the columns do not match"),
        ("dealy + 1", FilterInvalid, "set delay: .*unknown column dealy; write one of month, carrier, delay"),
        ("now()", FilterInvalid, "now is no function"),
        ("sum(delay)", FilterInvalid, "sum is no function"),
        ("", FilterInvalid, "an expression is empty"),
        ("1; DROP TABLE x", FilterInvalid, "no SQL expression"),
        ("CAST(carrier AS BIGINT)", InputError, "cannot evaluate"),
    ],
)
def test_update_with_invalid_expression_is_refused(
    table: Dataset, store: Store, text: str, error: type[LakeError], message: str
) -> None:
    before = everything(store)
    with pytest.raises(error, match=message):
        table.update({"delay": Expression(text)}, where="month = 1", row_level=True)
    assert everything(store) == before
