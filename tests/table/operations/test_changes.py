"""What each operation does to the rows, and to the files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.catalog import Dataset, Lake
from kubothek.errors import IdReused
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import AlreadyApplied, Committed
from tests.table.operations.table import SCHEMA, flights, labels, rows


def operations(dataset: Dataset) -> list[str]:
    return [str(record.operation) for record in dataset.history()]


# --- replace ------------------------------------------------------------------------------------------------


def test_replace_replaces_only_partitions_of_new_rows(table: Dataset) -> None:
    before = labels(table)
    done = table.replace(flights((1, "ZZ", 1), (4, "ZZ", 4)))
    assert isinstance(done, Committed)
    assert (done.version, done.totals.rows, done.totals.partitions) == (3, 6, 4)
    assert [row for row in rows(table) if row[1] == "ZZ"] == [(1, "ZZ", 1), (4, "ZZ", 4)]
    assert {row[0] for row in rows(table)} == {1, 2, 3, 4}
    kept = {label: key for label, key in before.items() if not label.startswith("month=1/")}
    assert kept.items() <= labels(table).items()


def test_replace_clears_filtered_partitions_without_new_rows(table: Dataset) -> None:
    table.replace(flights((1, "ZZ", 1)), where="month IN (1, 2)")
    assert {row[0] for row in rows(table)} == {1, 3}
    assert len(rows(table)) == 3


def test_replace_where_true_replaces_all_rows(table: Dataset) -> None:
    table.replace(flights((9, "ZZ", 1)), where="TRUE")
    assert rows(table) == [(9, "ZZ", 1)]


def test_replace_fills_empty_table(store: Store) -> None:
    dataset = Lake(store).create_dataset("flights", ["month"])
    dataset.replace(flights((1, "AA", 1)), where="month = 1")
    assert rows(dataset) == [(1, "AA", 1)]


def test_replace_and_delete_match_values_that_need_quoting(store: Store) -> None:
    dataset = Lake(store).create_dataset("t", ["p"])
    values = ["a/b", "100%", "p=q", "Grüße", "'", ""]
    dataset.append(pa.table({"p": values, "v": [0] * len(values)}))
    dataset.replace(pa.table({"p": values[:3], "v": [1] * 3}))
    dataset.delete("p = '''' OR p = ''")
    found = dataset.scan(["p", "v"]).read_all().to_pylist()
    assert sorted((row["p"], row["v"]) for row in found) == [("100%", 1), ("Grüße", 0), ("a/b", 1), ("p=q", 1)]


# --- delete -------------------------------------------------------------------------------------------------


def test_delete_of_partitions_drops_files_and_writes_none(table: Dataset, store: Store) -> None:
    files = {info.key for info in store.list("flights/")}
    table.delete("month >= 2 AND month != 3")
    assert {row[0] for row in rows(table)} == {1, 3}
    assert {info.key for info in store.list("flights/")} == files
    assert len(rows(table, as_of=2)) == 6


def test_delete_where_true_removes_all_rows_and_keeps_schema(table: Dataset) -> None:
    table.delete("TRUE")
    assert rows(table) == []
    assert table.schema.names == ["month", "carrier", "delay"]
    table.append(flights((1, "AA", 1)))
    assert rows(table) == [(1, "AA", 1)]


def test_delete_of_rows_rewrites_only_matching_files(table: Dataset) -> None:
    before = labels(table)
    table.delete("carrier = 'UA'", row_level=True)
    assert (2, "UA", 20) not in rows(table)
    assert len(rows(table)) == 5
    assert {label for label in before if label not in labels(table)} == {k for k in before if k.startswith("month=2/")}


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("carrier = 'AA'", [(1, None, 11), (2, "UA", 20), (2, None, 21), (3, "B6", None)]),
        ("carrier != 'AA'", [(1, "AA", 10), (1, None, 11), (2, None, 21), (3, "AA", 30)]),
        ("NOT carrier = 'AA'", [(1, "AA", 10), (1, None, 11), (2, None, 21), (3, "AA", 30)]),
        ("carrier NOT IN ('AA', 'UA')", [(1, "AA", 10), (1, None, 11), (2, "UA", 20), (2, None, 21), (3, "AA", 30)]),
        ("carrier IS NULL", [(1, "AA", 10), (2, "UA", 20), (3, "AA", 30), (3, "B6", None)]),
        ("delay > 15 OR carrier IS NULL", [(1, "AA", 10), (3, "B6", None)]),
        ("month = 1 AND delay < 11", [(1, None, 11), (2, "UA", 20), (2, None, 21), (3, "AA", 30), (3, "B6", None)]),
    ],
)
def test_delete_comparison_never_matches_null(table: Dataset, where: str, left: list[Any]) -> None:
    table.delete(where, row_level=True)
    assert rows(table) == sorted(left, key=repr)


def test_delete_of_all_rows_in_file_removes_file_without_copy(table: Dataset) -> None:
    done = table.delete("delay >= 10 AND delay < 12", row_level=True)
    assert isinstance(done, Committed)
    assert (done.totals.files, done.added.files) == (2, 0)


def test_delete_of_partitions_and_rows_is_one_commit(table: Dataset) -> None:
    table.delete("month = 1 OR delay = 20", row_level=True)
    assert table.version == 3
    assert rows(table) == sorted([(2, None, 21), (3, "AA", 30), (3, "B6", None)], key=repr)


@pytest.mark.parametrize("row_level", [False, True])
def test_delete_without_match_commits_unchanged_files(table: Dataset, row_level: bool) -> None:
    before = labels(table)
    first = table.delete("month = 9", row_level=row_level, id="cleanup")
    assert isinstance(first, Committed)
    assert (first.version, labels(table)) == (3, before)
    table.append(flights((9, "AA", 1)))
    again = table.delete("month = 9", row_level=row_level, id="cleanup")
    assert isinstance(again, AlreadyApplied)
    assert (9, "AA", 1) in rows(table)


# --- update -------------------------------------------------------------------------------------------------


def test_update_sets_values_and_nulls(table: Dataset) -> None:
    table.update({"carrier": "ZZ", "delay": None}, where="carrier = 'AA'", row_level=True)
    expected = [(1, "ZZ", None), (1, None, 11), (2, "UA", 20), (2, None, 21), (3, "ZZ", None), (3, "B6", None)]
    assert rows(table) == sorted(expected, key=repr)
    assert operations(table)[0] == "Update"


def test_update_of_partition_column_moves_rows(table: Dataset) -> None:
    table.update({"month": 3}, where="delay = 10", row_level=True)
    assert [row for row in rows(table) if row[2] == 10] == [(3, "AA", 10)]
    paths = {label.rpartition("/")[0] for label in labels(table)}
    assert paths == {"month=1", "month=2", "month=3"}
    assert table.snapshot().totals is not None
    assert table.rows == 6


def test_update_where_true_changes_all_rows(table: Dataset) -> None:
    table.update({"delay": 0}, where="TRUE", row_level=True)
    assert {row[2] for row in rows(table)} == {0}


def test_update_without_match_commits_unchanged_files(table: Dataset) -> None:
    before = labels(table)
    table.update({"delay": 0}, where="carrier = 'XX'", row_level=True)
    assert (table.version, labels(table)) == (3, before)


def test_rewritten_files_follow_table_layout(store: Store) -> None:
    dataset = Lake(store).create_dataset("t", ["p"], target_file_size=10_000)
    count = 20_000
    values = [i * 50_021 % 104_729 for i in range(count)]
    dataset.append(pa.table({"p": [1] * count, "v": values}))
    dataset.delete("v < 500", row_level=True)
    sizes = [store.stat(key).size for key in labels(dataset).values()]
    assert len(sizes) > 2
    assert max(sizes) < 100_000
    assert dataset.rows == sum(value >= 500 for value in values)
    assert all(pq.read_schema(pa.BufferReader(store.get(key))).names == ["v"] for key in labels(dataset).values())


# --- overwrite and rollback ---------------------------------------------------------------------------------


def test_overwrite_replaces_all_rows_and_keeps_history(table: Dataset) -> None:
    table.overwrite(flights((7, "ZZ", 7)))
    assert rows(table) == [(7, "ZZ", 7)]
    assert len(rows(table, as_of=2)) == 6


def test_overwrite_with_allowed_schema_change_replaces_columns(table: Dataset) -> None:
    table.overwrite(pa.table({"month": [1], "gate": ["A1"]}), allow_schema_change=True)
    assert table.schema.names == ["month", "gate"]
    assert table.scan().read_all().to_pylist() == [{"month": 1, "gate": "A1"}]
    assert len(rows(table, as_of=2)) == 6


def test_rollback_restores_files_of_version_in_order(table: Dataset) -> None:
    wanted = list(labels(table).items())
    table.append(flights((1, "AA", 99)))
    table.delete("month = 2")
    table.update({"delay": 0}, where="month = 1 AND delay = 10", row_level=True)
    table.rollback(2)
    assert list(labels(table).items()) == wanted
    assert len(rows(table)) == 6
    snapshot = table.snapshot()
    assert snapshot.totals == table.snapshot(2).totals


def test_rollback_can_be_rolled_back(table: Dataset) -> None:
    table.delete("month = 2")
    table.rollback(2)
    table.rollback(3)
    assert {row[0] for row in rows(table)} == {1, 3}
    assert operations(table)[:2] == ["Rollback", "Rollback"]


def test_rollback_to_time_restores_rows(table: Dataset) -> None:
    moment = table.snapshot().time
    assert moment is not None
    table.delete("month = 2")
    table.rollback(moment)
    assert len(rows(table)) == 6


def test_rollback_to_current_version_keeps_files(table: Dataset) -> None:
    before = labels(table)
    table.rollback(2)
    assert (table.version, labels(table)) == (3, before)


def test_rollback_keeps_type_gained_by_null_column(store: Store) -> None:
    dataset = Lake(store).create_dataset("t")
    dataset.append(pa.table({"a": [1], "b": pa.array([None], pa.null())}))
    dataset.append(pa.table({"a": [2], "b": ["x"]}))
    dataset.rollback(2)
    assert dataset.schema.field("b").type == pa.string()
    assert dataset.scan().read_all().to_pylist() == [{"a": 1, "b": None}]


def test_rollback_keeps_columns_added_since(store: Store) -> None:
    dataset = Lake(store).create_dataset("t")
    dataset.append(pa.table({"a": [1]}))
    dataset.append(pa.table({"a": [2], "b": ["x"]}), evolve=True)
    dataset.rollback(2)
    assert dataset.scan().read_all().to_pylist() == [{"a": 1, "b": None}]
    dataset.rollback(3)
    assert dataset.rows == 2


def test_rollback_with_allowed_schema_change_restores_schema(table: Dataset) -> None:
    table.overwrite(pa.table({"month": [1], "gate": ["A1"]}), allow_schema_change=True)
    table.rollback(2, allow_schema_change=True)
    assert len(rows(table)) == 6
    table.append(flights((1, "AA", 1)))
    assert table.rows == 7


# --- once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace(flights((1, "ZZ", 1)), id="x"),
        lambda t: t.overwrite(flights((1, "ZZ", 1)), id="x"),
        lambda t: t.delete("month = 1", id="x"),
        lambda t: t.delete("delay = 10", row_level=True, id="x"),
        lambda t: t.update({"month": 1}, where="month = 2", row_level=True, id="x"),
        lambda t: t.rollback(1, id="x"),
    ],
    ids=["replace", "overwrite", "delete", "row-level delete", "update", "rollback"],
)
def test_change_with_same_id_is_applied_once(table: Dataset, change: Any) -> None:
    assert isinstance(change(table), Committed)
    table.append(flights((1, "AA", 1), (2, "AA", 2)))
    before = rows(table)
    again = change(table)
    assert isinstance(again, AlreadyApplied)
    assert again.version == 3
    assert rows(table) == before
    with pytest.raises(IdReused):
        table.delete("month = 99", id="x")


# --- a model ------------------------------------------------------------------------------------------------

_values = st.one_of(st.none(), st.integers(0, 4))
_row = st.tuples(st.integers(0, 3), st.sampled_from(["AA", "UA", "ö/%'"]), _values)
_batch = st.lists(_row, min_size=1, max_size=6)
_step = st.one_of(
    st.tuples(st.just("append"), _batch),
    st.tuples(st.just("replace"), _batch),
    st.tuples(st.just("delete partition"), st.integers(0, 3)),
    st.tuples(st.just("delete rows"), st.integers(0, 4)),
    st.tuples(st.just("update"), st.integers(0, 4), st.integers(0, 3)),
    st.tuples(st.just("rollback"), st.integers(0, 20)),
)


def step(model: list[Any], history: list[list[Any]], deed: Any) -> list[Any]:
    match deed:
        case ("append", batch):
            return [*model, *batch]
        case ("replace", batch):
            months = {row[0] for row in batch}
            return [*(row for row in model if row[0] not in months), *batch]
        case ("delete partition", month):
            return [row for row in model if row[0] != month]
        case ("delete rows", delay):
            return [row for row in model if row[2] is None or row[2] < delay]
        case ("update", delay, month):
            return [(month, *row[1:]) if row[2] == delay else row for row in model]
        case ("rollback", back):
            return history[max(0, len(history) - 1 - back)]
    raise AssertionError(deed)


def perform(dataset: Dataset, history: list[list[Any]], deed: Any) -> None:
    match deed:
        case ("append", batch):
            dataset.append(flights(*batch))
        case ("replace", batch):
            dataset.replace(flights(*batch))
        case ("delete partition", month):
            dataset.delete(f"month = {month} OR month = 99")
        case ("delete rows", delay):
            dataset.delete(f"delay >= {delay}", row_level=True)
        case ("update", delay, month):
            dataset.update({"month": month}, where=f"delay = {delay}", row_level=True)
        case ("rollback", back):
            dataset.rollback(max(1, len(history) - back))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(deeds=st.lists(_step, max_size=8))
def test_random_changes_match_naive_model(tmp_path_factory: Any, deeds: list[Any]) -> None:
    root = tmp_path_factory.mktemp("lake")
    dataset = Lake(open_store(StoreConfig(root.as_uri()))).create_dataset("flights", ["month"], SCHEMA)
    history: list[list[Any]] = [[]]
    for deed in deeds:
        after = step(history[-1], history, deed)
        sweeping = deed[0].startswith(("delete", "update")) and history[-1] and selects_all(history[-1], deed)
        if sweeping:
            continue  # refused: tests of refusals have that
        perform(dataset, history, deed)
        history.append(after)
        assert rows(dataset) == sorted(after, key=repr), deed
    for version, model in enumerate(history, start=1):
        assert rows(dataset, as_of=version) == sorted(model, key=repr)
    assert dataset.snapshot().totals.rows == len(history[-1])  # type: ignore[union-attr]


def selects_all(model: list[Any], deed: Any) -> bool:
    match deed:
        case ("delete partition", month):
            return all(row[0] == month for row in model)
        case ("delete rows", delay):
            return all(row[2] is not None and row[2] >= delay for row in model)
        case ("update", delay, _):
            return all(row[2] == delay for row in model)
    return False
