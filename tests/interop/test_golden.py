"""Whatever kartothek 5.3 and plateau 4.6 wrote reads as its ``expected.json`` says, through every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kubothek.catalog import Lake
from kubothek.errors import FilterInvalid, InputError, RowLevelNeeded
from kubothek.table.expressions import parse
from kubothek.table.scan.plan import plan
from tests.interop.golden import CASES, QUERIES, Case, where
from tests.table import golden

pytestmark = pytest.mark.slow  # hundreds of tables of other libraries

each_table = pytest.mark.parametrize("case", CASES, ids=str)
each_query = pytest.mark.parametrize(
    ("case", "query"), QUERIES, ids=[f"{case}:{query['name']}" for case, query in QUERIES]
)


def ids(table: pa.Table) -> list[Any]:
    """What stands in the first column, by which golden rows are named."""
    return [row[0] for row in golden.rows(table, [(table.column_names[0], "ascending")])]


@each_table
def test_golden_dataset_rows_are_read_completely(case: Case) -> None:
    columns = case.content["columns"]
    expected = case.content["rows"]
    found = case.dataset().scan(columns=columns).read_all()
    assert golden.rows(found, case.order) == expected
    by_sql = case.lake.sql(f"SELECT {', '.join(map(quoted, columns))} FROM {case.sql_name}").read_all()
    assert golden.rows(by_sql, case.order) == expected


@each_table
def test_golden_dataset_columns_have_logical_types(case: Case) -> None:
    expected = [(c["name"], c["logical"].replace("timestamp", "timestamp[us]")) for c in case.content["schema"]]
    assert [(f.name, logical(f.type)) for f in case.dataset().schema] == expected


@each_table
def test_golden_dataset_partitions_keep_order_of_head(case: Case) -> None:
    head = case.dataset().snapshot().head
    expected = {p["label"]: p["files"][case.table] for p in case.expected["partitions"] if case.table in p["files"]}
    assert list(head.files().items()) == list(expected.items())
    assert list(head.partition_keys) == case.expected["partition_keys"]
    assert {k: v for k, v in head.metadata.items() if k != "kubothek_table"} == case.expected["metadata"]


@each_query
def test_golden_query_returns_expected_rows(case: Case, query: dict[str, Any]) -> None:
    dataset = case.dataset()
    text = where(query["predicates"], dataset.schema)
    row_id = case.content["sort_by"]
    assert ids(dataset.scan(columns=row_id, where=text).read_all()) == query["row_ids"]
    found = case.lake.sql(f"SELECT {', '.join(map(quoted, row_id))} FROM {case.sql_name} WHERE {text}").read_all()
    assert ids(found) == query["row_ids"]


@pytest.mark.parametrize(
    ("case", "query"),
    [(case, query) for case, query in QUERIES if "rows" in query],
    ids=[f"{case}:{query['name']}" for case, query in QUERIES if "rows" in query],
)
def test_golden_query_returns_requested_columns_in_order(case: Case, query: dict[str, Any]) -> None:
    dataset = case.dataset()
    found = dataset.scan(columns=query["columns"], where=where(query["predicates"], dataset.schema)).read_all()
    assert found.column_names == query["columns"]
    assert sorted(golden.rows(found, query["columns"][0]), key=str) == sorted(query["rows"], key=str)


@each_query
def test_golden_query_plan_keeps_matching_partitions_only(case: Case, query: dict[str, Any]) -> None:
    """The libraries look at partition keys and secondary indices; quirks keep too few, and are not compared."""
    dataset = case.dataset()
    predicate = parse(where(query["predicates"], dataset.schema)).bind(dataset.schema)
    kept = {file.label for file in plan(dataset._store, dataset.snapshot(), predicate).files}
    if "labels_with_rows" in query:
        assert kept >= set(query["labels_with_rows"])
    if "planned_labels" in query and "why" not in query:
        assert kept <= set(query["planned_labels"])


def test_golden_multi_table_dataset_needs_table_name() -> None:
    case = next(case for case in CASES if case.several)
    with pytest.raises(InputError, match=r"multi/core.*table=\"core\""):
        case.lake.dataset("multi")
    with pytest.raises(InputError, match="no table 'cora'; it has 'core', 'helper'"):
        case.lake.dataset("multi", table="cora")
    with pytest.raises(InputError, match="no table 'other'; it has 'table'"):
        next(case for case in CASES if case.uuid == "sales").lake.dataset("sales", table="other")


def quoted(name: str) -> str:
    return f'"{name}"'


def logical(data_type: pa.DataType) -> str:
    return {"date32[day]": "date", "list<item: int64>": "list<int64>", "list<item: string>": "list<string>"}.get(
        str(data_type), str(data_type)
    )


# --- what kartothek's delete_scope selects ------------------------------------------------------------------

SCOPES = [
    (case, scope)
    for case in CASES
    if not case.several
    for scope in case.expected.get("delete_scopes", ())
    if {column for each in scope["scope"] for column in each} <= set(case.expected["partition_keys"])
]


@pytest.mark.parametrize(("case", "scope"), SCOPES, ids=[f"{case}:{scope['scope']}" for case, scope in SCOPES])
def test_delete_removes_same_files_as_kartothek(
    golden_copy: Callable[[str], Lake], case: Case, scope: dict[str, Any]
) -> None:
    dataset = golden_copy(case.store).dataset(case.uuid)
    before = dataset.snapshot().head.files()
    text = where([[[column, "==", value] for column, value in each.items()] for each in scope["scope"]], dataset.schema)
    dataset.delete(text)
    after = dataset.snapshot().head.files()
    assert before.items() >= after.items()
    assert sorted(before.keys() - after.keys()) == sorted(scope["removed_labels"])


@pytest.mark.parametrize("name", ["k53-table", "p46-table"])
def test_delete_on_unindexed_or_unknown_column_is_refused(golden_copy: Callable[[str], Lake], name: str) -> None:
    """A column without index and a column that is not there both mean everything to both libraries."""
    dataset = golden_copy(name).dataset("sales")
    with pytest.raises(RowLevelNeeded):
        dataset.delete("amount = 1.0")
    with pytest.raises(FilterInvalid, match="did you mean 'region'"):
        dataset.delete("regoin = 'north'")
    assert dataset.rows == len(golden.expected(name)["sales"]["tables"]["table"]["rows"])
