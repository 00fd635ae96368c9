"""What parsers raise becomes an error with file and place; decoded Parquet comes in batches, as it was written."""

from __future__ import annotations

import io
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import LakeError, SourceCorrupt, SourceRefused
from kubothek.ingest.readers import parquet_batches
from kubothek.ingest.readers.decoding import decoding


@pytest.mark.parametrize(
    "error", [IndexError("x"), RecursionError(), pa.ArrowKeyError("x"), zipfile.BadZipFile("x"), OSError("x")]
)
def test_decoding_error_of_parser_becomes_source_corrupt(error: Exception) -> None:
    with (
        pytest.raises(SourceCorrupt, match="'f', row 7 is not a sound Zip file"),
        decoding("f", "Zip file", "", lambda: "row 7"),
    ):
        raise error


def test_decoding_passes_operating_system_errors_unchanged() -> None:
    with pytest.raises(OSError, match="No space left"), decoding("f", "Zip file"):
        raise OSError(28, "No space left on device")


def test_decoding_out_of_memory_is_refused() -> None:
    with (
        pytest.raises(SourceRefused, match="more memory to be read as a Parquet file than it may take"),
        decoding("f", "Parquet file"),
    ):
        raise MemoryError


@pytest.mark.parametrize("rows", [1, 1000])
def test_parquet_strings_of_all_encodings_are_read_unchanged(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 50_000)
    texts = [None if n % 7 == 0 else "x" * (n * 37 % 500) for n in range(rows)]
    table = pa.table(
        {
            "list": pa.array([None if n % 5 == 0 else texts[: n % 4] for n in range(rows)], pa.list_(pa.string())),
            "map": pa.array([[("k", text)] for text in texts], pa.map_(pa.string(), pa.string())),
            "struct": pa.array([{"a": text, "b": n} for n, text in enumerate(texts)]),
            "fixed": pa.array([[text, "y"] for text in texts], pa.list_(pa.string(), 2)),
            "dictionary": pa.array(texts, pa.string()).dictionary_encode(),
            "large": pa.array(texts, pa.large_string()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=400)
    file = pq.ParquetFile(sink)
    batches = [
        batch
        for group in range(file.num_row_groups)
        for batch in parquet_batches.decoded_batches("x", sink, file, group)
    ]
    assert pa.Table.from_batches(batches).to_pylist() == table.to_pylist()
    assert len(batches) > 10 or rows == 1


def test_decoding_passes_lake_errors_unchanged() -> None:
    error = LakeError("as it is")
    with pytest.raises(LakeError) as caught, decoding("f", "Zip file"):
        raise error
    assert caught.value is error
