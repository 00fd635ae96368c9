from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from kubothek.errors import DataTypeMismatch, InputError, SchemaMismatch, SourceCorrupt, SourceEmpty
from kubothek.ingest import Format
from tests.ingest.conftest import Files, Pack, columns

pytestmark = pytest.mark.slow

JSON = Format.JSON_LINES


def test_json_lines_are_read_plain_and_compressed(files: Files, pack: Pack) -> None:
    name, data = pack("x.jsonl", b'{"a": 1, "b": "u"}\n\n{"b": "v"}')
    files.put(name, data)
    assert files.rows(name, kind=JSON).to_pylist() == [{"a": 1, "b": "u"}, {"a": None, "b": "v"}]


def test_json_lines_of_all_types_are_read(files: Files) -> None:
    schema = columns(
        b=pa.bool_(),
        by=pa.binary(),
        d=pa.date32(),
        dec=pa.decimal128(20, 2),
        f=pa.float64(),
        i=pa.int64(),
        l=pa.list_(pa.int64()),
        n=pa.null(),
        s=pa.string(),
        st=pa.struct([("x", pa.int64())]),
        t=pa.timestamp("us"),
        ti=pa.time32("s"),
        u=pa.uint64(),
    )
    line = (
        '{"b": true, "by": "raw", "d": "2013-01-02", "dec": 123456789012345678.25, "f": 1, "i": -9223372036854775808,'
        '"l": [1, null], "n": null, "s": "a\\u0000\\n💾", "st": {"x": 1}, "t": "2013-01-01T05:00:00.25+02:00",'
        '"ti": "05:17:11", "u": 18446744073709551615}\n'
    )
    files.put("x.jsonl", line)
    expected = {
        "b": True,
        "by": b"raw",
        "d": date(2013, 1, 2),
        "dec": Decimal("123456789012345678.25"),
        "f": 1.0,
        "i": -(2**63),
        "l": [1, None],
        "n": None,
        "s": "a\x00\n💾",
        "st": {"x": 1},
        "t": datetime(2013, 1, 1, 3, 0, 0, 250_000),
        "ti": time(5, 17, 11),
        "u": 2**64 - 1,
    }
    assert files.rows("x.jsonl", kind=JSON, schema=schema).to_pylist() == [expected]
    # The careful reader, which a value that is only unusual brings in, reads the same.
    files.put("y.jsonl", line + '{"i": 7.0}\n')
    first, second = files.rows("y.jsonl", kind=JSON, schema=schema).to_pylist()
    assert first == expected
    assert second["i"] == 7


def test_json_lines_types_are_inferred_as_storage_types(files: Files) -> None:
    files.put("x.jsonl", '{"i": 1, "f": 1.5, "t": "2013-01-01T05:00:00Z", "n": null, "s": "x", "b": false}\n')
    schema = files.rows("x.jsonl", kind=JSON).schema
    assert {f.name: str(f.type) for f in schema} == {
        "b": "bool", "f": "double", "i": "int64", "n": "null", "s": "string",
        "t": "timestamp[us, tz=UTC]",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("to", "value", "shown"),
    [
        (pa.int64(), '"1"', "'1'"),
        (pa.int64(), "1.5", "1.5"),
        (pa.int64(), "true", "True"),
        (pa.int64(), "9223372036854775808", "9223372036854775808"),
        (pa.float64(), '"x"', "'x'"),
        (pa.string(), "1", "1"),
        (pa.string(), '"\\ud800"', r"'\ud800'"),
        (pa.bool_(), "1", "1"),
        (pa.date32(), '"2013-13-01"', "'2013-13-01'"),
        (pa.timestamp("us"), '"soon"', "'soon'"),
        (pa.decimal128(5, 2), "1.234", "1.234"),
        (pa.list_(pa.int64()), '["x"]', "['x']"),
        (pa.null(), "[]", "[]"),
    ],
)
def test_json_lines_value_of_wrong_type_is_reported(files: Files, to: pa.DataType, value: str, shown: str) -> None:
    files.put("bad.jsonl", '{"v": null}\n' * 400_000 + f'\n{{"v": {value}}}\n{{}}\n')
    with pytest.raises(DataTypeMismatch) as caught:
        files.rows("bad.jsonl", kind=JSON, schema=columns(v=to))
    assert f"'bad.jsonl', column 'v', row 400001: {shown} " in str(caught.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", ["3e2147483647", "-3e4294967295", "1e20"])
def test_json_integer_with_huge_exponent_is_refused_without_expansion(files: Files, value: str) -> None:
    """Python needs gigabytes and minutes to write ``3e2147483647`` out."""
    files.put("x.jsonl", f'{{"v": {value}}}\n')
    with pytest.raises(DataTypeMismatch, match=r"'x.jsonl', column 'v', row 1: "):
        files.rows("x.jsonl", kind=JSON, schema=columns(v=pa.int64()))


def test_json_lines_key_that_is_no_column_is_reported(files: Files) -> None:
    files.put("x.jsonl", '{"a": 1}\n{"a": 2, "zz": 3}\n')
    with pytest.raises(SchemaMismatch, match=r"'x.jsonl', row 2: key 'zz' is not a column of the table"):
        files.rows("x.jsonl", kind=JSON, schema=columns(a=pa.int64()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{oops", "row 2 is no JSON "),
        (b"[1]", "row 2 is no JSON object: "),
        (b'{"a": NaN}', "row 2 is no JSON "),
        (b'{"a": "\xff"}', "row 2 is no JSON "),
        (b'{"a": 1} {"a": 2}', "row 2 is no JSON "),
        (b"[" * 20_000, "row 2: JSON is nested deeper than 64 levels"),
    ],
)
def test_json_lines_line_that_is_no_object_is_reported(files: Files, line: bytes, message: str) -> None:
    files.put("x.jsonl", b'{"a": "1"}\n' + line + b"\n")
    with pytest.raises(SourceCorrupt, match=message):
        files.rows("x.jsonl", kind=JSON, schema=columns(a=pa.string()))


@pytest.mark.parametrize("text", ["null\n", '\ufeffnull\n{"a": 1}\n', " null, 1\n", '{"a": 1}\n\tnull\n', "nullx\n"])
def test_json_lines_null_row_is_refused_at_any_position(files: Files, text: str) -> None:
    """Arrow's JSON reader dereferences a null pointer if a block starts with it."""
    files.put("x.jsonl", text)
    for schema in (None, columns(a=pa.int64())):
        with pytest.raises(SourceCorrupt, match=r"'x.jsonl', row [12] is no JSON"):
            files.rows("x.jsonl", kind=JSON, schema=schema)


def test_json_lines_key_with_two_types_is_refused_in_inference(files: Files) -> None:
    files.put("x.jsonl", '{"a": 1}\n{"a": null}\n{"a": "x"}\n')
    with pytest.raises(DataTypeMismatch, match=r"column 'a', row 3: 'x' is a string, row 1 has a number"):
        files.rows("x.jsonl", kind=JSON)


def test_json_lines_long_line_is_read_and_unbounded_line_is_refused(files: Files) -> None:
    schema = columns(a=pa.string())
    files.put("long.jsonl", '{"a": "' + "x" * (9 << 20) + '"}\n{"a": "y"}\n')
    assert files.rows("long.jsonl", kind=JSON, schema=schema).num_rows == 2
    files.put("endless.jsonl", b"x" * (70 << 20))
    with pytest.raises(SourceCorrupt, match=r"a line of more than 64 MiB"):
        files.rows("endless.jsonl", kind=JSON, schema=schema)


def test_json_lines_file_of_blank_lines_has_no_rows(files: Files) -> None:
    files.put("x.jsonl", "\n\n \n")
    assert files.rows("x.jsonl", kind=JSON, schema=columns(a=pa.int64())).num_rows == 0
    with pytest.raises(SourceEmpty, match=r"has no rows: 'x.jsonl'"):
        files.rows("x.jsonl", kind=JSON)


def test_json_lines_parse_errors_are_input_errors(files: Files) -> None:
    files.put("x.jsonl", bytes(range(256)))
    with pytest.raises(InputError):
        files.rows("x.jsonl", kind=JSON)
