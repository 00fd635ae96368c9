"""Real plateau 4.6 reads and updates what we write, and we read and continue what it writes."""

from __future__ import annotations

import warnings
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from plateau.io.eager import (
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import DatasetExists
from kubothek.table.log import Operation

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

REGIONS = ["New York", "Zürich", "50%25", "x+y&z", "a/b", "", "a=b", "tilde~.-_", "東京", "north"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"hfs://{tmp_path}"


def table(start: int, count: int = 20) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "region": [REGIONS[n % len(REGIONS)] for n in ids],
            "year": pa.array([2019 + n % 2 for n in ids], pa.int16()),
            "id": list(ids),
            "amount": pa.array([None if n % 5 == 0 else n / 4 for n in ids], pa.float32()),
            "day": [None if n % 7 == 0 else date(2024, 1 + n % 12, 1) for n in ids],
            "name": [None if n % 3 == 0 else f"näme {n}" for n in ids],
            "tags": [None if n % 4 == 0 else [f"t{n}", "größe"] for n in ids],
            "at": pa.array([datetime(2024, 2, 29, 12, 0, 0, n) for n in ids], pa.timestamp("us")),
            "unknown": pa.nulls(count),
        }
    )


def theirs(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame of plateau's in our notation."""

    def value(found: Any) -> Any:
        if found is None or (not hasattr(found, "__len__") and pd.isna(found)):
            return None
        if isinstance(found, pd.Timestamp):
            return found.to_pydatetime()
        return list(found) if hasattr(found, "tolist") and hasattr(found, "__len__") else found

    ordered = frame.sort_values("id", ignore_index=True)
    return [{str(name): value(ordered[name][row]) for name in ordered} for row in range(len(ordered))]


def ours(dataset: Dataset, **scan: Any) -> list[dict[str, Any]]:
    return dataset.scan(**scan).read_all().sort_by("id").to_pylist()


def sales(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("sales", ["region", "year"])
    dataset.append(table(0))
    dataset.append(table(20))
    return dataset


def test_plateau_reads_every_written_row(lake: Lake, store: str) -> None:
    dataset = sales(lake)
    frame = read_table("sales", store)
    assert list(frame.columns) == dataset.schema.names
    assert theirs(frame) == ours(dataset)
    assert len(frame) == 40


@pytest.mark.parametrize(
    "predicates",
    [
        *([[("region", "==", region)]] for region in REGIONS),
        [[("year", ">", 2019), ("id", "<", 9)]],
        [[("name", "==", "näme 4")]],
        [[("amount", ">=", 3.0)]],
        [[("day", "==", date(2024, 3, 1))]],
        [[("at", "<", pd.Timestamp(2024, 2, 29, 12, 0, 0, 5))]],
        [[("id", "in", [1, 39])]],
    ],
)
def test_plateau_filter_returns_same_rows_as_scan(lake: Lake, store: str, predicates: Any) -> None:
    dataset = sales(lake)
    found = theirs(read_table("sales", store, predicates=predicates))
    assert found == ours(dataset, where=predicates)
    assert found


@pytest.mark.slow
def test_plateau_append_is_followed_by_further_appends(lake: Lake, store: str) -> None:
    dataset = sales(lake)
    version = dataset.version
    update_dataset_from_dataframes([table(40).to_pandas()], store=store, dataset_uuid="sales")
    assert dataset.rows == 60
    assert theirs(read_table("sales", store)) == ours(dataset)
    assert len(ours(dataset, as_of=version)) == 40

    dataset.append(table(60))
    assert dataset.rows == 80
    assert theirs(read_table("sales", store)) == ours(dataset)
    assert [record.operation for record in dataset.history()][:2] == [Operation.APPEND, Operation.EXTERNAL]
    assert [row["id"] for row in ours(dataset)] == list(range(80))


def test_null_column_gains_type_from_either_library(lake: Lake, store: str) -> None:
    dataset = lake.create_dataset("typed")
    dataset.append(pa.table({"id": [1], "x": pa.nulls(1), "y": pa.nulls(1)}))
    update_dataset_from_dataframes(
        [pd.DataFrame({"id": [2], "x": ["theirs"], "y": [None]})], store=store, dataset_uuid="typed"
    )
    dataset.append(pa.table({"id": [3], "x": ["ours"], "y": [7]}))
    assert ours(dataset) == [
        {"id": 1, "x": None, "y": None},
        {"id": 2, "x": "theirs", "y": None},
        {"id": 3, "x": "ours", "y": 7},
    ]
    assert [row["y"] for row in theirs(read_table("typed", store))] == [None, None, 7]


def test_dataset_created_by_plateau_is_readable_and_appendable(lake: Lake, store: str) -> None:
    frame = table(0).slice(0, 4).to_pandas()  # no '/' in a region: plateau writes it wrong
    store_dataframes_as_dataset(store, "sales", [frame], partition_on=["region", "year"])
    assert lake.datasets() == ["sales"]
    with pytest.raises(DatasetExists):
        lake.create_dataset("sales")
    dataset = lake.dataset("sales")
    assert dataset.rows == 4
    assert ours(dataset) == theirs(read_table("sales", store))
    assert lake.sql("SELECT count(*) n FROM sales WHERE region = '50%25'").read_all()["n"].to_pylist() == [1]

    dataset.append(table(4))
    assert ours(dataset) == theirs(read_table("sales", store))
    assert [row["id"] for row in ours(dataset)] == list(range(24))


def test_plateau_garbage_collection_keeps_all_versions(lake: Lake, store: str) -> None:
    dataset = sales(lake)
    before = ours(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        garbage_collect_dataset("sales", store)
    assert ours(dataset) == before
    assert len(ours(dataset, as_of=dataset.version - 1)) == 20


def test_plateau_reads_and_updates_empty_dataset(lake: Lake, store: str) -> None:
    lake.create_dataset("sales", ["k"], {"k": "string", "id": "int64", "tags": "list<string>"})
    frame = read_table("sales", store)
    assert len(frame) == 0
    assert list(frame.columns) == ["k", "id", "tags"]
    update_dataset_from_dataframes(
        [pd.DataFrame({"k": ["a"], "id": [1], "tags": [["x"]]})], store=store, dataset_uuid="sales"
    )
    assert ours(lake.dataset("sales")) == [{"k": "a", "id": 1, "tags": ["x"]}]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("d", [date(2024, 2, 29), date(1999, 12, 31)]),
        ("t", [datetime(2024, 2, 29, 1, 2, 3, 500000), datetime(2024, 2, 29)]),
        ("f", [0.1, -1e300]),
        ("i", [-5, 2**62]),
        ("u", pa.array([0, 2**63], pa.uint64())),
    ],
)
def test_plateau_reads_partition_values_from_paths(lake: Lake, store: str, column: str, values: Any) -> None:
    dataset = lake.create_dataset("parts", [column])
    dataset.append(pa.table({column: values, "id": [1, 2]}))
    assert theirs(read_table("parts", store)) == ours(dataset)
