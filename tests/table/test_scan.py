"""Reading what we and others wrote: rows, types, filters, order, memory, and what is wrong with a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kubothek.errors import FilterInvalid, InputError, PartitionInvalid, StoreError, VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import parse
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.scan import local_filter
from kubothek.table.scan import read as scanning
from kubothek.table.scan.read import scan
from kubothek.table.schema import parse_common_metadata
from tests.table import golden

MOMENT = datetime(2020, 1, 1, 1, 2, 3, 4)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def select(store: Store, dataset: Snapshot, where: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return scan(store, dataset, columns, parse(where)).read_all().to_pylist()


def schema_of(**types: pa.DataType) -> pa.Schema:
    return pa.schema(types)


def snapshot_of(head: Head, schema: pa.Schema) -> Snapshot:
    return Snapshot(head, schema, 1, None, None, None)


def dataset_of(store: Store, schema: pa.Schema, files: Mapping[str, pa.Table], **options: Any) -> Snapshot:
    """A table whose files, by partition path, hold exactly these columns."""
    partitions = {}
    for number, (path, table) in enumerate(files.items()):
        key = f"ds/table/{path}/{number}.parquet" if path else f"ds/table/{number}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        store.put(key, sink.getvalue().to_pybytes())
        partitions[f"{path}/{number}"] = {"files": {"table": key}}
    return snapshot_of(Head("ds", partitions), schema)


# --- golden data --------------------------------------------------------------------------------------------


def golden_dataset(name: str, uuid: str) -> tuple[Store, Snapshot, dict[str, Any]]:
    store = open_store(StoreConfig((golden.ROOT / name / "store").as_uri()))
    head = Head.parse(uuid, store.get(f"{uuid}.by-dataset-metadata.json"))
    schema = parse_common_metadata(store.get(f"{uuid}/table/_common_metadata"))
    return store, snapshot_of(head, schema), golden.expected(name)[uuid]


@pytest.mark.parametrize("name", ["k53-table", "p46-table"])
@pytest.mark.parametrize("uuid", ["sales", "sales-2"])
def test_scan_of_golden_dataset_returns_every_row(name: str, uuid: str) -> None:
    store, dataset, expected = golden_dataset(name, uuid)
    table = scan(store, dataset).read_all()
    assert table.column_names == expected["tables"]["table"]["columns"]
    assert golden.rows(table) == expected["tables"]["table"]["rows"]
    in_order = [row for partition in expected["partitions"] for row in partition["row_ids"]]
    assert table["id"].to_pylist() == in_order


@pytest.mark.parametrize("uuid", ["empty-explicit", "empty-file", "emptied"])
def test_scan_of_empty_golden_dataset_returns_columns(uuid: str) -> None:
    store, dataset, expected = golden_dataset("k53-empty", uuid)
    table = scan(store, dataset).read_all()
    assert table.num_rows == 0
    assert table.column_names == expected["tables"]["table"]["columns"]


# --- files of other writers ---------------------------------------------------------------------------------


def test_scan_converts_narrower_types_order_and_null_columns(store: Store) -> None:
    """Kartothek specification, "Data files of partitions": what readers must take from a data file."""
    schema = schema_of(
        i=pa.int64(),
        f=pa.float64(),
        s=pa.string(),
        n=pa.string(),
        t=pa.timestamp("us"),
        l=pa.list_(pa.string()),
    )
    table = pa.table(
        {
            "l": pa.array([["a"], None], pa.list_(pa.field("element", pa.large_string()))),
            "t": pa.array([MOMENT, None], pa.timestamp("us")),
            "n": pa.nulls(2),
            "s": pa.array(["x", None]).dictionary_encode(),
            "f": pa.array([0.5, None], pa.float32()),
            "i": pa.array([-1, None], pa.int8()),
        }
    )
    found = scan(store, dataset_of(store, schema, {"": table})).read_all()
    assert found.schema.equals(schema)
    assert found.to_pylist() == [
        {"i": -1, "f": 0.5, "s": "x", "n": None, "t": MOMENT, "l": ["a"]},
        dict.fromkeys(schema.names),
    ]


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (pa.table({"t": pa.array([MOMENT], pa.timestamp("ns"))}), {"use_deprecated_int96_timestamps": True}),
        (pa.table({"t": pa.array([MOMENT], pa.timestamp("us", "UTC"))}), {"store_schema": False}),
        (pa.table({"t": pa.array([MOMENT], pa.timestamp("ns"))}), {}),
    ],
    ids=["int96", "adjusted to UTC", "nanoseconds"],
)
def test_scan_reads_and_filters_foreign_timestamps(store: Store, table: pa.Table, options: dict[str, Any]) -> None:
    dataset = dataset_of(store, schema_of(t=pa.timestamp("us")), {"": table}, **options)
    moment = f"TIMESTAMP '{MOMENT}'"
    for found in (f"t = {moment}", f"t IN ({moment})", "t NOT IN (TIMESTAMP '2020-01-01')", f"t <= {moment}"):
        assert select(store, dataset, found) == [{"t": MOMENT}]
    for nothing in (f"t > {moment}", f"t != {moment}", f"t NOT IN ({moment})", "t IS NULL"):
        assert select(store, dataset, nothing) == []


def test_scan_fills_missing_columns_with_null_and_ignores_extra(store: Store) -> None:
    schema = schema_of(x=pa.int64(), y=pa.string())
    files = {"": pa.table({"x": [1], "z": [0]}), "a": pa.table({"x": [2], "y": ["b"]})}
    dataset = dataset_of(store, schema, files)
    assert scan(store, dataset).read_all().to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": "b"}]
    assert select(store, dataset, "y IS NULL", ["x"]) == [{"x": 1}]
    assert select(store, dataset, "y = 'b' OR y != 'b'", ["x"]) == [{"x": 2}]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("f > 5", [2]),
        ("f > 9", [2]),
        ("f >= 9", [2]),
        ("f != 5", [2]),
        ("f NOT IN (5)", [2]),
        ("f NOT IN (5) AND row < 2", []),
        ("NOT f <= 5", [2]),
        ("f = DOUBLE 'NaN'", [2]),
        ("f >= DOUBLE 'NaN'", [2]),
        ("f IN (7, DOUBLE 'NaN')", [2]),
        ("f = 5", [0, 1]),
        ("f <= 9", [0, 1]),
        ("f NOT IN (DOUBLE 'NaN')", [0, 1]),
        ("f < DOUBLE 'NaN'", [0, 1]),
        ("f NOT IN (5, DOUBLE 'NaN')", []),
    ],
)
def test_scan_finds_nan_beside_equal_numbers(store: Store, where: str, expected: list[int]) -> None:
    """The statistics of such a row group tell of one number only."""
    table = pa.table({"f": [5.0, 5.0, float("nan")], "row": [0, 1, 2]})
    dataset = dataset_of(store, schema_of(f=pa.float64(), row=pa.int64()), {"": table})
    assert [found["row"] for found in select(store, dataset, where)] == expected


def test_scan_prefers_path_value_over_contradicting_file(store: Store) -> None:
    schema = schema_of(k=pa.string(), x=pa.int64())
    dataset = dataset_of(store, schema, {"k=a%2Fb": pa.table({"k": ["wrong"], "x": [1]})})
    assert scan(store, dataset).read_all().to_pylist() == [{"k": "a/b", "x": 1}]
    assert select(store, dataset, "k = 'wrong'") == []
    assert select(store, dataset, "k = 'a/b'") == [{"k": "a/b", "x": 1}]


def test_scan_with_path_that_mismatches_schema_is_refused(store: Store) -> None:
    dataset = dataset_of(store, schema_of(k=pa.int64(), x=pa.int64()), {"k=one": pa.table({"x": [1]})})
    for where in (None, parse("k = 1")):
        with pytest.raises(PartitionInvalid, match="'one' in column 'k' is not of type int64"):
            scan(store, dataset, where=where).read_all()


# --- what is read -------------------------------------------------------------------------------------------


def test_scan_opens_only_matching_partitions_and_lists_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(k=pa.int64(), x=pa.int64())
    dataset = dataset_of(store, schema, {f"k={n}": pa.table({"x": [n]}) for n in range(20)})
    kept = ("ds/table/k=7/7.parquet", "ds/table/k=8/8.parquet")
    store.delete([key for key in dataset.head.files().values() if key not in kept])
    monkeypatch.delattr(type(store), "list")
    assert select(store, dataset, "k >= 7 AND k < 9", ["x"]) == [{"x": 7}, {"x": 8}]


def test_scan_returns_rows_in_order_of_head(store: Store) -> None:
    schema = schema_of(k=pa.int64(), x=pa.int64())
    order = [5, 3, 9, 1, 7, 2, 8, 0, 6, 4] * 5
    files = {f"k={k}/extra{n}": pa.table({"x": [n * 10, n * 10 + 1]}) for n, k in enumerate(order)}
    table = scan(store, dataset_of(store, schema, files)).read_all()
    assert table["x"].to_pylist() == [n * 10 + i for n in range(50) for i in (0, 1)]


def test_scan_opens_few_files_at_once_and_filters_only_where_needed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def spy(store: Store, keys: Collection[str], *more: Any) -> ds.FileSystemDataset:
        opened.append(len(keys))
        return open_files(store, keys, *more)

    open_files = scanning.open_files
    monkeypatch.setattr(scanning, "open_files", spy)
    monkeypatch.setattr(scanning, "_FILES_AT_ONCE", 3)
    monkeypatch.setattr(local_filter, "MOST_FILES", 0)
    schema = schema_of(k=pa.int64(), x=pa.int64())
    dataset = dataset_of(store, schema, {f"k={n}": pa.table({"x": [n, -n]}) for n in range(10)})
    assert [row["x"] for row in select(store, dataset, "k < 8 AND (x > 4 OR k < 4)")] == [
        0,
        0,
        1,
        -1,
        2,
        -2,
        3,
        -3,
        5,
        6,
        7,
    ]
    assert opened == [3, 3, 1]


def test_scan_returns_columns_in_requested_order(store: Store) -> None:
    dataset = dataset_of(store, schema_of(a=pa.int64(), b=pa.int64()), {"": pa.table({"a": [1], "b": [2]})})
    assert scan(store, dataset, ["b", "a"]).read_all().to_pylist() == [{"b": 2, "a": 1}]
    assert scan(store, dataset, []).read_all().num_rows == 1


@pytest.mark.slow
def test_scan_of_large_table_streams_in_bounded_memory(store: Store) -> None:
    """32 files of 8 MiB pass through much less memory than their sum."""
    table = pa.table({"x": pa.array(range(1 << 20))})
    dataset = dataset_of(store, schema_of(x=pa.int64()), {f"f{n}": table for n in range(32)}, compression="none")
    before = pa.total_allocated_bytes()
    peak = rows = 0
    for batch in scan(store, dataset):
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 32 << 20
    assert peak < 128 << 20


# --- errors -------------------------------------------------------------------------------------------------


@pytest.fixture
def flights(store: Store) -> Snapshot:
    return dataset_of(store, schema_of(carrier=pa.string(), delay=pa.int64()), {"": pa.table({"delay": [1]})})


def test_scan_with_unknown_column_is_refused_with_suggestion(store: Store, flights: Snapshot) -> None:
    with pytest.raises(InputError, match="no column 'carier'; did you mean 'carrier'"):
        scan(store, flights, ["carier"])
    with pytest.raises(FilterInvalid, match="no column 'dely'; did you mean 'delay'"):
        select(store, flights, "dely = 1")
    with pytest.raises(InputError, match="no column 'xyz'; there are carrier, delay"):
        scan(store, flights, ["xyz"])


def test_scan_with_incomparable_literal_is_refused(store: Store, flights: Snapshot) -> None:
    with pytest.raises(FilterInvalid, match="'delay' is int64: cannot compare it with the binary"):
        select(store, flights, "delay > X'00'")


def test_scan_with_missing_file_names_file(store: Store, flights: Snapshot) -> None:
    store.delete(["ds/table/0.parquet"])
    with pytest.raises(VersionIncomplete, match=r"no longer exists in file:.*ds/table/0\.parquet"):
        scan(store, flights).read_all()


def test_scan_with_damaged_file_names_file(store: Store, flights: Snapshot) -> None:
    store.put("ds/table/0.parquet", b"PAR1 not really")
    with pytest.raises(StoreError, match=r"ds/table/0\.parquet"):
        scan(store, flights).read_all()


def test_scan_returns_rows_of_writer(store: Store) -> None:
    schema = schema_of(k=pa.string(), x=pa.int64())
    table = pa.table({"k": ["a/b", "", "ü"] * 10, "x": list(range(30))})
    with PartitionedWriter(store, "ds", schema, Layout(partition_on=("k",))) as writer:
        writer.write(table)
        files = writer.finish()
    head = Head("ds", {file.label: {"files": {"table": file.key}} for file in files}, ("k",))
    found = scan(store, snapshot_of(head, schema)).read_all()
    assert found.sort_by("x").to_pylist() == table.to_pylist()
