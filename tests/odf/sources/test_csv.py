from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubothek.errors import DataTypeMismatch, FormatInvalid, LakeError, SchemaMismatch, SourceCorrupt
from kubothek.odf.sources.readers import FileContent, filters, read
from kubothek.odf.spec.sources import ReadStepCsv
from tests.odf.sources.conftest import SOAK, rows_of, table

TEXTS = ("a STRING", "b STRING")


@pytest.mark.requirement("RD-01")
def test_csv_reader_defaults_match_specification() -> None:
    found = rows_of(ReadStepCsv(ddl_schema=TEXTS), 'x,"a ""quoted"" \\"value\\", here"\n,""\n')
    assert found == [{"a": "x", "b": 'a "quoted" "value", here'}, {"a": None, "b": ""}]


@pytest.mark.requirement("RD-01")
@pytest.mark.parametrize(
    ("options", "data", "found"),
    [
        ({"separator": ";"}, b"1;2,3\n", ("1", "2,3")),
        ({"separator": "\t"}, b"1\t2\n", ("1", "2")),
        ({"separator": "\\t"}, b"1\t2\n", ("1", "2")),
        ({"quote": "'"}, b"'1,2','it''s'\n", ("1,2", "it's")),
        ({"quote": ""}, b'"1,2"\n', ('"1', '2"')),
        ({"escape": "!"}, b'"a!"b","c!!"\n', ('a"b', "c!")),
        ({"escape": ""}, b'"a\\",b\n', ("a\\", "b")),
        ({"escape": '"'}, b'"a\\","b""c"\n', ("a\\", 'b"c')),
        ({"header": True}, b"a,b\n1,2\n", ("1", "2")),
        ({"null_value": "NA"}, b'NA,"NA"\n', (None, "NA")),
        ({"null_value": "NA"}, b",x\n", ("", "x")),
        ({"encoding": "latin1"}, "ä,€"[:1].encode("latin1") + b",x\n", ("ä", "x")),
        ({"encoding": "windows-1252"}, "€,x\n".encode("cp1252"), ("€", "x")),
        ({"encoding": "utf-16"}, "ä,x\n".encode("utf-16"), ("ä", "x")),
        ({"encoding": "UTF8"}, "\ufeffä,x\n".encode(), ("ä", "x")),
    ],
)
def test_csv_reader_supports_every_option(options: dict[str, Any], data: bytes, found: tuple[str | None, str]) -> None:
    assert rows_of(ReadStepCsv(ddl_schema=TEXTS, **options), data) == [dict(zip("ab", found, strict=True))]


@pytest.mark.requirement("RD-01")
def test_csv_backslash_that_escapes_nothing_is_kept() -> None:
    data = 'C:\\temp,"C:\\new, \\n"\n"x\\\\",\\"y\n'
    assert rows_of(ReadStepCsv(ddl_schema=TEXTS), data) == [
        {"a": "C:\\temp", "b": "C:\\new, \\n"},
        {"a": "x\\", "b": '\\"y'},
    ]


@pytest.mark.requirement("RD-01")
def test_csv_reader_parses_every_type() -> None:
    step = ReadStepCsv(
        header=True,
        ddl_schema=(
            *("b BOOLEAN", "i INT", "l BIGINT", "d DECIMAL(5, 2)", "f FLOAT", "g DOUBLE", "u UUID", "s STRING"),
            *("t TIMESTAMP(3)", "e DATE", "c TIME(3)"),
        ),
    )
    text = "00112233-4455-6677-8899-AAbbccddeeff"
    first = f'true,1,"2",3.25,0.5,1e3,{text},x,2020-01-01T01:00:00.1239+01:00,2020-01-02,10:11:12.5'
    found = table(step, f"b,i,l,d,f,g,u,s,t,e,c\n{first}\n{',' * 10}\n")
    assert found.to_pylist() == [
        {"b": True, "i": 1, "l": 2, "d": Decimal("3.25"), "f": 0.5, "g": 1000.0, "u": UUID(text).bytes, "s": "x"}
        | {"t": datetime(2020, 1, 1, 0, 0, 0, 123000, UTC), "e": date(2020, 1, 2), "c": time(10, 11, 12, 500000)},
        dict.fromkeys("bildfgustec"),
    ]


@pytest.mark.requirement("RD-01")
def test_csv_columns_are_matched_by_header_name_or_by_position() -> None:
    data = "x,y\n1,2\n"
    assert rows_of(ReadStepCsv(ddl_schema=("y INT", "x INT"), header=True), data) == [{"y": 2, "x": 1}]
    assert rows_of(ReadStepCsv(ddl_schema=("y INT",), header=True), data) == [{"y": 2}]
    assert rows_of(ReadStepCsv(ddl_schema=("first INT", "y INT"), header=True), data) == [{"first": 1, "y": 2}]
    with pytest.raises(SchemaMismatch, match=r"its header has 2 columns \(x, y\), read.schema has 3, of which 'z'"):
        rows_of(ReadStepCsv(ddl_schema=("x INT", "y INT", "z INT"), header=True), data)


@pytest.mark.requirement("RD-01")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_header_with_empty_or_duplicate_names_is_matched_by_position(end: str) -> None:
    step = ReadStepCsv(ddl_schema=("a INT", "b STRING", "c INT"), header=True)
    assert rows_of(step, f'{end},"x{end}y","x{end}y"{end}1,ü,3{end}') == [{"a": 1, "b": "ü", "c": 3}]
    with pytest.raises(DataTypeMismatch, match=r"column 'a', row 1 \(line 3\): 'q' is no int32"):
        rows_of(step, f",x,{end}{end}q,2,3{end}")
    assert rows_of(ReadStepCsv(ddl_schema=("x INT",), header=True), f",x,y,y{end}1,2,3,4{end}") == [{"x": 2}]
    with pytest.raises(SchemaMismatch, match=r"of which 'y' is not in the header, or not once"):
        rows_of(ReadStepCsv(ddl_schema=("y INT",), header=True), f"x,y,y{end}1,2,3{end}")
    with pytest.raises(SchemaMismatch, match=r"more than once: 'x'"):
        rows_of(ReadStepCsv(header=True), f"x,x{end}1,2{end}")


@pytest.mark.requirement("RD-02")
@pytest.mark.parametrize(
    ("form", "text", "found"),
    [
        ("rfc3339", "2020-01-31T10:00:00Z", datetime(2020, 1, 31, 10, tzinfo=UTC)),
        ("rfc3339", "2020-01-31t10:00:00.5-02:00", datetime(2020, 1, 31, 12, 0, 0, 500000, UTC)),
        (None, "1960-01-01T00:00:00.123456789Z", datetime(1960, 1, 1, 0, 0, 0, 123456, UTC)),
        ("%d/%m/%Y %H:%M", "31/01/2020 10:00", datetime(2020, 1, 31, 10, tzinfo=UTC)),
        ("%d/%b/%Y:%H:%M:%S %z", "31/Jan/2020:10:00:00 +0100", datetime(2020, 1, 31, 9, tzinfo=UTC)),
        ("dd.MM.yyyy HH:mm:ss.SSS", "31.01.2020 10:00:00.250", datetime(2020, 1, 31, 10, 0, 0, 250000, UTC)),
        ("yyyy-MM-dd'T'HH:mmXXX", "2020-01-31T10:00+01:00", datetime(2020, 1, 31, 9, tzinfo=UTC)),
    ],
)
def test_csv_timestamp_formats_are_parsed(form: str | None, text: str, found: datetime) -> None:
    step = ReadStepCsv(ddl_schema=("t TIMESTAMP", "x INT"), timestamp_format=form)
    assert rows_of(step, f'"{text}",1\n,\n') == [{"t": found, "x": 1}, {"t": None, "x": None}]


@pytest.mark.requirement("RD-02")
def test_csv_date_formats_are_parsed() -> None:
    for form, text in (("rfc3339", "2020-01-31"), ("%d.%m.%y", "31.01.20"), ("yyyyMMdd", "20200131")):
        assert rows_of(ReadStepCsv(ddl_schema=("d DATE",), date_format=form), f"{text}\n") == [{"d": date(2020, 1, 31)}]
    assert rows_of(ReadStepCsv(ddl_schema=("d DATE",)), "2020-01-31T00:00:00Z\n") == [{"d": date(2020, 1, 31)}]
    with pytest.raises(FormatInvalid, match=r"'Q' is not understood; write rfc3339"):
        rows_of(ReadStepCsv(ddl_schema=("d DATE",), date_format="yyyy Q"), "2020 1\n")
    with pytest.raises(DataTypeMismatch, match=r"'in.txt', column 'd', row 2 \(line 2\): '31.02.20' is no date32"):
        rows_of(ReadStepCsv(ddl_schema=("d DATE",), date_format="%d.%m.%y"), "31.01.20\n31.02.20\n")


@pytest.mark.requirement("RD-09")
def test_csv_columns_without_schema_are_strings_unless_inferred() -> None:
    data = "n,t,s,none\n1,2020-01-01 10:00:00,x,\n"
    assert set(table(ReadStepCsv(header=True), data).schema.types) == {pa.string()}
    assert rows_of(ReadStepCsv(), "1,x\n") == [{"column_1": "1", "column_2": "x"}]
    found = table(ReadStepCsv(header=True, infer_schema=True), data)
    kinds: list[pa.DataType] = [pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.string()]
    assert (found.column_names, found.schema.types) == (["n", "t", "s", "none"], kinds)
    step = ReadStepCsv(header=True, infer_schema=True, timestamp_format="dd.MM.yyyy HH:mm", date_format="%d.%m.%Y")
    kinds = [pa.timestamp("us", "UTC"), pa.string(), pa.string()]
    assert table(step, "t,u,d\n31.01.2020 10:00,2020-01-01 10:00,2020-01-01\n").schema.types == kinds
    wide = "n\n" + "1\n" * 2000 + "1.5\n"
    assert table(ReadStepCsv(header=True, infer_schema=True), wide).schema.field("n").type == pa.float64()


@pytest.mark.requirement("RD-10")
def test_csv_times_without_zone_are_utc() -> None:
    found = rows_of(
        ReadStepCsv(ddl_schema=("t TIMESTAMP",)), "2020-01-01 10:00\n2020-01-01T10:00:00+02:00\n2020-01-01\n"
    )
    assert [row["t"].isoformat() for row in found] == [
        "2020-01-01T10:00:00+00:00",
        "2020-01-01T08:00:00+00:00",
        "2020-01-01T00:00:00+00:00",
    ]


@pytest.mark.requirement("RD-10")
@pytest.mark.parametrize(("header", "data"), [(False, b""), (True, b""), (False, b"\n\n"), (True, b"\r\n")])
def test_empty_csv_file_yields_no_data(header: bool, data: bytes) -> None:
    assert read(ReadStepCsv(ddl_schema=TEXTS, header=header), FileContent.of_bytes(data, "x")) is None
    assert rows_of(ReadStepCsv(ddl_schema=TEXTS, header=True), "a,b\n") == []


@pytest.mark.requirement("RD-01")
@pytest.mark.parametrize(
    ("options", "data", "error", "problem"),
    [
        (
            {},
            "1,2\nx,3\n",
            DataTypeMismatch,
            r"'in.txt', column 'a', row 2 \(line 2\): 'x' is no int64; .* read.schema",
        ),
        ({"header": True}, "a,b\n1,2\nx,3\n", DataTypeMismatch, "column 'a', row 2"),
        ({}, "1,2\n3\n", SchemaMismatch, r"'in.txt' row 2 \(line 2\) has 1 values, the file has 2 columns"),
        ({}, '1,"x\n2,y\n', SourceCorrupt, "the quote before .* in column 'b' is never closed"),
        ({}, b"1,\xff\n", SourceCorrupt, "of 'in.txt' is not UTF-8; set read.encoding"),
        ({}, b"1,x\n1,\xff\n", DataTypeMismatch, "column 'b', row 2"),
        ({"encoding": "ascii"}, b"1,x\n1,\xff\n", DataTypeMismatch, "column 'b', row 2"),
        ({"encoding": "utf-16"}, b"\xff\xfe\x00\xd8\x41", SourceCorrupt, "is not utf-16: .*; correct read.encoding"),
        ({"encoding": "nonsense"}, "1,2\n", FormatInvalid, "'nonsense' is no encoding of text"),
        ({"encoding": "zip"}, "1,2\n", FormatInvalid, "'zip' is no encoding of text"),
        (
            {"separator": "||"},
            "1,2\n",
            FormatInvalid,
            "read.separator '||' must be one ASCII character".replace("|", "\\|"),
        ),
        ({"separator": ""}, "1,2\n", FormatInvalid, "read.separator is empty"),
        ({"quote": "«"}, "1,2\n", FormatInvalid, "read.quote"),
        (
            {},
            b"\x1f\x8b12",
            SourceCorrupt,
            "'in.txt' is compressed: unpack it in prepare, by Decompress of format Gzip",
        ),
    ],
)
def test_csv_error_names_file_row_and_column(
    options: dict[str, Any], data: str | bytes, error: type[LakeError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        rows_of(ReadStepCsv(ddl_schema=("a BIGINT", "b STRING"), **options), data)


@pytest.mark.requirement("SL-20")
def test_csv_null_in_not_null_column_is_refused() -> None:
    with pytest.raises(DataTypeMismatch, match=r"column 'a', row 2 \(line 2\): no value, but .* not nullable"):
        rows_of(ReadStepCsv(ddl_schema=("a INT NOT NULL", "b INT")), "1,\n,2\n")


@pytest.mark.requirement("RD-01")
def test_csv_error_names_line() -> None:
    step = ReadStepCsv(ddl_schema=("a BIGINT", "b STRING"), header=True)
    with pytest.raises(DataTypeMismatch, match=r"'in.txt', column 'a', row 3 \(line 6\): 'x' is no int64"):
        rows_of(step, 'a,b\n1,"\n"\n2,\n\nx,\n')
    with pytest.raises(SchemaMismatch, match=r"'a row 1.csv' row 2 \(line 3\) has 1 values"):
        rows_of(step, "a,b\n1,\n2\n", "a row 1.csv")


@pytest.mark.requirement("RD-01")
@settings(max_examples=1000 if SOAK else 40)
@given(
    st.lists(st.lists(st.text('a"\\,\n', max_size=6), min_size=2, max_size=2), min_size=1, max_size=5),
    st.integers(1, 5),
    st.booleans(),
)
@example([["", ',"\\']], 3, True)
def test_csv_escapes_written_by_standard_library_are_read_back(
    rows: list[list[str]], block: int, doubled: bool
) -> None:
    """Whatever the cuts between blocks: as the standard library's writer writes them, in both ways."""
    text = io.StringIO()
    options: dict[str, Any] = {"doublequote": True} if doubled else {"doublequote": False, "escapechar": "\\"}
    written = [[each.replace("\\", "\\\\") if doubled else each for each in row] for row in rows]
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", **options).writerows(written)
    before, filters.BLOCK_BYTES = filters.BLOCK_BYTES, block
    try:
        found = rows_of(ReadStepCsv(ddl_schema=TEXTS), text.getvalue())
    finally:
        filters.BLOCK_BYTES = before
    assert [[row["a"], row["b"]] for row in found] == rows
