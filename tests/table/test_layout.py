"""Layouts: what they refuse, how they are stored, and the files that the writer makes of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import LayoutInvalid, PartitionInvalid
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.bucketing import Bucketing
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import Head, PartitionFile
from kubothek.table.schema import normalise

SCHEMA = pa.schema([("p", pa.string()), ("s", pa.struct([("u", pa.int64()), ("v", pa.int64())])), ("x", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


class Seen:
    """What an observer sees, by label."""

    def __init__(self) -> None:
        self.groups: dict[str, list[pa.Table]] = {}

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        self.groups.setdefault(label, []).append(pa.Table.from_batches(batches))

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        assert key == f"ds/table/{label}.parquet"
        assert footer.equals(pq.read_metadata(pa.BufferReader(content)))
        assert footer.num_rows == sum(group.num_rows for group in self.groups[label])


def write(store: Store, layout: Layout, *tables: pa.Table, **options: Any) -> list[PartitionFile]:
    schema = normalise(tables[0].schema, layout.partition_on)
    with PartitionedWriter(store, "ds", schema, layout, **options) as writer:
        for table in tables:
            writer.write(table)
        return writer.finish()


def opened(store: Store, file: PartitionFile) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(store.get(file.key)))


# --- what makes no sense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Layout(target_file_bytes=0), "at least 1 byte"),
        (lambda: Layout(row_group_rows=0), "at least 1"),
        (lambda: Layout(compression="zip"), "use one of NONE, SNAPPY"),
        (lambda: Layout(bucket_by=("x",)), "numBuckets must be 1 to 65536"),
        (lambda: Layout(bucket_by=("x",), num_buckets=65537), "numBuckets must be 1 to 65536"),
        (lambda: Layout(num_buckets=4), "name the columns in bucketBy"),
    ],
)
def test_layout_with_invalid_values_is_refused(make: Callable[[], Layout], says: str) -> None:
    with pytest.raises(LayoutInvalid, match=says):
        make()


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout(sort_by=("nope",)), r"sortBy names column 'nope'; the columns are p, s, x"),
        (Layout(sort_by=("x", "x")), r"sortBy names column 'x' twice"),
        (Layout(sort_by=("p",), partition_on=("p",)), r"sortBy names partition column 'p'"),
        (Layout(sort_by=("s",)), r"sortBy names column 's' \(struct"),
        (Layout(bucket_by=("s",), num_buckets=2), r"bucketBy names column 's' \(struct"),
        (Layout(bucket_by=("nope",), num_buckets=2), r"bucketBy names column 'nope'"),
        (Layout(dictionary_columns=("nope",)), r"dictionaryColumns names column 'nope'"),
    ],
)
def test_layout_with_invalid_columns_is_refused_before_writing(store: Store, layout: Layout, says: str) -> None:
    with pytest.raises(LayoutInvalid, match=says):
        PartitionedWriter(store, "ds", SCHEMA, layout)
    assert list(store.list("")) == []


# --- in the head --------------------------------------------------------------------------------------------

FULL = Layout(
    partition_on=("p",),
    sort_by=("x", "y"),
    bucket_by=("y",),
    num_buckets=8,
    target_file_bytes=1000,
    row_group_rows=10,
    compression="SNAPPY",
    dictionary_columns=(),
)


@pytest.mark.parametrize("layout", [FULL, Layout(), Layout(dictionary_columns=("x",))])
def test_layout_survives_roundtrip_through_head(layout: Layout) -> None:
    metadata = {"creation_time": "then", "kubothek_layout": layout.to_json()}
    assert Layout.of(Head("ds", partition_keys=layout.partition_on, metadata=metadata)) == layout


def test_layout_of_foreign_table_has_defaults() -> None:
    assert Layout.of(Head("ds", partition_keys=("p",))) == Layout(partition_on=("p",))


def test_requested_layout_applies_except_for_partition_columns() -> None:
    head = Head("ds", partition_keys=("p",), metadata={"creation_time": "then", "kubothek_layout": Layout().to_json()})
    assert Layout.of(head, FULL) == FULL
    for other in ((), ("q",)):
        with pytest.raises(PartitionInvalid, match=r"partitioned on \['p'\], not on .*; that cannot be changed"):
            Layout.of(head, Layout(partition_on=other))


@pytest.mark.parametrize("metadata", [{}, {"kubothek_version": 7, "kubothek_since": 7}])
def test_layout_of_new_table_has_requested_partition_columns(metadata: dict[str, Any]) -> None:
    assert Layout.of(Head("ds", metadata=metadata), FULL) == FULL


@pytest.mark.parametrize("found", [[], "x", {"sortBy": 1}, {"numBuckets": "many"}, {"numBuckets": 3}])
def test_invalid_stored_layout_raises_layout_invalid(found: Any) -> None:
    with pytest.raises(LayoutInvalid):
        Layout.of(Head("ds", metadata={"kubothek_layout": found}))


# --- files --------------------------------------------------------------------------------------------------


def test_written_rows_are_sorted_per_file_with_declared_order(store: Store) -> None:
    rows = 20_000
    table = pa.table(
        {
            "k": [n % 3 for n in range(rows)],
            "a": [{"u": n, "v": n} for n in range(rows)],
            "t": [f"{n * 7919 % 97:02}" if n % 50 else None for n in range(rows)],
            "x": [n * 104_729 % rows for n in range(rows)],
        }
    )
    layout = Layout(partition_on=("k",), sort_by=("t", "x"))
    files = write(store, layout, *(table.slice(start, 1500) for start in range(0, rows, 1500)))
    assert len(files) == 3
    for file in files:
        found = opened(store, file)
        read = found.read()
        assert read == read.sort_by([("t", "ascending"), ("x", "ascending")])
        assert read["t"][-1].as_py() is None
        columns = [found.metadata.row_group(0).column(each.column_index) for each in _ordering(found)]
        assert [column.path_in_schema for column in columns] == ["t", "x"], "leaves: a struct counts for two"
        assert all(not each.descending and not each.nulls_first for each in _ordering(found))
    assert sum(file.rows for file in files) == rows


def _ordering(file: pq.ParquetFile) -> Sequence[pq.SortingColumn]:
    return file.metadata.row_group(0).sorting_columns


def test_sorted_files_of_partition_have_disjoint_ranges(store: Store) -> None:
    rows = 200_000
    values = [n * 0x9E3779B97F4A7C15 % 2**63 for n in range(rows)]
    table = pa.table({"x": values})
    layout = Layout(sort_by=("x",), target_file_bytes=128 << 10, compression="NONE", row_group_rows=5000)
    files = write(store, layout, *(table.slice(start, 10_000) for start in range(0, rows, 10_000)))
    assert len(files) > 5
    found = [opened(store, file).read()["x"].to_pylist() for file in files]
    assert [value for part in found for value in part] == sorted(values)
    assert all(file.bytes > 64 << 10 for file in files[:-1])


@pytest.mark.slow
def test_sorted_writer_stays_in_memory_budget_and_makes_large_files(store: Store) -> None:
    budget, target, rounds, rows = 16 << 20, 2 << 20, 24, 1 << 17
    table = pa.table({"x": pa.array(range(rows)), "y": [n * 104_729 % rows for n in range(rows)]})
    before = pa.total_allocated_bytes()
    peak = 0
    layout = Layout(sort_by=("y",), target_file_bytes=target, compression="SNAPPY", dictionary_columns=())
    schema = normalise(table.schema)
    with PartitionedWriter(store, "ds", schema, layout, memory_budget=budget) as writer:
        for _ in range(rounds):
            writer.write(table)
            peak = max(peak, pa.total_allocated_bytes() - before)
        files = writer.finish()
    assert peak < 2 * budget, "of 48 MiB"
    assert sum(file.rows for file in files) == rounds * rows
    small = [file for file in files if file.bytes < target]
    assert len(small) <= 1, "what would make a small file waits for more rows"
    for file in files:
        read = opened(store, file).read()
        assert read == read.sort_by("y")


def test_written_file_holds_one_bucket_named_in_label(store: Store) -> None:
    table = pa.table({"k": ["a", "b"] * 500, "x": list(range(1000)), "y": [str(n % 50) for n in range(1000)]})
    layout = Layout(partition_on=("k",), bucket_by=("y",), num_buckets=4)
    files = write(store, layout, table.slice(0, 300), table.slice(300))
    assert len(files) == 8
    bucketing = Bucketing.of(layout, normalise(table.schema, ["k"]))
    assert bucketing
    said = bucketing.read(pa.array([file.label for file in files])).to_pylist()
    for file, bucket in zip(files, said, strict=True):
        for batch in opened(store, file).read().to_batches():
            assert set(bucketing.buckets(batch).to_pylist()) == {bucket}
    assert sum(file.rows for file in files) == 1000
    assert sorted(file.label.split("/")[0] for file in files) == ["k=a"] * 4 + ["k=b"] * 4


def test_row_groups_have_requested_row_count(store: Store) -> None:
    table = pa.table({"x": list(range(2500))})
    for sort_by in ((), ("x",)):
        layout = Layout(row_group_rows=1000, sort_by=sort_by)
        (file,) = write(store, layout, table.slice(0, 999), table.slice(999, 3), table.slice(1002))
        metadata = opened(store, file).metadata
        assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [1000, 1000, 500]


@pytest.mark.parametrize(("columns", "encoded"), [(None, {"a", "b"}), ((), set()), (("b",), {"b"})])
def test_dictionary_columns_are_dictionary_encoded(
    store: Store, columns: tuple[str, ...] | None, encoded: set[str]
) -> None:
    table = pa.table({"a": ["x", "y"] * 50, "b": [1, 2] * 50})
    (file,) = write(store, Layout(dictionary_columns=columns), table)
    group = opened(store, file).metadata.row_group(0)
    found = {group.column(n).path_in_schema for n in range(2) if "RLE_DICTIONARY" in group.column(n).encodings}
    assert found == encoded


@pytest.mark.parametrize("compression", ["NONE", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"])
def test_written_file_has_requested_compression(store: Store, compression: str) -> None:
    (file,) = write(store, Layout(compression=compression), pa.table({"x": list(range(100))}))
    found = opened(store, file).metadata.row_group(0).column(0).compression
    assert found == {"NONE": "UNCOMPRESSED"}.get(compression, compression)


LAYOUTS = st.builds(
    lambda sort_by, buckets, rows, target: Layout(
        partition_on=("k",),
        sort_by=sort_by,
        bucket_by=("b",) if buckets else (),
        num_buckets=buckets,
        row_group_rows=rows,
        target_file_bytes=target,
    ),
    st.sampled_from([(), ("a",), ("b", "a")]),
    st.integers(0, 5),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([1, 2000, 1 << 20]),
)
CELLS = st.tuples(st.integers(0, 2), st.none() | st.integers(-3, 3), st.none() | st.text(max_size=2))
PIECES = st.lists(st.lists(CELLS, min_size=1, max_size=40), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(LAYOUTS, PIECES, st.sampled_from([1, 1 << 20]))
def test_writer_with_random_layout_writes_each_row_once_in_its_partition(
    tmp_path_factory: pytest.TempPathFactory, layout: Layout, pieces: list[list[tuple[Any, ...]]], budget: int
) -> None:
    store = open_store(StoreConfig(tmp_path_factory.mktemp("lake").as_uri()))
    types = (pa.int64(), pa.int64(), pa.string())
    tables = [
        pa.table({n: pa.array(c, t) for n, c, t in zip("kab", zip(*rows, strict=True), types, strict=True)})
        for rows in pieces
    ]
    seen = Seen()
    files = write(store, layout, *tables, observer=seen, memory_budget=budget)
    bucketing = Bucketing.of(layout, normalise(tables[0].schema, ["k"]))
    rows: list[tuple[Any, ...]] = []
    for file in files:
        found = opened(store, file)
        read = found.read()
        key = int(file.label.split("/")[0].removeprefix("k="))
        rows += [(key, row["a"], row["b"]) for row in read.to_pylist()]
        assert pa.concat_tables(seen.groups[file.label]).to_pylist() == read.to_pylist()
        assert len(seen.groups[file.label]) == found.num_row_groups
        assert all(found.metadata.row_group(n).num_rows <= layout.row_group_rows for n in range(found.num_row_groups))
        if layout.sort_by:
            assert read == read.sort_by([(column, "ascending") for column in layout.sort_by])
        if bucketing:
            (bucket,) = bucketing.read(pa.array([file.label])).to_pylist()
            assert {b for batch in read.to_batches() for b in bucketing.buckets(batch).to_pylist()} == {bucket}
    assert sorted(map(repr, rows)) == sorted(repr(row) for piece in pieces for row in piece)
