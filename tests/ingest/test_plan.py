from __future__ import annotations

import gzip
import io
import itertools
import pickle
import zipfile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import (
    DataTypeMismatch,
    InputError,
    PartitionInvalid,
    SchemaMismatch,
    SourceChanged,
    SourceCorrupt,
    SourceEmpty,
    SourceNotFound,
    StoreError,
    StoreUnavailable,
)
from kubothek.ingest import Compression, Format, Source, SourceFile, SourcePlan, SourceReader, Split, reader
from kubothek.ingest.readers.streams import LineRange
from kubothek.storage.file import FileStore
from tests.ingest.conftest import Files, columns

AB = columns(a=pa.int64(), b=pa.string())


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reader, "SPLIT_BYTES", 1000)
    return 1000


def read_apart(source: Source, schema: pa.Schema) -> tuple[SourcePlan, list[pa.Table]]:
    with SourceReader(source) as opened:
        plan = opened.plan()
        return plan, [pa.Table.from_batches(opened.read(s, schema), schema) for s in plan.splits]


# --- finding files ----------------------------------------------------------------------------------------------------


def test_missing_source_file_is_reported_with_similar_names(files: Files) -> None:
    files.put("in/flights-2013.csv", "a\n1\n")
    with pytest.raises(
        SourceNotFound, match=r"no 'in/flights-2014.csv' in file:.*did you mean 'in/flights-2013.csv'\?"
    ):
        files.rows("in/flights-2014.csv")


@pytest.mark.parametrize("paths", [(), ("x.csv", "x.csv")])
def test_source_with_duplicate_file_is_refused(files: Files, paths: tuple[str, ...]) -> None:
    files.put("x.csv", "a\n1\n")
    with pytest.raises(InputError):
        files.rows(*paths)


@pytest.mark.parametrize("kind", Format)
def test_empty_file_among_others_raises_source_empty(files: Files, kind: Format) -> None:
    files.put("full", "a\n1\n")
    files.put("empty", b"")
    with pytest.raises(SourceEmpty, match=r"'empty' is empty"):
        files.rows("full", "empty", kind=kind)


def test_file_changed_after_planning_raises_source_changed(files: Files) -> None:
    files.put("x.csv", "a,b\n1,x\n")
    with SourceReader(files.source("x.csv")) as source:
        split = source.plan().splits[0]
        files.put("x.csv", "a,b\n2,longer\n")
        with pytest.raises(SourceChanged, match=r"'x.csv' was replaced"):
            list(source.read(split, AB))


def test_store_errors_during_read_are_passed_unchanged(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise StoreUnavailable("503 slow down")

    for name, data in {"x.csv": b"a,b\n", "x.csv.gz": gzip.compress(b"a,b\n")}.items():
        files.put(name, data)
        with SourceReader(files.source(name)) as source:
            split = source.plan().splits[0]
            monkeypatch.setattr(FileStore, "open", lambda _self, _key: Broken())
            with pytest.raises(StoreError, match=r"503 slow down"):
                list(source.read(split, AB))
        monkeypatch.undo()


# --- compression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_truncated_gzip_file_is_refused(files: Files, keep: int) -> None:
    rows = "".join(f"{i},{i * 7919}\n" for i in range(2000))
    files.put("x.csv.gz", gzip.compress(f"a,b\n{rows}".encode())[:keep] or b"no gzip")
    with pytest.raises(SourceCorrupt, match=r"'x.csv.gz' is not a sound Gzip file"):
        files.rows("x.csv.gz", schema=AB)


def test_damaged_gzip_file_is_refused(files: Files) -> None:
    data = bytearray(gzip.compress("".join(f"{i},{i * 7919}\n" for i in range(2000)).encode()))
    data[-6] ^= 0xFF  # the checksum
    files.put("x.csv.gz", bytes(data))
    with pytest.raises(SourceCorrupt):
        files.rows("x.csv.gz", schema=AB)


def test_gzip_file_with_several_members_is_read_completely(files: Files) -> None:
    files.put("x.csv.gz", gzip.compress(b"a,b\n1,x\n") + gzip.compress(b"2,y\n"))
    assert files.rows("x.csv.gz", schema=AB).num_rows == 2


def test_compression_follows_file_name_unless_specified(files: Files) -> None:
    files.put("x.data", gzip.compress(b"a,b\n1,x\n"))
    assert files.rows("x.data", schema=AB, compression=Compression.GZIP).num_rows == 1
    with pytest.raises(SourceCorrupt, match=r"'x.data' is compressed: set compression to Gzip"):
        files.rows("x.data", schema=AB)
    files.put("y.gz", b"a,b\n1,x\n")
    assert files.rows("y.gz", schema=AB, compression=Compression.NONE).num_rows == 1


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def test_zip_source_needs_exactly_one_file(files: Files) -> None:
    files.put("one.zip", archive(**{"__MACOSX/x": b"", ".DS_Store": b"", "dir/": b"", "dir/x.csv": b"a,b\n1,x\n"}))
    assert files.rows("one.zip", schema=AB).num_rows == 1
    files.put("two.zip", archive(x=b"a\n", y=b"a\n"))
    with pytest.raises(SourceCorrupt, match=r"it has 2 \('x', 'y'\)"):
        files.rows("two.zip")
    files.put("none.zip", archive())
    with pytest.raises(SourceCorrupt, match=r"it has 0 \(nothing\)"):
        files.rows("none.zip")


@pytest.mark.parametrize("damage", ["cut", "crc", "encrypted"])
def test_damaged_zip_file_is_refused(files: Files, damage: str) -> None:
    data = bytearray(archive(x="".join(f"{i},{i * 7919}\n" for i in range(2000)).encode()))
    if damage == "cut":
        data = data[:-30]
    elif damage == "crc":
        data[200] ^= 0xFF
    else:
        data[6] |= 1
        data[data.rfind(b"PK\x01\x02") + 8] |= 1
    files.put("x.zip", bytes(data))
    with pytest.raises(SourceCorrupt, match=r"'x.zip' is not a sound Zip file"):
        files.rows("x.zip", schema=AB)


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Format.CSV, Format.JSON_LINES])
def test_file_splits_together_contain_every_row(files: Files, small_splits: int, kind: Format) -> None:
    lines = [f"{i},{'x' * (i % 50)}" if kind is Format.CSV else f'{{"a": {i}, "b": "{i}"}}' for i in range(500)]
    files.put("x", "\n".join((["a,b"] if kind is Format.CSV else []) + lines))
    plan, parts = read_apart(files.source("x", kind=kind), AB)
    assert len(plan.splits) == -(-plan.total_bytes // small_splits) > 3
    assert plan.total_bytes == (files.root / "x").stat().st_size
    assert pa.concat_tables(parts).column("a").to_pylist() == list(range(500))


@given(st.text("ab\n", max_size=60).map(str.encode), st.data())
def test_line_ranges_together_equal_file_for_any_cuts(content: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)))))
    edges = [0, *cuts, len(content)]
    parts = [LineRange(io.BytesIO(content), a, b).read() for a, b in itertools.pairwise(edges)]
    assert b"".join(parts) == content
    assert all(part.endswith(b"\n") for part in parts[:-1] if part and not content.endswith(part))


def test_split_inside_quotes_is_detected_and_read_as_complete_file(files: Files, small_splits: int) -> None:
    text = "line\n" * 30
    files.put("x.csv", "a,b\n" + "".join(f'{i},"{text}"\n' for i in range(40)))
    with SourceReader(files.source("x.csv")) as source:
        plan = source.plan()
        assert len(plan.splits) > 3
        failed = 0
        for split in plan.splits:
            try:
                list(source.read(split, AB))
            except InputError:
                failed += 1
        assert failed
        assert source.diagnose(plan.files[0], AB) is None
        whole = plan.with_unsplit_files(["x.csv"])
        assert len(whole.splits) == 1
        assert sum(b.num_rows for b in source.read(whole.splits[0], AB)) == 40


def test_diagnosis_of_error_in_split_names_true_row(files: Files, small_splits: int) -> None:
    files.put("x.csv", "a,b\n" + "".join(f"{i if i != 432 else 'oops'},x\n" for i in range(500)))
    with SourceReader(files.source("x.csv")) as source:
        plan = source.plan()
        error = source.diagnose(plan.files[0], AB)
    assert isinstance(error, DataTypeMismatch)
    assert "'x.csv', column 'a', row 433: 'oops' is no int64" in str(error)


def test_bundles_keep_all_splits_in_order_below_size() -> None:
    splits = tuple(
        Split(SourceFile(str(i), size, "", Compression.NONE), size) for i, size in enumerate([5, 5, 5, 20, 1, 1])
    )
    bundles = SourcePlan(splits).bundles(10)
    assert [split for bundle in bundles for split in bundle] == list(splits)
    assert [[s.size for s in bundle] for bundle in bundles] == [[5, 5], [5], [20], [1, 1]]


def test_sources_and_plans_can_be_pickled(files: Files) -> None:
    files.put("x.csv", "a,b\n1,x\n")
    source = files.source("x.csv", columns=AB)
    with SourceReader(source) as opened:
        plan = opened.plan()
    assert pickle.loads(pickle.dumps((source, plan))) == (source, plan)


# --- schema -----------------------------------------------------------------------------------------------------------


def test_inferred_schema_covers_all_files(files: Files) -> None:
    files.put("1.csv", "i,n,d,m,z\n1,NA,2013-01-01,1,\n")
    files.put("2.csv", "z,m,d,n,i\n,x,2013-01-01 10:00:00,2,1.5\n")
    schema = files.rows("1.csv", "2.csv").schema
    assert {f.name: str(f.type) for f in schema} == {
        "i": "double", "n": "int64", "d": "timestamp[us]", "m": "string", "z": "null",
    }  # fmt: skip


def test_files_with_different_columns_are_reported(files: Files) -> None:
    files.put("1.csv", "a,b\n1,2\n")
    files.put("2.csv", "a,c\n1,2\n")
    with pytest.raises(
        SchemaMismatch, match=r"'1.csv' and '2.csv' have different columns: 'b', 'c' is in one of them only"
    ):
        files.rows("1.csv", "2.csv")


def test_parquet_files_with_different_types_are_reported(files: Files) -> None:
    files.put("1", pa.table({"a": [1]}))
    files.put("2", pa.table({"a": ["x"]}))
    with pytest.raises(SchemaMismatch, match=r"column 'a' is int64 in '1' and string in '2'"):
        files.rows("1", "2", kind=Format.PARQUET)


def test_json_files_may_have_different_keys(files: Files) -> None:
    files.put("1", '{"a": 1}\n')
    files.put("2", '{"b": "x"}\n')
    rows = files.rows("1", "2", kind=Format.JSON_LINES).to_pylist()
    assert rows == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


# --- columns that need values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Format)
def test_null_in_partition_column_is_reported(files: Files, kind: Format) -> None:
    data: dict[Format, str | pa.Table] = {
        Format.CSV: "a,b\n1,x\n2,NA\n",
        Format.JSON_LINES: '{"a": 1, "b": "x"}\n{"a": 2}\n',
        Format.PARQUET: pa.table({"a": [1, 2], "b": ["x", None]}),
    }
    files.put("x", data[kind])
    with SourceReader(files.source("x", kind=kind)) as source:
        split = source.plan().splits[0]
        with pytest.raises(PartitionInvalid, match=r"'x', column 'b', row 2: no value in a partition column"):
            list(source.read(split, AB, ["b"]))
        required = pa.schema([AB.field("a"), AB.field("b").with_nullable(False)])
        with pytest.raises(DataTypeMismatch, match=r"'x', column 'b', row 2: no value, but the column is not nullable"):
            list(source.read(split, required))


def test_nan_in_partition_column_is_refused(files: Files) -> None:
    files.put("x.csv", "a,f\n1,1.5\n2,nan\n")
    schema = columns(a=pa.int64(), f=pa.float64())
    with SourceReader(files.source("x.csv")) as source:
        split = source.plan().splits[0]
        assert sum(b.num_rows for b in source.read(split, schema)) == 2
        with pytest.raises(PartitionInvalid, match=r"row 2"):
            list(source.read(split, schema, ["f"]))
