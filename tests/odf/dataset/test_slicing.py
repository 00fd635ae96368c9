"""SL-10 … SL-18 and HS: what a slice looks like that Kubothek wrote, by the eyes of a plain Parquet reader."""

from __future__ import annotations

import hashlib
import io
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import DataTypeMismatch, SchemaMismatch
from kubothek.odf import Layout, Timestamp, Vocabulary, logical_hash
from kubothek.odf.dataset.slicing import SliceWriter, Types, evolved, slice_schema
from kubothek.storage import Store

pytestmark = pytest.mark.slow

NOON = Timestamp.parse("2024-01-01T12:00:00Z")
TIME = pa.timestamp("ms", "UTC")


def rows(values: range, **columns: Any) -> pa.RecordBatch:
    usual = {
        "op": pa.array([0] * len(values), pa.int32()),
        "event_time": pa.array([1000 * value for value in values], TIME),
        "value": pa.array(values, pa.int64()),
    }
    return pa.RecordBatch.from_pydict({**usual, **columns})


def written(store: Store, batches: list[pa.RecordBatch], **options: Any) -> tuple[pa.Schema, list[Any]]:
    types = options.pop("types", Types.KAMU)
    schema = slice_schema(batches[0].schema, Vocabulary(), types)
    usual = {"first_offset": 0, "system_time": NOON, **options}
    with SliceWriter(store, Layout(), schema, Vocabulary(), **usual) as writer:
        for batch in batches:
            writer.write(batch)
        return schema, writer.finish()


@pytest.mark.requirement("SL-10", "SL-11", "SL-12", "SL-13", "SL-14", "SL-15", "SL-16", "SL-17", "SL-18")
def test_slice_file_has_layout_of_reference_implementation(store: Store) -> None:
    _, [each] = written(store, [rows(range(3)), rows(range(3, 5))], first_offset=7)
    data = store.get(f"data/{each.data.physical_hash}")
    file = pq.ParquetFile(io.BytesIO(data))
    assert (each.data.offset_interval.start, each.data.offset_interval.end, each.data.size) == (7, 11, len(data))
    assert each.latest == Timestamp.parse("1970-01-01T00:00:04Z")
    assert file.metadata.format_version == "1.0"
    assert file.metadata.num_row_groups == 1
    assert b"ARROW:schema" not in (file.metadata.metadata or {})
    group = file.metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert list(columns) == ["offset", "op", "system_time", "event_time", "value"]
    assert {column.compression for column in columns.values()} == {"SNAPPY"}
    for name, column in columns.items():
        ascending = name in ("offset", "event_time")
        assert ("DELTA_BINARY_PACKED" if ascending else "PLAIN_DICTIONARY") in column.encodings, name
    found = file.read()
    assert found["offset"].to_pylist() == [7, 8, 9, 10, 11]
    assert found.schema.field("system_time").type == TIME
    assert [file.schema.column(n).physical_type for n in range(3)] == ["INT64", "INT32", "INT64"]


@pytest.mark.requirement("SL-18")
def test_slice_column_with_mostly_unique_values_has_no_dictionary(store: Store) -> None:
    _, [each] = written(store, [rows(range(100_000))])
    group = pq.ParquetFile(io.BytesIO(store.get(f"data/{each.data.physical_hash}"))).metadata.row_group(0)
    assert "PLAIN" in group.column(4).encodings
    assert group.column(4).total_uncompressed_size < 1.1 * 800_000


@pytest.mark.requirement("HS-01", "HS-02")
def test_slice_hashes_match_stored_bytes_and_records(store: Store) -> None:
    schema, [each] = written(store, [rows(range(5), text=pa.array(["a", None, "", "b", "ä"]))])
    data = store.get(f"data/{each.data.physical_hash}")
    assert str(each.data.physical_hash) == "f1620" + hashlib.sha3_256(data).hexdigest()
    read = pq.read_table(io.BytesIO(data))
    assert read.schema.equals(schema)
    assert logical_hash(read.schema, read.to_batches()) == each.data.logical_hash


@pytest.mark.requirement("SL-12", "SL-13")
@pytest.mark.parametrize("types", Types)
def test_slice_common_columns_have_requested_types(store: Store, types: Types) -> None:
    schema, [each] = written(store, [rows(range(3))], types=types)
    read = pq.read_table(io.BytesIO(store.get(f"data/{each.data.physical_hash}")))
    assert read.schema.types[:2] == schema.types[:2] == [types.offset, types.op]


def test_types_missing_in_parquet_are_stored_as_read_back(store: Store) -> None:
    odd = {
        "unsigned": pa.array([0, 2**32 - 1], pa.uint32()),
        "large": pa.array(["x", None], pa.large_string()),
        "coded": pa.array(["x", "y"]).dictionary_encode(),
        "day": pa.array([0, 86_400_000], pa.date64()),
    }
    schema, [each] = written(store, [rows(range(2), **odd)])
    read = pq.read_table(io.BytesIO(store.get(f"data/{each.data.physical_hash}")))
    assert read.schema.equals(schema)
    assert read["unsigned"].to_pylist() == [0, 2**32 - 1]
    assert logical_hash(read.schema, read.to_batches()) == each.data.logical_hash


def test_many_rows_are_split_into_slices_with_contiguous_offsets(store: Store) -> None:
    batches = [rows(range(start, start + 1000)) for start in range(0, 10_000, 1000)]
    _, slices = written(store, batches, slice_bytes=40_000, first_offset=5)
    assert len(slices) > 3
    intervals = [each.data.offset_interval for each in slices]
    assert intervals[0].start == 5
    assert intervals[-1].end == 10_004
    assert all(one.end + 1 == other.start for one, other in pairwise(intervals))
    values = [v for s in slices for v in pq.read_table(io.BytesIO(store.get(f"data/{s.data.physical_hash}")))["value"]]
    assert [value.as_py() for value in values] == list(range(10_000))


@pytest.mark.requirement("EVO-01", "WR-07")
def test_slice_schema_evolution_only_adds_columns(store: Store) -> None:
    before = slice_schema(rows(range(1)).schema, Vocabulary(), Types.KAMU)
    more = slice_schema(rows(range(1), new=pa.array(["x"])).schema, Vocabulary(), Types.KAMU)
    assert evolved(before, more).names == [*before.names, "new"]
    assert evolved(before, more).field("new").nullable
    with pytest.raises(SchemaMismatch, match=r"column 'new' is missing"):
        evolved(more, before)
    other = slice_schema(rows(range(1), value=pa.array(["x"])).schema, Vocabulary(), Types.KAMU)
    with pytest.raises(SchemaMismatch, match=r"column 'value' is string, and was int64"):
        evolved(before, other)


def test_slice_values_outside_column_type_are_refused(store: Store) -> None:
    narrow = rows(range(1), value=pa.array([1], pa.int32()))
    schema = slice_schema(narrow.schema, Vocabulary(), Types.KAMU)
    with (
        SliceWriter(store, Layout(), schema, Vocabulary(), first_offset=0, system_time=NOON) as writer,
        pytest.raises(DataTypeMismatch, match="column 'value'"),
    ):
        writer.write(rows(range(2**40, 2**40 + 1)))
    assert not list(store.list(""))


def test_slice_column_type_without_logical_hash_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="no logical hash"):
        slice_schema(rows(range(1), wait=pa.array([1], pa.duration("s"))).schema, Vocabulary(), Types.KAMU)
