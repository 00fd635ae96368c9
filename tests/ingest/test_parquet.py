from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import DataTypeMismatch, SchemaMismatch, SourceCorrupt
from kubothek.ingest import Format, SourceReader, reader
from tests.ingest.conftest import Files, columns

PARQUET = Format.PARQUET


def test_parquet_source_is_read_in_storage_types(files: Files) -> None:
    table = pa.table(
        {
            "b": pa.array(["x", None]).dictionary_encode(),
            "a": pa.array([1, 2], pa.int8()),
            "t": pa.array([datetime(2013, 1, 1, 5, tzinfo=UTC), None], pa.timestamp("ns", "Europe/Berlin")),
        }
    )
    files.put("x.parquet", table)
    assert files.rows("x.parquet", kind=PARQUET).to_pylist() == [
        {"a": 1, "b": "x", "t": datetime(2013, 1, 1, 5, tzinfo=UTC)},
        {"a": 2, "b": None, "t": None},
    ]


def test_parquet_columns_of_other_types_are_refused_and_listed(files: Files) -> None:
    files.put("x.parquet", pa.table({"a": ["1"], "b": [1]}))
    with pytest.raises(SchemaMismatch, match=r"'a' is string, the table has int64; 'b' is int64, the table has string"):
        files.rows("x.parquet", kind=PARQUET, schema=columns(a=pa.int64(), b=pa.string()))


@pytest.mark.parametrize(
    ("values", "to"),
    [
        (pa.array([1.0, 1.5]), pa.int64()),
        (pa.array([1, -1]), pa.uint64()),
        (pa.array([0, 1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1, 2**60 + 1]), pa.float64()),
    ],
)
def test_parquet_values_are_cast_exactly_or_reported(files: Files, values: pa.Array[Any], to: pa.DataType) -> None:
    table = pa.table({"v": pa.concat_arrays([values.slice(0, 1)] * 70_000 + [values])})
    pq.write_table(table, files.root / "x.parquet", row_group_size=30_000)
    with pytest.raises(DataTypeMismatch, match=r"'x.parquet', column 'v', row 70002: "):
        files.rows("x.parquet", kind=PARQUET, schema=columns(v=to))


@pytest.mark.parametrize("keep", [0, 3, 100, -20])
def test_truncated_parquet_file_is_reported(files: Files, keep: int) -> None:
    files.put("x.parquet", pa.table({"a": list(range(1000))}))
    data = (files.root / "x.parquet").read_bytes()
    files.put("cut.parquet", data[:keep] or b"no parquet")
    with pytest.raises(SourceCorrupt, match=r"'cut\.parquet' is not a sound Parquet file"):
        files.rows("cut.parquet", kind=PARQUET)


def test_damaged_parquet_file_is_reported(files: Files) -> None:
    files.put("x.parquet", pa.table({"a": [str(i) * 10 for i in range(5000)]}))
    data = bytearray((files.root / "x.parquet").read_bytes())
    data[200:20_000] = b"\xff" * 19_800
    files.put("x.parquet", bytes(data))
    with pytest.raises(SourceCorrupt, match=r"'x.parquet'"):
        files.rows("x.parquet", kind=PARQUET)


def test_row_groups_of_large_parquet_file_become_separate_splits(
    files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"a": list(range(10_000))}), tmp_path / "x.parquet", row_group_size=1000)
    monkeypatch.setattr(reader, "SPLIT_BYTES", (tmp_path / "x.parquet").stat().st_size // 3)
    schema = columns(a=pa.int64())
    with SourceReader(files.source("x.parquet", kind=PARQUET)) as source:
        plan = source.plan()
        parts = [pa.Table.from_batches(source.read(split, schema), schema) for split in plan.splits]
    assert len(parts) == 4
    assert pa.concat_tables(parts).column("a").to_pylist() == list(range(10_000))
    assert [group for split in plan.splits for group in split.row_groups or ()] == list(range(10))
    assert plan.total_bytes <= (tmp_path / "x.parquet").stat().st_size
