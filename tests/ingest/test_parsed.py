"""Rows that inference parsed: the same as the reader's, read once, and never those of a file with errors."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import InputError, SchemaMismatch, SourceChanged, SourceCorrupt
from kubothek.ingest import CsvOptions, SourceReader, reader
from kubothek.ingest.readers import delimited
from kubothek.table.time_zones import expecting
from tests.ingest.conftest import Files, columns

_VALUES = st.sampled_from(
    [
        *("", "NA", "null", '""', '"NA"', "0", "1", " 7", "-0", "9223372036854775807", "9223372036854775808", "1.5"),
        *("1e3", "nan", "true", "False", "2025-01-31", "2025-01-31T12:00:00", "2025-01-31 12:00:00.123456"),
        *("2025-01-31T12:00:00.123456789", "2025-01-31T12:00:00Z", "2025-01-31T12:00:00+01:00", "9999-12-31T23:59:59"),
        *("12:30", "12:30:01.5", "text", '"a ""quoted"" text"', '"two\nlines"', "é", "0x10", "1,5"),
    ]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("parsed"))


def outcome(source: SourceReader, schema: pa.Schema) -> list[pa.RecordBatch] | str:
    """Return the rows, batch by batch, or the error."""
    try:
        return [batch for split in source.plan().splits for batch in source.read(split, schema, ("a",))]
    except InputError as error:
        return f"{type(error).__name__}: {error}"


@given(st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=5), st.sampled_from([None, "", "UTC"]))
def test_rows_that_inference_parsed_are_those_of_the_reader(
    shared: Files, rows: list[tuple[str, str]], zone: str | None
) -> None:
    shared.put("x.csv", "a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    with SourceReader(shared.source("x.csv")) as inferring, SourceReader(shared.source("x.csv")) as parsing:
        try:
            found = inferring.infer_schema(inferring.plan())
        except InputError:
            return
        schema = found if zone is None else expecting(found, {"a": zone, "b": zone})
        assert str(outcome(inferring, schema)) == str(outcome(parsing, schema))


@pytest.mark.parametrize("first", ["2025-01-31T12:00:00", "2025-01-31T12:00:00.5", "2025-01-31T12:00:00Z", ""])
@pytest.mark.parametrize("zone", [None, "", "Europe/Berlin"])
def test_times_that_inference_parsed_are_those_of_the_reader(files: Files, first: str, zone: str | None) -> None:
    files.put("x.csv", f"a,b\nx,{first}\ny,\n")
    table = columns(a=pa.string(), b=pa.timestamp("us"))
    schema = table if zone is None else expecting(table, {"b": zone})
    with SourceReader(files.source("x.csv")) as inferring, SourceReader(files.source("x.csv")) as parsing:
        inferring.infer_schema(inferring.plan())
        assert str(outcome(inferring, schema)) == str(outcome(parsing, schema))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that the reader parses, in this order."""
    names: list[str] = []
    read_csv = delimited.read_csv

    def noted(name: str, *args: object, **options: object) -> Iterator[pa.RecordBatch]:
        names.append(name)
        return read_csv(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reader, "read_csv", noted)
    return names


def test_rows_that_inference_parsed_are_read_once(files: Files, parsed: list[str]) -> None:
    files.put("1.csv.gz", gzip.compress(b"a,b\n1,x\n2,y\n"))
    files.put("2.csv", "a,b\n1.5,z\n")  # so that column a of the first file becomes a number with a fraction
    files.put("3.csv", "a,b\n2.5,\n")
    with SourceReader(files.source("1.csv.gz", "2.csv", "3.csv")) as source:
        plan = source.plan()
        schema = source.infer_schema(plan)
        rows = source.read_all(plan, schema).read_all()
        assert rows.to_pydict() == {"a": [1.0, 2.0, 1.5, 2.5], "b": ["x", "y", "z", None]}
        assert parsed == ["1.csv.gz"]
        assert source.read_all(plan, schema).read_all() == rows
        assert parsed == ["1.csv.gz", "1.csv.gz", "2.csv", "3.csv"]


def test_rows_are_parsed_again_after_check_of_columns(files: Files, parsed: list[str]) -> None:
    files.put("x.csv", "a\n1\n")
    with SourceReader(files.source("x.csv")) as source:
        plan = source.plan()
        schema = source.infer_schema(plan)
        source.check_columns(plan, schema)
        assert source.read_all(plan, schema).read_all().num_rows == 1
    assert parsed == ["x.csv"]


def test_batches_of_several_blocks_are_those_of_the_reader(files: Files, parsed: list[str]) -> None:
    files.put("x.csv", "a,b\n" + "".join(f'{n},"text, {n}"\n' for n in range(400_000)))
    with SourceReader(files.source("x.csv")) as source:
        plan = source.plan()
        schema = source.infer_schema(plan)
        kept = [batch for split in plan.splits for batch in source.read(split, schema)]
        assert parsed == []
        assert kept == [batch for split in plan.splits for batch in source.read(split, schema)]
        assert len(kept) > 1


def test_large_files_are_not_kept(files: Files, parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SAMPLE_BYTES", 200)
    monkeypatch.setattr(reader, "_FILE_SAMPLE_BYTES", 200)
    files.put("1.csv", "a,b\n" + "1,2\n" * 20)  # 80 bytes of text, 320 of rows
    files.put("2.csv", "a,b\n" + "12345678,12345678\n" * 40)  # 720 bytes of text
    files.put("3.csv", "a,b\n1,2\n")
    with SourceReader(files.source("1.csv", "2.csv", "3.csv")) as source:
        plan = source.plan()
        assert source.read_all(plan, source.infer_schema(plan)).read_all().num_rows == 61
    assert parsed == ["1.csv", "2.csv"]


def test_file_that_is_replaced_after_inference_is_refused(files: Files) -> None:
    files.put("x.csv", "a\n1\n")
    with SourceReader(files.source("x.csv")) as source:
        plan = source.plan()
        schema = source.infer_schema(plan)
        files.put("x.csv", "a\n2\n3\n")
        with pytest.raises(SourceChanged, match=r"x\.csv"):
            source.read_all(plan, schema).read_all()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("a,b\n1,x\n2\n", SchemaMismatch, r"row 2 has 1 values"),
        ('a,b\n1,x\n2,"y\nz\n', SourceCorrupt, r"is never closed"),
        (b"a,b\n1,x\n2,\xff\n", InputError, r"row 2"),
    ],
)
def test_invalid_rows_of_the_sample_are_reported_by_the_read(
    files: Files, data: str | bytes, error: type[InputError], message: str
) -> None:
    files.put("x.csv", data)
    with pytest.raises(error, match=message):
        files.rows("x.csv")


def test_columns_without_header_are_those_of_the_source(files: Files) -> None:
    files.put("x.csv", "1;x\n2;y\n")
    declared = columns(n=pa.int64(), text=pa.string())
    options = CsvOptions(delimiter=";", header=False)
    with SourceReader(files.source("x.csv", csv=options, columns=declared)) as source:
        plan = source.plan()
        schema = source.infer_schema(plan)
        assert source.read_all(plan, schema).read_all().to_pydict() == {"n": [1, 2], "text": ["x", "y"]}
