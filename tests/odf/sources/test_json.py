from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import DataTypeMismatch, LakeError, SchemaMismatch, SourceCorrupt
from kubothek.odf.sources.readers import FileContent, filters, read
from kubothek.odf.sources.readers.json_arrays import array_lines
from kubothek.odf.spec.sources import ReadStep, ReadStepGeoJson, ReadStepJson, ReadStepNdGeoJson, ReadStepNdJson
from tests.odf.sources.conftest import SOAK, rows_of, table

ROWS = [{"a": 1, "b": 'x, "y"] \\'}, {"a": None, "b": "\n"}]
POINT = {"type": "Point", "coordinates": [1.0, 2]}
FEATURES = [
    {"type": "Feature", "properties": {"zone": 1, "Name": "x"}, "geometry": POINT},
    {"type": "Feature", "id": 7, "properties": None, "geometry": None},
]
FEATURE_ROWS = [
    {"Name": "x", "geometry": '{"coordinates":[1.0,2],"type":"Point"}', "zone": 1},
    {"Name": None, "geometry": None, "zone": None},
]


@pytest.mark.requirement("RD-03")
@pytest.mark.parametrize("indent", [None, 2])
def test_json_array_of_objects_is_read_at_root_and_sub_path(indent: int | None) -> None:
    assert rows_of(ReadStepJson(), json.dumps(ROWS, indent=indent)) == ROWS
    nested = {"list": [{"q": []}], "a": {"b": 1, "b.c": [], "c": ROWS, "d": {"c": []}}, "c": []}
    assert rows_of(ReadStepJson(sub_path="a.c"), "\ufeff" + json.dumps(nested, indent=indent)) == ROWS


@pytest.mark.requirement("RD-03")
def test_json_reader_supports_every_option() -> None:
    step = ReadStepJson(
        ddl_schema=("t TIMESTAMP(3)", "d DATE", "a DECIMAL(4, 1)", "missing STRING"),
        date_format="%d.%m.%Y",
        timestamp_format="%d.%m.%Y %H:%M",
        encoding="utf-16",
    )
    rows = [{"other": "ä", "t": "31.01.2020 10:00", "a": 1.5, "d": "31.01.2020"}, {}]
    assert rows_of(step, json.dumps(rows).encode("utf-16")) == [
        {"t": datetime(2020, 1, 31, 10, tzinfo=UTC), "d": date(2020, 1, 31), "a": Decimal("1.5"), "missing": None},
        {"t": None, "d": None, "a": None, "missing": None},
    ]


@pytest.mark.requirement("RD-03")
@pytest.mark.parametrize(
    ("path", "data", "error", "problem"),
    [
        (None, '{"a": 1}', SchemaMismatch, "it begins with '{'; correct read.subPath, or use NdJson"),
        (None, '[{"a": 1}', SourceCorrupt, "ends inside of its array: it is cut off"),
        (None, '[{"a": 1}, {"a"', SourceCorrupt, "row 2 is no JSON|cut off"),
        (None, '[{"a": 1},, {"a": 2}]', SourceCorrupt, "a comma between any two .2 of them, 2 commas"),
        (None, '[, {"a": 2}]', SourceCorrupt, "1 of them, 1 commas"),
        (None, '[{"a": 1}, ]', SourceCorrupt, "1 of them, 1 commas"),
        (None, '[{"a": 1}}', SourceCorrupt, "the array ends with '}'"),
        (None, '[{"a": 1}] {"a": 2}', SourceCorrupt, "continues after its array"),
        (None, '[{"a": 1}, 2]', SourceCorrupt, "1 of them, 1 commas"),
        (None, '[{"a": 1} {"a": 2}]', SourceCorrupt, "2 of them, 0 commas"),
        ("a.b", '{"a": {"c": []}}', SchemaMismatch, "has no 'a.b'; correct read.subPath"),
        ("a.b", '{"a": [{"b": []}]}', SchemaMismatch, "'a' is no object"),
        ("a.b", '{"a": {"b": {}}}', SchemaMismatch, "at 'a.b' there is '{'"),
        ("a.b", '[{"a": {"b": []}}]', SchemaMismatch, "not with an object that has 'a.b'"),
        ("a.b", '{"a": {"b":', SourceCorrupt, "ends before its array 'a.b' begins"),
        ("a", '{"a": [{"a": "x"}]}', DataTypeMismatch, "'in.txt', column 'a', row 1: 'x' is no int64"),
    ],
)
def test_json_error_names_location(path: str | None, data: str, error: type[LakeError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        rows_of(ReadStepJson(sub_path=path, ddl_schema=("a BIGINT",)), data)


@pytest.mark.requirement("RD-03")
def test_empty_json_array_yields_no_data_or_no_rows() -> None:
    assert read(ReadStepJson(), FileContent.of_bytes(b"[]", "x")) is None
    assert rows_of(ReadStepJson(ddl_schema=("a INT",)), "[ ]") == []
    assert read(ReadStepJson(), FileContent.of_bytes(b"", "x")) is None


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\,[]{}:\n ', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\]', max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("RD-03")
@settings(max_examples=1000 if SOAK else 40)
@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), _values), min_size=1, max_size=4),
    _values,
    st.integers(1, 7),
    st.sampled_from([None, 1]),
)
def test_json_array_is_split_into_elements_at_any_block_boundary(
    rows: list[dict[str, Any]], before: Any, block: int, indent: int | None
) -> None:
    """Whatever stands before, wherever blocks are cut."""
    data = json.dumps({"z": before, "x": {"y": rows, "q": before}}, indent=indent).encode()
    blocks = iter([data[at : at + block] for at in range(0, len(data), block)])
    lines = b"".join(array_lines("x", "x.y")(blocks)).splitlines()
    assert [json.loads(line) for line in lines] == rows


@pytest.mark.requirement("RD-04")
def test_ndjson_yields_one_record_per_line() -> None:
    data = "\n".join(map(json.dumps, ROWS))
    assert rows_of(ReadStepNdJson(), data) == ROWS
    assert rows_of(ReadStepNdJson(encoding="latin1"), '{"a": "ä"}\n'.encode("latin1")) == [{"a": "ä"}]
    step = ReadStepNdJson(ddl_schema=("t TIMESTAMP", "d DATE"), date_format="%Y%m%d", timestamp_format="%Y%m%d %H")
    assert rows_of(step, '{"t": "20200131 10", "d": "20200131"}') == [
        {"t": datetime(2020, 1, 31, 10, tzinfo=UTC), "d": date(2020, 1, 31)}
    ]


@pytest.mark.requirement("RD-04")
def test_ndjson_error_names_line() -> None:
    step = ReadStepNdJson(ddl_schema=("a BIGINT",))
    with pytest.raises(DataTypeMismatch, match=r"'in.txt', column 'a', row 2 \(line 3\): 'x' is no int64"):
        rows_of(step, '{"a": 1}\n\n{"a": "x"}\n')
    with pytest.raises(SourceCorrupt, match=r"'in.txt', row 1 \(line 2\) is no JSON"):
        rows_of(step, '\n{"a": \n')


@pytest.mark.requirement("RD-04")
def test_ndjson_string_that_resembles_time_stays_string() -> None:
    found = table(ReadStepNdJson(), '{"t": "2020-01-01T00:00:00Z", "n": null, "l": [{"t": "2020-01-01"}]}')
    assert found.schema.field("t").type == found.schema.field("n").type == pa.string()
    assert found.schema.field("l").type == pa.list_(pa.struct([("t", pa.string())]))


@pytest.mark.requirement("RD-04")
def test_ndjson_key_after_sample_is_refused_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.odf.sources.readers.samples.SAMPLE_BYTES", 10)
    data = '{"a": 1}\n' * 1001 + '{"b": 1}\n'
    with pytest.raises(SchemaMismatch, match=r"row 1002 \(line 1002\): key 'b' is not a column .* in read.schema"):
        rows_of(ReadStepNdJson(), data)


@pytest.mark.requirement("RD-05", "RD-06")
@pytest.mark.parametrize(
    ("step", "data"),
    [
        (ReadStepGeoJson(), json.dumps({"type": "FeatureCollection", "name": "x", "features": FEATURES}, indent=1)),
        (ReadStepNdGeoJson(), "\n".join(map(json.dumps, FEATURES))),
    ],
)
def test_geojson_yields_one_record_per_feature(step: ReadStep, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = table(step, data)
    assert found.column_names == ["Name", "geometry", "zone"]
    assert found.to_pylist() == FEATURE_ROWS
    chosen = type(step)(ddl_schema=("zone BIGINT", "geometry STRING NOT NULL"))  # type: ignore[call-arg]
    with pytest.raises(DataTypeMismatch, match=r"column 'geometry', row 2: no value"):
        rows_of(chosen, data)
    monkeypatch.setattr(filters, "BLOCK_BYTES", 3)
    assert rows_of(step, data) == FEATURE_ROWS


@pytest.mark.requirement("RD-06")
@pytest.mark.parametrize(
    ("line", "error", "problem"),
    [
        ('{"type": "Point"}', SourceCorrupt, "row 2 is no GeoJSON Feature: its type is 'Point'"),
        ("[]", SourceCorrupt, "row 2 is no GeoJSON Feature"),
        ("{", SourceCorrupt, "row 2 is no JSON"),
        ('{"type": "Feature", "properties": [1]}', SourceCorrupt, "row 2: the properties"),
        ('{"type": "Feature", "properties": {"geometry": 1}}', SchemaMismatch, "row 2: a property 'geometry'"),
    ],
)
def test_ndgeojson_error_names_row(line: str, error: type[LakeError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        rows_of(ReadStepNdGeoJson(ddl_schema=("a INT",)), json.dumps(FEATURES[0]) + "\n\n" + line)


@pytest.mark.parametrize(
    ("step", "around"),
    [
        (ReadStepJson(), b"[%s]"),
        (ReadStepNdJson(), b"%s\n"),
        (ReadStepNdJson(ddl_schema=("a STRING",)), b"%s\n"),
        (ReadStepGeoJson(), b'{"type": "FeatureCollection", "features": [%s]}'),
        (ReadStepNdGeoJson(), b"%s\n"),
    ],
)
def test_nested_json_above_limit_is_refused(step: ReadStep, around: bytes) -> None:
    deep = b'{"type": "Feature", "geometry": null, "properties": {"a":' + b"[" * 70 + b"]" * 70 + b"}}"
    with pytest.raises(SourceCorrupt, match=r"'in.txt', row 1(?: \(line 1\))?: JSON is nested deeper than 64 levels"):
        table(step, around % deep)
