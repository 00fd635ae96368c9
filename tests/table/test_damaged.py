"""Parquet files whose footer contradicts itself: Arrow aborts the process, or waits for ever, where they are read."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.errors import SourceCorrupt
from kubothek.ingest.readers.parquet_files import open_parquet
from kubothek.table.indexes import IndexKind

INT64, BYTE_ARRAY = 2, 6
ROWS = pa.table({"month": [1, 2], "carrier": ["UA", "AA"]})


def with_another_type(data: bytes, type_: int) -> bytes:
    """The file with a type that does not exist in the last column chunk of this physical type (parquet.thrift,
    ``ColumnMetaData``: field 1 is the type, field 2 a list of encodings; zigzag varints).
    """
    before, found, after = data.rpartition(bytes((0x15, 2 * type_, 0x19)))
    assert found
    return before + b"\x15\x7c\x19" + after


def test_source_with_contradictory_footer_is_corrupt() -> None:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink)
    with (
        pytest.raises(SourceCorrupt, match=r"column 'month' in row group 0 has type 62, in the schema INT64"),
        open_parquet("in/x.parquet", io.BytesIO(with_another_type(sink.getvalue(), INT64))),
    ):
        pass


def test_index_with_contradictory_footer_hides_no_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = kubothek.open(tmp_path)
    dataset = lake.create_dataset("flights", partition_on="month", indices={"carrier": IndexKind.KARTOTHEK})
    dataset.append(ROWS)
    (index,) = (tmp_path / "flights" / "indices" / "carrier").glob("*.parquet")
    foreign = with_another_type(index.read_bytes(), BYTE_ARRAY)
    index.unlink()
    index.write_bytes(foreign)
    assert kubothek.open(tmp_path).dataset("flights").scan(where="carrier = 'UA'").read_all().num_rows == 1
