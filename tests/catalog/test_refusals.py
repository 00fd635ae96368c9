"""What no Kartothek table can hold is refused by the Python door before a byte is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.errors import InputError, LayoutInvalid, PartitionInvalid, SchemaMismatch, SourceCorrupt

REFUSED: dict[str, tuple[pa.Table, list[str], type[InputError], str]] = {
    "bool": (pa.table({"k": [True], "x": [1]}), ["k"], PartitionInvalid, "partition column 'k' is bool"),
    "null values": (pa.table({"k": ["a", None], "x": [1, 2]}), ["k"], PartitionInvalid, "'k' has nulls"),
    "no values at all": (pa.table({"k": pa.nulls(1), "x": [1]}), ["k"], PartitionInvalid, "'k' is null"),
    "NaN": (pa.table({"k": [float("nan")], "x": [1]}), ["k"], PartitionInvalid, "'k' has nulls"),
    "a time zone": (
        pa.table({"k": pa.array([0], pa.timestamp("us", "Asia/Tokyo")), "x": [1]}),
        ["k"],
        PartitionInvalid,
        r"partition column 'k' is timestamp\[us, tz=Asia/Tokyo\]: a partition has no time zone",
    ),
    "a list": (pa.table({"k": [[1]], "x": [1]}), ["k"], PartitionInvalid, "'k' is list<int64>"),
    "a slash in a column's name": (pa.table({"km/h": [1], "x": [1]}), [], SchemaMismatch, "must not contain '/'"),
    "a slash in its name": (pa.table({"a/b": [1], "x": [1]}), ["a/b"], PartitionInvalid, "contain '/'"),
    "the name partition": (pa.table({"partition": [1]}), [], SchemaMismatch, "reserves this name"),
    "a name of cubes": (pa.table({"__a": [1]}), [], SchemaMismatch, "reserves this name"),
    "a name twice": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]),
        [],
        SchemaMismatch,
        "more than once",
    ),
    "nothing but partition columns": (pa.table({"k": [1]}), ["k"], PartitionInvalid, "every column"),
    "a value of 2 KB": (pa.table({"k": ["x" * 2048], "x": [1]}), ["k"], PartitionInvalid, "too long for a key"),
    "a label of 2 KB": (
        pa.table({f"k{n}": ["x" * 200] for n in range(10)} | {"x": [1]}),
        [f"k{n}" for n in range(10)],
        PartitionInvalid,
        "too long for a key",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_append_of_unsupported_rows_writes_nothing(tmp_path: Path, case: str) -> None:
    table, partition_on, error, says = REFUSED[case]
    lake = kubothek.open(tmp_path.as_uri())
    dataset = lake.create_dataset("t", partition_on=partition_on)
    before = {info.key: info.etag for info in lake.store.list("")}
    with pytest.raises(error, match=says):
        dataset.append(table)
    assert {info.key: info.etag for info in lake.store.list("")} == before


@pytest.mark.parametrize(
    "case", [c for c in REFUSED if not c.startswith(("null values", "NaN", "a value", "a label", "a time"))]
)
def test_create_dataset_with_unsupported_schema_is_refused(tmp_path: Path, case: str) -> None:
    table, partition_on, error, says = REFUSED[case]
    lake = kubothek.open(tmp_path.as_uri())
    with pytest.raises(error, match=says):
        lake.create_dataset("t", partition_on=partition_on, schema=table.schema)
    assert list(lake.store.list("")) == []


def test_create_dataset_with_layout_that_mismatches_schema_is_refused(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path.as_uri())
    with pytest.raises(LayoutInvalid, match="sortBy names column 'nope'"):
        lake.create_dataset("t", schema={"x": "int64"}, sort_by=["nope"])
    with pytest.raises(LayoutInvalid, match="sortBy names partition column 'x'"):
        lake.create_dataset("t", partition_on=["x"], schema={"x": "int64", "y": "int64"}, sort_by=["x"])
    assert list(lake.store.list("")) == []


def test_append_of_stream_raises_error_of_stream(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise SourceCorrupt("the second batch is damaged")

    table = kubothek.open(tmp_path.as_uri()).create_dataset("t")
    with pytest.raises(SourceCorrupt, match="second batch"):
        table.append(pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), rows()))
    assert not list((tmp_path / "t" / "table").glob("**/*.parquet"))
