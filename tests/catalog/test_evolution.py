"""Schema evolution through the Python door, and what plateau makes of old and new files together."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pyarrow as pa
import pytest
from plateau.io.eager import read_table, update_dataset_from_dataframes

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import LayoutInvalid, PartitionInvalid, SchemaMismatch
from kubothek.table.layout import Layout
from kubothek.table.schema import parse_common_metadata

OLD = pa.table({"k": ["a", "a"], "x": [1, 2]})
NEW = pa.table({"k": ["a"], "x": [3], "n": [7.5]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def plateau(tmp_path: Path) -> Callable[[], Any]:
    return lambda: minimalkv.get_store_from_url(f"hfs://{tmp_path}")


@pytest.fixture
def table(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t", partition_on=["k"])
    dataset.append(OLD)
    return dataset


def common(lake: Lake) -> pa.Schema:
    return parse_common_metadata(lake.store.get("t/table/_common_metadata"))


def test_append_adds_column_only_with_evolve(lake: Lake, table: Dataset) -> None:
    before = {info.key for info in lake.store.list("t/")}
    with pytest.raises(SchemaMismatch, match=r"n +- +double +not in the table"):
        table.append(NEW)
    assert {info.key for info in lake.store.list("t/")} == before
    table.append(NEW, evolve=True)
    assert table.schema.names == ["k", "n", "x"]
    rows = table.scan(columns=["x", "n"]).read_all().sort_by("x").to_pylist()
    assert rows == [{"x": 1, "n": None}, {"x": 2, "n": None}, {"x": 3, "n": 7.5}]
    assert common(lake) == table.schema


@pytest.mark.parametrize(
    ("where", "found"),
    [("n IS NULL", [1, 2]), ("n IS NOT NULL", [3]), ("n > 1", [3]), ("n != 7.5", []), ("n = 7.5 OR x = 1", [1, 3])],
)
def test_filter_on_column_missing_from_old_files_reads_null(table: Dataset, where: str, found: list[int]) -> None:
    table.append(NEW, evolve=True)
    assert table.scan(where=where).read_all().sort_by("x")["x"].to_pylist() == found


def test_filter_on_widened_decimal_finds_rows_in_old_files(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    for text, digits in (("1.50", 5), ("2.5", 5), ("123456.125", 12)):
        scale = 3 if digits == 12 else 2
        dataset.append(pa.table({"d": pa.array([Decimal(text)], pa.decimal128(digits, scale))}), evolve=True)
    assert dataset.scan(where="d = 1.5 OR d > 100000").read_all()["d"].to_pylist() == [
        Decimal("1.500"),
        Decimal("123456.125"),
    ]


def test_append_without_column_stores_null_only_with_evolve(table: Dataset) -> None:
    table.append(NEW, evolve=True)
    with pytest.raises(SchemaMismatch, match=r"n +double +- +missing"):
        table.append(OLD)
    table.append(OLD, evolve=True)
    assert table.scan(columns=["n"]).read_all()["n"].to_pylist().count(None) == 4
    assert table.schema.names == ["k", "n", "x"]


def test_evolving_append_without_partition_column_is_refused(table: Dataset) -> None:
    with pytest.raises(SchemaMismatch, match="no column 'k' to partition on"):
        table.append(NEW.drop_columns(["k"]), evolve=True)


@pytest.mark.parametrize("name", ["partition", "__secret"])
def test_evolving_append_with_reserved_column_name_is_refused(table: Dataset, name: str) -> None:
    with pytest.raises(SchemaMismatch, match="reserves this name"):
        table.append(OLD.append_column(name, pa.array([1, 2])), evolve=True)


def test_plateau_reads_and_updates_evolved_table(lake: Lake, table: Dataset, plateau: Callable[[], Any]) -> None:
    table.append(NEW, evolve=True)
    frame = read_table("t", store=plateau).sort_values("x")
    assert list(frame.columns) == ["k", "n", "x"]
    assert frame["x"].tolist() == [1, 2, 3]
    assert frame["n"].isna().tolist() == [True, True, False]
    assert read_table("t", store=plateau, columns=["x"], predicates=[[("x", ">", 1)]])["x"].tolist() == [2, 3]
    update_dataset_from_dataframes(
        [pd.DataFrame({"k": ["b"], "x": [4], "n": [8.5]})], store=plateau, dataset_uuid="t", partition_on=["k"]
    )
    assert table.rows == 4
    table.append(OLD, evolve=True)
    assert len(read_table("t", store=plateau)) == 6
    assert common(lake) == table.schema


def test_plateau_column_selection_fails_on_files_before_evolution(table: Dataset, plateau: Callable[[], Any]) -> None:
    """The limit that docs/layout.md tells of: it holds until the old files are rewritten."""
    table.append(NEW, evolve=True)
    with pytest.raises(ValueError, match="Columns cannot be found in stored dataframe: n"):
        read_table("t", store=plateau, columns=["n"])


def test_widened_decimals_are_read_by_plateau(lake: Lake, plateau: Callable[[], Any]) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(pa.table({"d": pa.array([Decimal("1.50")], pa.decimal128(5, 2))}))
    wide = pa.table({"d": pa.array([Decimal("1234567.125")], pa.decimal128(10, 3))})
    with pytest.raises(SchemaMismatch, match=r"1234567.125 in row 1 .* let the table evolve"):
        dataset.append(wide)
    dataset.append(wide, evolve=True)
    assert dataset.schema.field("d").type == pa.decimal128(10, 3)
    expected = [Decimal("1.500"), Decimal("1234567.125")]
    assert dataset.scan().read_all()["d"].to_pylist() == expected
    assert read_table("t", store=plateau)["d"].tolist() == expected
    update_dataset_from_dataframes([pd.DataFrame({"d": [Decimal("9999999.999")]})], store=plateau, dataset_uuid="t")
    assert dataset.scan().read_all()["d"].to_pylist() == [*expected, Decimal("9999999.999")]


def test_null_column_gains_type_without_evolve(lake: Lake, plateau: Callable[[], Any]) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(pa.table({"x": [1], "y": pa.nulls(1)}))
    dataset.append(pa.table({"x": [2], "y": ["text"]}))
    dataset.append(pa.table({"x": [3], "y": pa.nulls(1)}))
    assert common(lake).field("y").type == pa.string()
    assert read_table("t", store=plateau).sort_values("x")["y"].isna().tolist() == [True, False, True]


def test_concurrent_appends_land_while_one_adds_column(lake: Lake, table: Dataset) -> None:
    """What was written for the old schema is as good for the new one: nothing is written again."""
    both = threading.Barrier(2)

    def rows(piece: pa.Table) -> Iterator[pa.RecordBatch]:
        both.wait(10)  # both have seen the same version by now
        yield from piece.to_batches()

    def append(piece: pa.Table) -> None:
        lake.dataset("t").append(rows(piece), evolve=piece is NEW)

    threads = [threading.Thread(target=append, args=[piece]) for piece in (OLD, NEW)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.rows == 5
    assert table.schema.names == ["k", "n", "x"]


def test_column_overwritten_by_foreign_writer_is_recovered(
    lake: Lake, table: Dataset, plateau: Callable[[], Any]
) -> None:
    """plateau had read the head and the schema before the column came, and puts both blindly after it."""
    old = {key: lake.store.get(key) for key in ("t.by-dataset-metadata.json", "t/table/_common_metadata")}
    table.append(NEW, evolve=True)
    for key, content in old.items():
        lake.store.put(key, content)
    frame = pd.DataFrame({"k": ["b"], "x": [4]})
    update_dataset_from_dataframes([frame], store=plateau, dataset_uuid="t", partition_on=["k"])
    table.append(pa.table({"k": ["c"], "x": [5], "n": [1.5]}), evolve=True)
    rows = table.scan(columns=["x", "n"]).read_all().sort_by("x").to_pydict()
    assert rows == {"x": [1, 2, 3, 4, 5], "n": [None, None, 7.5, None, 1.5]}
    assert common(lake) == table.schema
    assert len(read_table("t", store=plateau)) == 5


# --- layout -------------------------------------------------------------------------------------------------


def test_layout_is_kept_by_every_later_writer(lake: Lake, plateau: Callable[[], Any]) -> None:
    layout = Layout(sort_by=("x",), bucket_by=("y",), num_buckets=2, compression="SNAPPY", row_group_rows=10)
    dataset = lake.create_dataset(
        "t", sort_by=["x"], bucket_by=["y"], num_buckets=2, compression="SNAPPY", row_group_rows=10
    )
    dataset.append(pa.table({"x": [3, 1, 2], "y": ["a", "a", "a"]}))
    assert dataset.scan().read_all()["x"].to_pylist() == [1, 2, 3]
    update_dataset_from_dataframes([pd.DataFrame({"x": [9, 8], "y": ["a", "b"]})], store=plateau, dataset_uuid="t")
    kubothek.open(lake.store.config.url).dataset("t").append(pa.table({"x": [6, 5, 4], "y": ["a", "a", "a"]}))
    assert dataset.scan().read_all()["x"].to_pylist() == [1, 2, 3, 9, 8, 4, 5, 6]
    head = json.loads(lake.store.get("t.by-dataset-metadata.json"))
    head["metadata"] = {}  # as kartothek's index build leaves it (seen with plateau 4.6)
    lake.store.put("t.by-dataset-metadata.json", json.dumps(head).encode())
    dataset.append(pa.table({"x": [6, 5, 4], "y": ["a", "a", "a"]}))
    assert dataset.layout == layout
    assert read_table("t", store=plateau)["x"].tolist() == [1, 2, 3, 9, 8, 4, 5, 6, 4, 5, 6]


def test_set_layout_applies_to_later_writes(lake: Lake) -> None:
    dataset = lake.create_dataset("t", partition_on=["k"], schema={"k": "int64", "x": "int64"})
    dataset.append(pa.table({"k": [1, 1], "x": [2, 1]}))
    wanted = replace(dataset.layout, sort_by=("x",))
    done = dataset.set_layout(wanted)
    assert (done.version, done.added.files, dataset.layout) == (3, 0, wanted)
    assert next(iter(dataset.history())).operation == "Layout"
    dataset.append(pa.table({"k": [1, 1], "x": [4, 3]}))
    assert dataset.scan().read_all()["x"].to_pylist() == [2, 1, 3, 4]
    with pytest.raises(LayoutInvalid, match="sortBy names column 'nope'"):
        dataset.set_layout(Layout(partition_on=("k",), sort_by=("nope",)))
    with pytest.raises(PartitionInvalid, match="cannot be changed"):
        dataset.set_layout(Layout(sort_by=("x",)))
    assert dataset.layout == wanted
