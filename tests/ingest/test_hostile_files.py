"""Files that were made to harm: each ends in an error with the file and the place, in bounded memory."""

from __future__ import annotations

import gzip
import io
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import SourceCorrupt, SourceRefused
from kubothek.ingest import Format, SourceReader, model
from kubothek.odf.sources.readers import FileContent, read
from kubothek.odf.spec.sources import ReadStepParquet
from tests.ingest.conftest import Files, Pack, columns

PARQUET = Format.PARQUET


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow quotes the row
def test_latin1_csv_with_long_row_names_file_and_position(files: Files) -> None:
    files.put("x.csv", "name,x\nZürich,1\nGenève,1,2\n".encode("latin-1"))
    with pytest.raises(SourceCorrupt, match=r"'x.csv' cannot be parsed as CSV after row 0: "):
        files.rows("x.csv")


def test_json_key_that_is_not_utf8_is_corrupt(files: Files) -> None:
    files.put("x.jsonl", b'{"a\xff": 1}\n')
    with pytest.raises(SourceCorrupt, match=r"'x.jsonl' is not a sound JSONLines file \('utf-8' codec"):
        files.rows("x.jsonl", kind=Format.JSON_LINES)


@pytest.mark.parametrize("suffix", ["gz", "zip"])
def test_compressed_source_above_ratio_is_refused(files: Files, suffix: str) -> None:
    data = b"a\n" + b"1\n" * (4 << 20)
    files.put(f"x.csv.{suffix}", _packed(data, suffix))
    limits = model.Unpacking(free_bytes=1 << 20)
    with pytest.raises(SourceRefused, match=rf"'x.csv.{suffix}' unpacks to more than the limit: .* 200 times"):
        files.rows(f"x.csv.{suffix}", schema=columns(a=pa.int64()), unpacking=limits)


def test_gzip_file_above_256_mib_and_ratio_is_refused_by_default(files: Files) -> None:
    row = gzip.compress(b"x" * (1 << 20) + b"\n")
    files.put("x.csv.gz", gzip.compress(b"a\n") + 260 * row)
    with pytest.raises(SourceRefused, match="unpacks to more than the limit"):
        files.rows("x.csv.gz", schema=columns(a=pa.string()))


def test_compressed_source_below_ratio_is_read(files: Files, pack: Pack) -> None:
    name, data = pack("x.csv", b"a\n" + b"1\n" * 1000)
    files.put(name, data)
    assert files.rows(name, unpacking=model.Unpacking(free_bytes=1 << 10)).num_rows == 1000


def _packed(data: bytes, suffix: str) -> bytes:
    if suffix == "gz":
        return gzip.compress(data, 9)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.csv", data)
    return sink.getvalue()


def _bomb(rows: int, value: int) -> bytes:
    """A few KB of Parquet that stand for rows * value bytes of text."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * value]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": texts}), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def test_parquet_dictionary_bomb_is_read_in_small_batches(files: Files) -> None:
    data = _bomb(60_000, 100_000)  # 6 GB
    assert len(data) < 1 << 10
    (files.root / "x.parquet").write_bytes(data)
    with SourceReader(files.source("x.parquet", kind=PARQUET)) as reader:
        (split,) = reader.plan().splits
        first = next(reader.read(split, columns(a=pa.string())))
    assert first.num_rows == (64 << 20) // 100_000
    rows = read(ReadStepParquet(), FileContent.of_bytes(data, "in"))
    assert rows is not None
    assert next(iter(rows)).num_rows == first.num_rows


def test_parquet_row_above_limit_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.readers.parquet_batches.ROW_BYTES", 1 << 20)
    (files.root / "x.parquet").write_bytes(_bomb(40, 2 << 20))
    with pytest.raises(SourceRefused, match=r"'x.parquet', row 1 of a row group: 2097152 bytes in one row"):
        files.rows("x.parquet", kind=PARQUET)


def test_parquet_list_of_repeated_values_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.readers.parquet_batches.UNPACKING", model.Unpacking(free_bytes=1 << 20))
    one = pa.ListArray.from_arrays([0, 1_000_000], pa.nulls(1_000_000, pa.int64()).fill_null(7))
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": one}), sink, compression="zstd")
    (files.root / "x.parquet").write_bytes(sink.getvalue())
    with pytest.raises(SourceRefused, match="unpacks to more than the limit"):
        files.rows("x.parquet", kind=PARQUET)
