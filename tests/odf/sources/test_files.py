from __future__ import annotations

import io
import struct
import zipfile
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapefile

from kubothek.errors import DataTypeMismatch, SchemaMismatch, SourceCorrupt, SourceNotFound, SourceRefused
from kubothek.ingest.readers import streams
from kubothek.odf.sources.readers import FileContent, read, shapefile_rows
from kubothek.odf.spec.sources import ReadStepEsriShapefile, ReadStepParquet
from tests.odf.sources.conftest import rows_of, table


def parquet(table: pa.Table, **options: Any) -> bytes:
    data = io.BytesIO()
    pq.write_table(table, data, **options)
    return data.getvalue()


@pytest.mark.requirement("RD-08")
def test_parquet_is_read_unchanged_or_cast_to_schema() -> None:
    times = pa.array([1_500_000, None], pa.timestamp("us"))
    data = parquet(
        pa.table({"a": [1, 2], "s": ["2020-01-02", None], "t": times, "d": pa.array(["x", "y"]).dictionary_encode()})
    )
    assert rows_of(ReadStepParquet(), data)[0] == {
        "a": 1,
        "s": "2020-01-02",
        "t": datetime(1970, 1, 1, 0, 0, 1, 500000),
        "d": "x",
    }
    found = table(ReadStepParquet(ddl_schema=("t TIMESTAMP(3)", "s DATE", "a STRING")), data)
    kinds: list[pa.DataType] = [pa.timestamp("ms", "UTC"), pa.date32(), pa.string()]
    assert list(zip(found.column_names, found.schema.types, strict=True)) == list(zip("tsa", kinds, strict=True))
    assert found.to_pylist() == [
        {"t": datetime(1970, 1, 1, 0, 0, 1, 500000, UTC), "s": date(2020, 1, 2), "a": "1"},
        {"t": None, "s": None, "a": "2"},
    ]


@pytest.mark.requirement("RD-08")
def test_parquet_error_names_column_and_row() -> None:
    data = parquet(pa.table({"a": [1, 2**40], "s": ["1", "x"]}), row_group_size=1)
    with pytest.raises(DataTypeMismatch, match=r"'in.txt', column 'a', row 2: 1099511627776 is no int32"):
        rows_of(ReadStepParquet(ddl_schema=("a INT",)), data)
    with pytest.raises(DataTypeMismatch, match=r"'in.txt', column 's', row 2: 'x' is no int64"):
        rows_of(ReadStepParquet(ddl_schema=("s BIGINT",)), data)
    with pytest.raises(SchemaMismatch, match=r"has no column 'b'; it has 'a', 's'; correct read.schema"):
        rows_of(ReadStepParquet(ddl_schema=("b INT",)), data)
    for broken in (data[:-5], b"PAR1" + data[:40], b"nothing"):
        with pytest.raises(SourceCorrupt, match=r"'in.txt' is not a sound Parquet file .* correct read.kind"):
            rows_of(ReadStepParquet(), broken)
    assert read(ReadStepParquet(), FileContent.of_bytes(b"", "x")) is None


def shapes(**files: int) -> bytes:
    """A zipped shapefile a name, each with so many points and a record without a shape."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("README.txt", "nothing")
        packed.writestr("__MACOSX/x.shp", "nothing")
        for name, count in files.items():
            parts = {suffix: io.BytesIO() for suffix in ("shp", "shx", "dbf")}
            with shapefile.Writer(**parts, encoding="cp1252") as writer:
                writer.field("NAME", "C", 20)
                writer.field("Count", "N", 9)
                writer.field("Share", "N", 9, 3)
                writer.field("Big", "N", 25)
                writer.field("Since", "D")
                writer.field("Open", "L")
                for number in range(count):
                    writer.point(number, 0.5)
                    writer.record(f"Zürich {number}", number, number / 8, 5, date(2020, 1, 1 + number % 28), True)
                writer.null()
                writer.record("", None, None, None, None, None)
            for suffix, part in parts.items():
                packed.writestr(f"data/{name}.{suffix}", part.getvalue())
            packed.writestr(f"data/{name}.cpg", "ANSI 1252")
    return archive.getvalue()


@pytest.mark.requirement("RD-07")
def test_shapefile_yields_one_record_per_shape() -> None:
    found = table(ReadStepEsriShapefile(), shapes(Cities=1500))
    assert found.num_rows == 1501
    assert found.slice(1, 1).to_pylist() == [
        {"name": "Zürich 1", "count": 1, "share": 0.125, "big": 5.0, "since": date(2020, 1, 2), "open": True}
        | {"geometry": '{"coordinates":[1.0,0.5],"type":"Point"}'}
    ]
    assert found.slice(1500).to_pylist() == [dict.fromkeys(found.column_names)]
    assert [str(each) for each in found.schema.types] == [
        *("string", "int64", "double", "double", "date32[day]", "bool", "string")
    ]
    step = ReadStepEsriShapefile(ddl_schema=("count DECIMAL(9, 1)", "geometry STRING"))
    assert table(step, shapes(x=1)).column_names == ["count", "geometry"]


@pytest.mark.requirement("RD-07")
@pytest.mark.parametrize("path", ["data/b.shp", "**/b.shp", "data/[b-c].shp", "**/b*"])
def test_shapefile_sub_path_selects_file(path: str) -> None:
    assert table(ReadStepEsriShapefile(sub_path=path), shapes(a=1, b=2)).num_rows == 3


@pytest.mark.requirement("RD-07")
def test_invalid_or_ambiguous_shapefile_is_refused_with_reason() -> None:
    data = shapes(a=1, b=2)
    with pytest.raises(SourceCorrupt, match=r"has 2 files that read.subPath can mean: 'data/a.shp', 'data/b.shp'"):
        rows_of(ReadStepEsriShapefile(), data)
    with pytest.raises(SourceNotFound, match=r"has no shapefile 'c.shp'; it has 'data/a.shp', 'data/b.shp'"):
        rows_of(ReadStepEsriShapefile(sub_path="c.shp"), data)
    with pytest.raises(SourceCorrupt, match=r"is not a sound Zip file"):
        rows_of(ReadStepEsriShapefile(), b"nothing")
    with pytest.raises(SourceRefused, match=r"larger than 50 bytes"):
        read(ReadStepEsriShapefile(), FileContent.of_bytes(shapes(a=1), "x"), 50)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("x.shp", b"nothing")
    with pytest.raises(SourceCorrupt, match=r"there is no x.dbf beside x.shp"):
        rows_of(ReadStepEsriShapefile(), archive.getvalue())
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("x.dbf", b"nothing")
    with pytest.raises(SourceCorrupt, match=r"'in.txt' is not a sound shapefile"):
        rows_of(ReadStepEsriShapefile(), archive.getvalue())


def test_shapefile_beyond_memory_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    points = 1_000_000
    shape = struct.pack("<i4d3i", shapefile.POLYGON, 0, 0, 0, 0, 1, points, 0) + bytes(16 * points)
    record = struct.pack(">2i", 1, len(shape) // 2) + shape
    parts = {name: io.BytesIO() for name in ("shp", "shx", "dbf")}
    with shapefile.Writer(**parts, shapeType=shapefile.POLYGON) as writer:
        writer.field("a", "C", 5)
        writer.poly([[[0, 0], [1, 1], [1, 0], [0, 0]]])
        writer.record("x")
    header = bytearray(parts["shp"].getvalue()[:100])
    header[24:28] = struct.pack(">i", (100 + len(record)) // 2)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("a.shp", bytes(header) + record)
        target.writestr("a.dbf", parts["dbf"].getvalue())
    monkeypatch.setattr(shapefile_rows, "_MEMORY", 100 << 20)
    with pytest.raises(SourceRefused, match="row 1 needs more memory to be read as a shapefile than it may take"):
        table(ReadStepEsriShapefile(), archive.getvalue())


def test_zip_with_large_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "DIRECTORY_BYTES", 1000)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for number in range(20):
            target.writestr(f"{number}.shp", b"")
    with pytest.raises(SourceRefused, match=r"the directory of the Zip file has 1\d{3} bytes, the limit is 1000"):
        table(ReadStepEsriShapefile(), archive.getvalue())
