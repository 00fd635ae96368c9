from __future__ import annotations

import io
import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from kubothek.errors import DataTypeMismatch, SchemaMismatch, SourceCorrupt, SourceEmpty
from kubothek.ingest import CsvOptions
from kubothek.ingest.readers.delimited import read_header
from kubothek.ingest.readers.values import check_names
from tests.ingest.conftest import Files, Pack, columns

AB = columns(a=pa.int64(), b=pa.string())


def test_csv_source_is_read_plain_and_compressed(files: Files, pack: Pack) -> None:
    name, data = pack("x.csv", b"b,a\nu,1\nv,2\n")
    files.put(name, data)
    assert files.rows(name).to_pylist() == [{"a": 1, "b": "u"}, {"a": 2, "b": "v"}]


def test_csv_column_types_are_inferred_as_storage_types(files: Files) -> None:
    files.put(
        "x.csv",
        "i,f,s,d,t,z,bo,n,clock\n1,1.5,x,2013-01-02,2013-01-02 03:04:05,2013-01-02T03:04:05+02:00,true,NA,05:17\n",
    )
    table = files.rows("x.csv")
    assert table.to_pylist() == [
        {
            "bo": True,
            "clock": "05:17",
            "d": date(2013, 1, 2),
            "f": 1.5,
            "i": 1,
            "n": None,
            "s": "x",
            "t": datetime(2013, 1, 2, 3, 4, 5),
            "z": datetime(2013, 1, 2, 1, 4, 5, tzinfo=UTC),
        }
    ]
    assert {str(field.type) for field in table.schema} == {
        "int64", "double", "string", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "bool", "null",
    }  # fmt: skip


def test_csv_null_markers_are_null_unless_quoted(files: Files) -> None:
    files.put("x.csv", 'a,b\n1,NA\n,"NA"\n3,""\n4,\n')
    assert files.rows("x.csv", schema=AB).column("b").to_pylist() == [None, "NA", "", None]


def test_csv_quoted_numbers_and_nulls_are_parsed_as_numbers_and_nulls(files: Files) -> None:
    files.put("x.csv", '"a","b"\n"1","x"\n"","y"\n"NA","z"\n" 4","w"\n')
    assert files.rows("x.csv", schema=AB).column("a").to_pylist() == [1, None, None, 4]


def test_csv_values_keep_delimiters_quotes_line_breaks_and_unicode(files: Files) -> None:
    texts = [
        "a,b",
        'say "hi"',
        "two\nlines",
        "crlf\r\nhere",
        "Grüße 💾",
        "tab\t",
        " padded ",
        "';DROP--",
        "\x00",
    ]
    body = "".join(f'{i},"{text.replace(chr(34), 2 * chr(34))}"\n' for i, text in enumerate(texts))
    files.put("x.csv", f"a,b\n{body}")
    assert files.rows("x.csv", schema=AB).column("b").to_pylist() == texts


def test_csv_stray_quotes_inside_unquoted_values_are_text(files: Files) -> None:
    files.put("x.csv", 'a,b\n1,5" disk\n2,"two\nlines"\n3,x\n')
    assert files.rows("x.csv", schema=AB).column("b").to_pylist() == ['5" disk', "two\nlines", "x"]


def test_csv_column_accepts_times_with_and_without_zone(files: Files) -> None:
    files.put("x.csv", "t\n2013-01-01T05:00:00Z\n2013-01-01 05:00:00\n2013-01-01T05:00+02:00\nNA\n2013-01-01\n")
    table = files.rows("x.csv", schema=columns(t=pa.timestamp("us")))
    five = datetime(2013, 1, 1, 5)
    assert table.column("t").to_pylist() == [five, five, five.replace(hour=3), None, five.replace(hour=0)]


def test_csv_decimals_and_large_integers_are_exact(files: Files) -> None:
    schema = columns(d=pa.decimal128(38, 2), i=pa.int64(), u=pa.uint64())
    files.put("x.csv", "d,i,u\n12345678901234567890.12,-9223372036854775808,18446744073709551615\n")
    row = files.rows("x.csv", schema=schema).to_pylist()[0]
    assert row == {"d": Decimal("12345678901234567890.12"), "i": -(2**63), "u": 2**64 - 1}


@pytest.mark.parametrize(
    ("to", "value"),
    [
        (pa.int64(), "oops"),
        (pa.int64(), "1.5"),
        (pa.int64(), "9223372036854775808"),
        (pa.uint64(), "-1"),
        (pa.float64(), "1,5"),
        (pa.bool_(), "yes"),
        (pa.date32(), "2013-13-01"),
        (pa.timestamp("us"), "2013-01-01T25:00:00"),
        (pa.timestamp("us"), "2013-01-01T00:00:00.123456789"),
        (pa.decimal128(5, 2), "1.234"),
        (pa.time32("s"), "25:00"),
        (pa.null(), "x"),
    ],
)
def test_csv_value_of_wrong_type_is_reported_with_file_column_and_row(
    files: Files, to: pa.DataType, value: str
) -> None:
    good = {"int64": "1", "uint64": "1", "double": "1", "bool": "1", "date32[day]": "2013-01-01"}.get(str(to), "NA")
    rows = "".join(f"{good},{i}\n" for i in range(70_000))
    files.put("bad.csv", f'v,b\n{rows}\n"{value}",x\n{rows}')
    with pytest.raises(DataTypeMismatch) as caught:
        files.rows("bad.csv", schema=columns(v=to, b=pa.string()))
    assert "'bad.csv', column 'v', row 70001: " in str(caught.value)
    assert repr(value) in str(caught.value)


def test_csv_text_that_is_not_utf8_is_reported(files: Files) -> None:
    files.put("x.csv", b"a,b\n1,ok\n2,gr\xfc\xdfe\n")
    with pytest.raises(DataTypeMismatch, match=r"'x.csv', column 'b', row 2: b'gr\\xfc\\xdfe'"):
        files.rows("x.csv")


@pytest.mark.parametrize("row", ["3", "3,x,y"])
def test_csv_row_with_wrong_value_count_is_reported(files: Files, row: str) -> None:
    files.put("x.csv", f'a,b\n1,"two\nlines"\n\n2,x\n{row}\n4,y\n')
    with pytest.raises(SchemaMismatch, match=rf"'x.csv' row 3 has {row.count(',') + 1} values, the file has 2 columns"):
        files.rows("x.csv", schema=AB)


def test_csv_unclosed_quote_is_refused(files: Files) -> None:
    files.put("x.csv", 'a,b\n1,"x\n2,y\n3,z\n')
    with pytest.raises(SourceCorrupt, match=r"never closed"):
        files.rows("x.csv", schema=AB)


def test_csv_columns_are_matched_by_name_and_differences_are_listed(files: Files) -> None:
    files.put("x.csv", "b,c\nx,1\n")
    with pytest.raises(SchemaMismatch) as caught:
        files.rows("x.csv", schema=AB)
    assert "missing: 'a'; not in the table: 'c'" in str(caught.value)


@pytest.mark.parametrize(("header", "message"), [("a,a", "more than once: 'a'"), ("a,,b", "column 2 has no name")])
def test_csv_header_without_valid_names_is_refused(files: Files, header: str, message: str) -> None:
    files.put("x.csv", f"{header}\n1,2,3\n")
    with pytest.raises(SchemaMismatch, match=message):
        files.rows("x.csv", schema=AB)


@pytest.mark.parametrize("length", [1, 16_000, *range(16_374, 16_390), 100_000])
@pytest.mark.parametrize("template", ['\n\n"{}",é,"two\nlines"\r\n', "{},é\r1,2\r", '"{}""",é', "{},é\n"])
def test_csv_header_of_any_length_is_read(length: int, template: str) -> None:
    data = template.format("x" * length).encode()
    names = ["x" * length + ('"' if '""' in template else ""), "é", *(["two\nlines"] if "two" in template else [])]
    for more in (b"", b"1,2,3\n" * 10_000):
        if not more or template.endswith("\n"):
            assert read_header("x.csv", io.BytesIO(data + more), CsvOptions()) == names


def test_csv_header_is_read_from_the_beginning_of_the_file() -> None:
    stream = io.BytesIO(b"a,b\n" + b"1,2\n" * 100_000)
    assert read_header("x.csv", stream, CsvOptions()) == ["a", "b"]
    assert stream.tell() < 20_000


def test_csv_without_header_uses_column_names_of_source(files: Files) -> None:
    files.put("x.csv", "1;u\n2;v\n")
    options = CsvOptions(delimiter=";", header=False)
    assert files.rows("x.csv", csv=options, columns=AB, schema=AB).column("a").to_pylist() == [1, 2]
    with pytest.raises(SchemaMismatch, match=r"has no header"):
        files.rows("x.csv", csv=options)


def test_csv_byte_order_mark_is_ignored(files: Files) -> None:
    files.put("x.csv", b"\xef\xbb\xbfa,b\n1,x\n")
    assert files.rows("x.csv", schema=AB).num_rows == 1


def test_csv_header_that_is_not_utf8_is_refused(files: Files) -> None:
    files.put("x.csv", b"a,gr\xfc\xdfe\n1,x\n")
    with pytest.raises(SourceCorrupt, match=r"the header of 'x.csv' is not UTF-8"):
        files.rows("x.csv")


def test_csv_in_utf16_is_detected_and_refused(files: Files) -> None:
    files.put("x.csv", "a,b\n1,x\n".encode("utf-16"))
    with pytest.raises(SourceCorrupt, match=r"UTF-16"):
        files.rows("x.csv")


def test_csv_file_without_bytes_raises_source_empty(files: Files) -> None:
    files.put("x.csv", b"")
    with pytest.raises(SourceEmpty, match=r"'x.csv' is empty"):
        files.rows("x.csv")


def test_csv_file_with_header_only_has_no_rows(files: Files) -> None:
    files.put("x.csv", b"a,b")
    assert files.rows("x.csv", schema=AB).num_rows == 0


def test_csv_column_type_that_csv_cannot_hold_is_refused(files: Files) -> None:
    files.put("x.csv", "a\n1\n")
    with pytest.raises(SchemaMismatch, match=r"CSV cannot hold"):
        files.rows("x.csv", schema=columns(a=pa.list_(pa.int64())))


def test_csv_row_larger_than_block_is_refused(files: Files) -> None:
    files.put("x.csv", b"a,b\n1,x\n2," + b"y" * (9 << 20) + b"\n3,z\n")
    with pytest.raises(SourceCorrupt, match=r"a row of more than 4 MiB"):
        files.rows("x.csv", schema=AB)


def test_csv_check_of_100000_column_names_takes_linear_time() -> None:
    names = [f"c{number}" for number in range(100_000)]
    began = time.process_time()
    check_names("x.csv", names, names)
    with pytest.raises(SchemaMismatch, match=r"missing: .* and 99900 more; not in the table: .*") as caught:
        check_names("x.csv", names, [f"d{number}" for number in range(100_000)])
    assert time.process_time() - began < 20  # where it is quadratic: minutes
    assert len(str(caught.value)) < 10_000
