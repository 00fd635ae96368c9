"""Real plateau 4.6 and Kubothek take turns on tables of every kind, and both always see the rows of a plain list."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from plateau.io.eager import (
    commit_dataset,
    garbage_collect_dataset,
    read_table,
    update_dataset_from_dataframes,
)

from kubothek.catalog import Dataset, Lake
from kubothek.table.log import Operation
from tests.interop.kinds import Kind, model, ours, rows, theirs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

KINDS = [
    Kind("one file"),
    Kind("by text", ("region",), {"region": "Zürich"}),
    Kind("by number", ("year",), {"year": 2020}),
    Kind("by day", ("day",), {"day": "2024-02-29"}),
    Kind("by time", ("at",), {"at": "2024-02-29 12:00:00.001"}),
    Kind("by text and number", ("region", "year"), {"region": "New York", "year": 2019}),
    Kind("by unsigned number", ("big",), {"big": 2**63}),
    Kind("by fraction", ("amount",), {"amount": 0.25}),
    Kind("sorted, in small row groups", (), {}, {"sort_by": ["region", "at"], "row_group_rows": 5}),
    Kind("in buckets", ("year",), {"year": 2019}, {"bucket_by": ["name"], "num_buckets": 3, "compression": "SNAPPY"}),
    Kind(
        "with indices",
        ("year",),
        {"year": 2020},
        {"indices": {"carrier": "Kartothek", "sku": "Kartothek", "name": "Native"}, "dialect": "Plateau"},
    ),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def data(kind: Kind, start: int, count: int = 24) -> pa.Table:
    """Rows whose partition columns have no nulls."""
    table = rows(start, count)
    for column in kind.partition_on:
        table = table.filter(table.column(column).is_valid())
    return table


def data_of_plateau(kind: Kind, start: int) -> pa.Table:
    """Without the value that plateau itself writes wrong (Kartothek specification, "Filenames")."""
    table = data(kind, start)
    return table.filter(pc.field("region") != "a/b") if "region" in kind.partition_on else table


def matching(scope: dict[str, Any], row: dict[str, Any]) -> bool:
    return all(str(row[column]).startswith(str(value)) for column, value in scope.items())


@each_kind
def test_alternating_writes_of_plateau_and_kubothek_keep_every_row(lake: Lake, url: str, kind: Kind) -> None:
    dataset = kind.make(lake)
    ground, mine, yours, after = data(kind, 0), data(kind, 24), data_of_plateau(kind, 48), data(kind, 72)
    dataset.append(ground)
    dataset.append(mine)
    expected = model(ground, mine)
    check(dataset, url, expected)
    version = dataset.version

    update_dataset_from_dataframes([yours.to_pandas()], store=url, dataset_uuid="sales")
    expected = model(ground, mine, yours)
    check(dataset, url, expected)

    if kind.scope:
        commit_dataset(store=url, dataset_uuid="sales", delete_scope=[kind.scope])
        assert any(matching(kind.scope, row) for row in expected)
        expected = [row for row in expected if not matching(kind.scope, row)]
        check(dataset, url, expected)

    dataset.append(after)
    expected = sorted([*expected, *after.to_pylist()], key=lambda row: row["id"])
    check(dataset, url, expected)
    operations = [record.operation for record in dataset.history()]
    assert operations[:3] == [Operation.APPEND, Operation.EXTERNAL, Operation.APPEND]
    assert ours(dataset, as_of=version) == model(ground, mine)

    garbage_collect_dataset("sales", url)
    check(dataset, url, expected)


def check(dataset: Dataset, url: str, expected: list[dict[str, Any]]) -> None:
    """Whole, and by each partition column and a number: we and plateau both find the model's rows."""
    assert by_columns(ours(dataset)) == by_columns(expected)
    assert by_columns(theirs(read_table("sales", url))) == by_columns(expected)
    for column in {*dataset.snapshot().head.partition_keys, "sku"}:
        value = expected[-1][column]
        found = [row for row in expected if row[column] == value]
        predicate = [[(column, "==", plain(value, dataset.schema.field(column).type))]]
        assert by_columns(theirs(read_table("sales", url, predicates=predicate))) == by_columns(found)


def plain(value: Any, data_type: pa.DataType) -> Any:
    """Plateau compares a value only with the very type of the column."""
    return float(value) if pa.types.is_floating(data_type) else value


def by_columns(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose columns stand in one order; in a table those that partition it come first."""
    return [dict(sorted(row.items())) for row in table]
