"""The Python door: create, append, scan, time travel, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    BucketNotFound,
    DatasetExists,
    DatasetNotFound,
    DataTypeMismatch,
    FilterInvalid,
    InputError,
    LayoutInvalid,
    OwnedByAnother,
    PartitionInvalid,
    SchemaMismatch,
    VersionIncomplete,
    VersionNotFound,
)
from kubothek.table.expressions import Filter, parse
from kubothek.table.log import AlreadyApplied, Claim, DatasetLog, Operation
from tests.table import golden


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def flights(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("flights", partition_on=["month"])
    dataset.append(pa.table({"month": [1, 1, 2], "carrier": ["AA", "UA", "AA"], "delay": [5, -3, None]}))
    return dataset


def keys_in(lake: Lake) -> set[str]:
    return {info.key for info in lake.store.list("")}


# --- opening --------------------------------------------------------------------------------------------------------


def test_package_import_loads_no_heavy_modules() -> None:
    script = "import kubothek, sys; print([m for m in ('pyarrow', 'boto3', 'duckdb', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_open_with_unsupported_url_is_refused() -> None:
    with pytest.raises(InputError, match="file:///absolute/path"):
        kubothek.open("ftp://data/lake")


def test_open_of_missing_directory_raises_bucket_not_found(tmp_path: Path) -> None:
    with pytest.raises(BucketNotFound):
        kubothek.open((tmp_path / "absent").as_uri()).datasets()


# --- creating -------------------------------------------------------------------------------------------------------


def test_new_dataset_is_empty_and_has_given_schema(lake: Lake) -> None:
    created = lake.create_dataset("days", ["day"], {"value": "float32", "day": "date32", "tags": "list<string>"})
    assert created.schema.names == ["day", "tags", "value"]
    assert created.schema.types == [pa.date32(), pa.list_(pa.string()), pa.float64()]
    assert created.rows == 0
    assert created.scan().read_all().num_rows == 0
    assert [record.operation for record in created.history()] == [Operation.CREATE]
    assert lake.dataset("days").version == created.version == 1


def test_dataset_without_schema_gets_schema_of_first_append(lake: Lake) -> None:
    created = lake.create_dataset("a", ["k"])
    assert created.schema == pa.schema([])
    assert created.scan().read_all().num_rows == 0
    created.append(pa.table({"x": pa.array([1], pa.int8()), "k": ["a"]}))
    assert created.schema.names == ["k", "x"]
    assert created.schema.types == [pa.string(), pa.int64()]


def test_create_dataset_with_existing_name_is_refused(lake: Lake, flights: Dataset) -> None:
    with pytest.raises(DatasetExists, match="'flights'"):
        lake.create_dataset("flights")
    assert flights.rows == 3


def test_concurrent_creations_of_one_dataset_succeed_once(lake: Lake) -> None:
    start = threading.Barrier(4)
    outcomes: list[str] = []

    def create(key: str) -> None:
        start.wait()
        try:
            Lake(lake.store).create_dataset("a", [key], {"x": "int64", key: "string"})
            outcomes.append(key)
        except DatasetExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=create, args=(f"k{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[:3] == ["exists"] * 3
    assert lake.dataset("a").schema.names[0] == max(outcomes)


@pytest.mark.parametrize(
    ("name", "keys", "schema", "error"),
    [
        ("no/slash", [], None, InputError),
        ("++cube", [], None, InputError),
        ("a", ["k", "k"], None, SchemaMismatch),
        ("a", ["k"], {"x": "int64"}, SchemaMismatch),
        ("a", ["k"], {"x": "int64", "k": "bool"}, PartitionInvalid),
        ("a", [], {"x": "integer"}, SchemaMismatch),
        ("a", [], {"__x": "int64"}, SchemaMismatch),
        ("a", [], pa.schema([pa.field("x", pa.list_(pa.timestamp("us", "UTC")))]), SchemaMismatch),
    ],
)
def test_create_dataset_with_unsupported_table_is_refused_before_writing(
    lake: Lake, name: str, keys: list[str], schema: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        lake.create_dataset(name, keys, schema)
    assert keys_in(lake) == set()


def test_dataset_listing_omits_objects_below_datasets(lake: Lake, flights: Dataset) -> None:
    lake.create_dataset("a-1")
    lake.store.put("flights.txt", b"")
    lake.store.put("old.by-dataset-metadata.msgpack.zstd", b"")
    assert lake.datasets() == ["a-1", "flights", "old"]


def test_missing_dataset_raises_dataset_not_found(lake: Lake) -> None:
    with pytest.raises(DatasetNotFound, match="'flights'"):
        lake.dataset("flights")
    with pytest.raises(DatasetNotFound):
        Dataset(lake, "flights").append(pa.table({"x": [1]}))
    assert keys_in(lake) == set()


# --- appending ------------------------------------------------------------------------------------------------------


def test_scan_returns_appended_rows(flights: Dataset) -> None:
    assert flights.scan().read_all().to_pylist() == [
        {"month": 1, "carrier": "AA", "delay": 5},
        {"month": 1, "carrier": "UA", "delay": -3},
        {"month": 2, "carrier": "AA", "delay": None},
    ]
    assert flights.scan(["delay"], where="carrier = 'AA'").read_pandas()["delay"].to_list()[0] == 5


TABLE = pa.table({"month": [3, 3], "carrier": ["DL", "DL"], "delay": [1, 2]})


class Stream:
    """Something of another library that gives Arrow data."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: TABLE.to_batches()[0],
        lambda: TABLE.to_reader(),
        lambda: TABLE.to_pandas(),
        lambda: TABLE.to_pandas().set_index(pd.Index([7, 8])),
        lambda: iter(TABLE.to_batches(max_chunksize=1)),
        lambda: [TABLE.slice(0, 1), TABLE.slice(1, 1)],
        Stream,
    ],
    ids=["table", "batch", "reader", "pandas", "pandas with index", "batches", "tables", "stream"],
)
def test_append_accepts_every_row_container(flights: Dataset, make: Callable[[], Any]) -> None:
    committed = flights.append(make())
    assert committed.added.rows == 2
    assert committed.totals.rows == flights.rows == 5
    assert flights.scan(where="month = 3").read_all()["delay"].to_pylist() == [1, 2]


def test_append_creates_version_readable_later(flights: Dataset) -> None:
    before = flights.version
    time_before = flights.snapshot().time
    assert time_before is not None
    second = flights.append(TABLE)
    third = flights.append(TABLE)
    assert (second.version, third.version) == (before + 1, before + 2)
    assert [record.version for record in flights.history()] == [before + 2, before + 1, before, before - 1]
    assert flights.scan(as_of=before).read_all().num_rows == 3
    assert flights.scan(as_of=second.version).read_all().num_rows == 5
    assert flights.scan(as_of=time_before).read_all().num_rows == 3
    with pytest.raises(VersionNotFound):
        flights.scan(as_of=99)
    with pytest.raises(VersionNotFound):
        flights.scan(as_of=datetime(2000, 1, 1, tzinfo=UTC))


def test_append_with_same_id_is_applied_once(flights: Dataset) -> None:
    first = flights.append(TABLE, id="load-1")
    again = flights.append(TABLE, id="load-1")
    assert isinstance(again, AlreadyApplied)
    assert (again.version, again.added) == (first.version, first.added)
    assert flights.rows == 5


def test_concurrent_appends_in_threads_all_land(lake: Lake, flights: Dataset) -> None:
    def append() -> None:
        for _ in range(5):
            Dataset(Lake(lake.store), "flights").append(TABLE)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flights.rows == 3 + 4 * 5 * 2
    assert flights.scan().read_all().num_rows == flights.rows


def test_append_converts_narrow_types_and_time_zones_to_stored_types(lake: Lake) -> None:
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)
    days = lake.create_dataset("days")
    days.append(
        pa.table(
            {
                "i": pa.array([1], pa.int8()),
                "t": pa.array([moment], pa.timestamp("ms", "Asia/Tokyo")),
                "c": pa.array(["x"]).dictionary_encode(),
                "n": pa.nulls(1),
            }
        )
    )
    days.append(pa.table({"n": ["known now"], "c": ["y"], "t": [moment + timedelta(days=1)], "i": [2]}))
    assert days.schema.field("n").type == pa.string()
    assert days.scan().read_all().to_pylist() == [
        {"c": "x", "i": 1, "n": None, "t": moment},
        {"c": "y", "i": 2, "n": "known now", "t": moment + timedelta(days=1)},
    ]


def later_batch_differs() -> Iterator[pa.Table]:
    yield TABLE
    yield TABLE.append_column("more", pa.array([1, 2]))


def fails_halfway() -> Iterator[pa.Table]:
    yield TABLE
    raise ConnectionError("the source is gone")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (TABLE.drop_columns(["delay"]), SchemaMismatch, r"delay .* missing"),
        (TABLE.append_column("more", pa.array([1, 2])), SchemaMismatch, r"more +- +int64 +not in the table"),
        (
            TABLE.set_column(2, "delay", pa.array(["late", "soon"])),
            SchemaMismatch,
            r"delay +int64 +string +another type",
        ),
        (TABLE.set_column(0, "month", pa.array([1, None])), PartitionInvalid, "'month' has nulls"),
        (TABLE.drop_columns(["month"]), SchemaMismatch, "no column 'month' to partition on"),
        (TABLE.append_column("delay", pa.array([1, 2])), SchemaMismatch, "more than once"),
        ([1, 2], InputError, "cannot write int"),
        (pd.DataFrame({"month": [1, 2], "carrier": ["AA", 5], "delay": [1, 2]}), DataTypeMismatch, "carrier"),
        (later_batch_differs(), SchemaMismatch, "one schema"),
        (fails_halfway(), ConnectionError, "gone"),
    ],
)
def test_append_with_bad_rows_leaves_dataset_unchanged(
    flights: Dataset, data: Any, error: type[Exception], message: str
) -> None:
    before = flights.snapshot()
    with pytest.raises(error, match=message):
        flights.append(data)
    after = flights.snapshot()
    assert (after.etag, after.version) == (before.etag, before.version)
    assert flights.rows == 3


def test_append_writes_files_of_dataset_target_size(lake: Lake) -> None:
    small = lake.create_dataset("small", target_file_size=100_000)
    committed = Dataset(Lake(lake.store), small.name).append(
        pa.table({"x": [n * 50_021 % 104_729 for n in range(100_000)]})
    )
    assert committed.added.files > 2


@pytest.mark.parametrize("size", [0, -1])
def test_create_dataset_with_invalid_target_file_size_is_refused(lake: Lake, size: int) -> None:
    with pytest.raises(LayoutInvalid, match="target file size"):
        lake.create_dataset("small", target_file_size=size)


@pytest.mark.slow
def test_append_of_record_batch_reader_streams_in_bounded_memory(lake: Lake) -> None:
    """More than the writer's budget passes, and the source is asked for one batch at a time."""
    batch = pa.record_batch({"x": pa.array(range(1 << 16))})
    before = pa.total_allocated_bytes()
    peak = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for _ in range(800):
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"x": pc.add(batch["x"], 1)})

    dataset = lake.create_dataset("stream")
    dataset.append(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    assert dataset.rows == 800 << 16
    assert peak < 300 << 20


# --- ownership ------------------------------------------------------------------------------------------------------


def test_claimed_dataset_is_readable_and_refuses_append_and_create(lake: Lake, flights: Dataset) -> None:
    DatasetLog(lake.store, "flights", claim=Claim("cluster/ns/flights", "uid")).settle()
    with pytest.raises(OwnedByAnother, match="cluster/ns/flights"):
        flights.append(TABLE)
    with pytest.raises(OwnedByAnother):
        lake.create_dataset("flights")
    assert flights.rows == 3
    assert flights.scan().read_all().num_rows == 3


@pytest.mark.parametrize(
    "write",
    [
        lambda flights: flights.append(TABLE),
        lambda flights: flights.append(TABLE, id="again"),
        lambda flights: flights.replace(TABLE),
        lambda flights: flights.overwrite(TABLE),
        lambda flights: flights.delete("TRUE"),
        lambda flights: flights.rollback(1),
        lambda flights: flights.set_layout(flights.layout),
        lambda flights: flights.tag("audit"),
        lambda flights: flights.untag("audit"),
        lambda flights: flights.heal(),
        lambda flights: flights.collect(keep_versions=1, enforce=True),
        lambda flights: flights.compact(),
    ],
)
def test_claimed_dataset_refuses_every_write_and_stays_unchanged(
    lake: Lake, flights: Dataset, write: Callable[[Dataset], object]
) -> None:
    DatasetLog(lake.store, "flights", claim=Claim("cluster/ns/flights", "uid")).settle()
    before = keys_in(lake)
    with pytest.raises(OwnedByAnother):
        write(flights)
    assert keys_in(lake) == before


def test_deleted_dataset_raises_dataset_not_found(lake: Lake, flights: Dataset) -> None:
    DatasetLog(lake.store, "flights").delete()
    with pytest.raises(DatasetNotFound, match="deleted"):
        lake.dataset("flights")
    with pytest.raises(DatasetNotFound, match="deleted"):
        flights.scan()


@pytest.mark.parametrize(
    "where", ["month = 1 AND delay >= 0", [[("month", "==", 1), ("delay", ">=", 0)]], parse("month = 1 AND delay >= 0")]
)
def test_scan_filter_accepts_text_lists_and_predicate(flights: Dataset, where: Filter) -> None:
    assert flights.scan(["month", "delay"], where).read_all().to_pylist() == [{"month": 1, "delay": 5}]


def test_plan_reports_files_left_by_each_step(flights: Dataset) -> None:
    files = len(flights.snapshot().head.partitions)
    planned = flights.plan("month = 1")
    assert planned.steps[0] == ("table", files)
    assert ("partition keys", len(planned.files)) in planned.steps
    assert 0 < len(planned.files) < files
    with pytest.raises(FilterInvalid, match="no column 'month'; the table has none yet"):
        flights.plan("month = 1", as_of=1)


def test_scan_with_arrow_expression_as_filter_is_refused_with_hint(flights: Dataset) -> None:
    with pytest.raises(FilterInvalid, match="expected a list of lists"):
        flights.scan(where=cast("Any", pc.field("month") == 1))


def test_scan_of_version_with_missing_files_raises_version_incomplete(lake: Lake, flights: Dataset) -> None:
    (gone,) = (key for key in keys_in(lake) if key.startswith("flights/table/month=2/"))
    lake.store.delete([gone])
    assert flights.scan(where=[[("month", "==", 1)]]).read_all().num_rows == 2
    with pytest.raises(VersionIncomplete, match="month=2"):
        flights.scan().read_all()


# --- golden data through the door -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        *((name, uuid) for name in ("k53-table", "p46-table") for uuid in ("sales", "sales-2")),
        *(("k53-empty", uuid) for uuid in ("empty-header", "empty-explicit", "empty-file", "emptied")),
    ],
)
def test_golden_dataset_of_both_libraries_is_readable(name: str, uuid: str) -> None:
    expected = golden.expected(name)
    lake = kubothek.open((golden.ROOT / name / "store").as_uri())
    assert lake.datasets() == sorted(expected)
    dataset = lake.dataset(uuid)
    table = expected[uuid]["tables"]["table"]
    assert dataset.schema.names == table["columns"]
    assert dataset.rows == len(table["rows"])
    assert golden.rows(dataset.scan().read_all()) == table["rows"]


def test_partition_dates_survive_roundtrip(lake: Lake) -> None:
    days = lake.create_dataset("days", ["day"])
    days.append(pa.table({"day": [date(2024, 2, 29), date(1900, 1, 1)], "x": [1, 2]}))
    assert days.scan(where="day < DATE '2000-01-01'").read_all().to_pylist() == [{"day": date(1900, 1, 1), "x": 2}]
