"""Sources of every format: whatever the bytes, what comes out is rows or a named error, in bounded memory."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapefile

from kubothek.ingest import Compression, Format, Source, SourceReader, UrlPolicy
from kubothek.odf.sources.fetch import FetchContext
from kubothek.odf.sources.fetch.poll import prepare
from kubothek.odf.sources.readers import FileContent, read
from kubothek.odf.sources.readers.ddl import parse_ddl
from kubothek.odf.spec.sources import (
    CompressionFormat,
    PrepStepDecompress,
    ReadStep,
    ReadStepCsv,
    ReadStepEsriShapefile,
    ReadStepGeoJson,
    ReadStepJson,
    ReadStepNdGeoJson,
    ReadStepNdJson,
    ReadStepParquet,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import StoreConfig
from tests.fuzz.harness import NAMED, Mutation, fuzz
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

CSV: Final = (
    'id,name,"when",x\n1,"a ""b""",2024-01-31T10:00:00Z,1.5\n2,Zürich,,\n3,"line\nbreak",1999-12-31,-7e300\n'.encode()
)
LINES: Final = (
    b'{"id": 1, "name": "a\\u00e9", "tags": ["x", null], "o": {"p": [1.5, 2]}, "t": "2024-01-31T10:00:00Z"}\n'
    b'{"id": 2, "name": null, "tags": [], "o": {"p": null}}\n\n{"id": 3e0, "name": "\\"\\\\", "o": null}\n'
)
ARRAY: Final = b'[{"id": 1, "name": "a, {b}"},\n {"id": 2, "name": "\\\\\\"]"}]'
FEATURE: Final = (
    b'{"type": "Feature", "properties": {"zone": 1, "name": "x"}, '
    b'"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1.5, 2], [3, 0], [0, 0]]]}}'
)
_CSV_DDL: Final = ("id BIGINT", "name STRING", "when TIMESTAMP", "x DOUBLE")


@cache
def parquet() -> bytes:
    table = pa.table(
        {
            "id": pa.array([1, 2, None] * 20, pa.int32()),
            "name": pa.array(["a", "bb", None] * 20),
            "kind": pa.array(["x", "y", "x"] * 20).dictionary_encode(),
            "tags": pa.array([["p", "q"], [], None] * 20),
            "when": pa.array([0, None, 10**15] * 20, pa.timestamp("us", "UTC")),
            "point": pa.array([{"x": 1.5}, None, {"x": None}] * 20),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=30, compression="zstd")
    return sink.getvalue()


@cache
def shapes() -> tuple[tuple[str, bytes], ...]:
    parts = {name: io.BytesIO() for name in ("shp", "shx", "dbf")}
    with shapefile.Writer(**parts, shapeType=shapefile.POLYGON) as writer:
        for field in (("zone", "N", 10), ("name", "C", 20), ("day", "D"), ("ok", "L"), ("x", "F", 12, 3)):
            writer.field(*field)
        for zone in range(3):
            writer.poly([[[0, 0], [zone, 2.5], [3, 0], [0, 0]]])
            writer.record(zone, "Zürich", date(2024, 1, 31), True, 1.25)
    return (*((f"a/z.{suffix}", part.getvalue()) for suffix, part in parts.items()), ("a/z.cpg", b"UTF-8"))


def packed(files: tuple[tuple[str, bytes], ...]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files:
            target.writestr(name, data)
    return archive.getvalue()


# --- targets: what a Commit's source and a ledger's read step do with the bytes -----------------------------


@cache
def _root() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def committed(data: bytes, kind: Format, suffix: str = "", compression: Compression = Compression.AUTO) -> None:
    root = _root()
    (root / f"x{suffix}").write_bytes(data)
    source = Source(kind, store=StoreConfig(root.as_uri()), paths=(f"x{suffix}",), compression=compression)
    with SourceReader(source) as reader:
        plan = reader.plan()
        schema = reader.infer_schema(plan)
        for split in plan.splits:
            for batch in reader.read(split, schema):
                batch.validate(full=True)


def ledger(step: ReadStep, data: bytes) -> None:
    rows = read(step, FileContent.of_bytes(data, "in"), limit=64 << 20)
    for batch in rows or ():
        batch.validate(full=True)


def _all(*steps: Callable[[], None]) -> None:
    """Take all of the steps; an error without a name comes before those with one."""
    problems: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - one error must not hide another
            problems.append(error)
    if problems:
        raise min(problems, key=lambda error: isinstance(error, NAMED))


def csv(data: bytes) -> None:
    _all(
        lambda: committed(data, Format.CSV),
        lambda: ledger(ReadStepCsv(header=True, infer_schema=True), data),
        lambda: ledger(ReadStepCsv(header=True, ddl_schema=_CSV_DDL, escape="\\"), data),
    )


def json_lines(data: bytes) -> None:
    _all(
        lambda: committed(data, Format.JSON_LINES),
        lambda: ledger(ReadStepNdJson(), data),
        lambda: ledger(ReadStepNdJson(ddl_schema=("id INT", "name STRING", "t TIMESTAMP(3)")), data),
    )


def utf16_lines(data: bytes) -> None:
    ledger(ReadStepNdJson(encoding="utf-16-le"), data)


def json_arrays(data: bytes) -> None:
    _all(
        lambda: ledger(ReadStepJson(), data),
        lambda: ledger(ReadStepJson(sub_path="a.b"), b'{"a":{"b":' + data + b"}}"),
    )


def geo_json(data: bytes) -> None:
    ledger(ReadStepGeoJson(), data)


def nd_geo_json(data: bytes) -> None:
    ledger(ReadStepNdGeoJson(), data)


def parquet_files(data: bytes) -> None:
    _all(lambda: committed(data, Format.PARQUET), lambda: ledger(ReadStepParquet(), data))


def shapefiles(data: bytes) -> None:
    ledger(ReadStepEsriShapefile(), data)


def gzips(data: bytes) -> None:
    _all(
        lambda: committed(data, Format.CSV, ".gz"),
        lambda: _prepared(CompressionFormat.GZIP, data),
    )


def zips(data: bytes) -> None:
    _all(lambda: committed(data, Format.CSV, ".zip"), lambda: _prepared(CompressionFormat.ZIP, data))


def _prepared(kind: CompressionFormat, data: bytes) -> None:
    context = FetchContext(policy=UrlPolicy(), now=Timestamp(0))
    content = prepare([PrepStepDecompress(format=kind)], FileContent.of_bytes(data, "in"), context)
    for batch in read(ReadStepCsv(header=True), content) or ():
        batch.validate(full=True)


def ddl(data: bytes) -> None:
    parse_ddl(data.decode(errors="replace").split(";"))


# --- mutations that keep the outer form ---------------------------------------------------------------------


def shape_parts(random: Random, _: bytes) -> bytes:
    """An archive that is sound, of parts that are not."""
    return packed(tuple((name, _flipped(random, data)) for name, data in shapes()))


def gzip_of_csv(random: Random, _: bytes) -> bytes:
    return gzip.compress(_flipped(random, CSV), mtime=0)


def _flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 8))):
        at = random.randrange(len(changed))
        changed[at : at + random.choice((1, 1, 4))] = random.randbytes(random.choice((1, 1, 4)))
    return bytes(changed[: random.randrange(len(changed))] if random.random() < 0.1 else changed)


_CHUNK: Final = 500
"""Variants that a child does: threads and allocators reserve address space, which the limit counts, and keep it."""
_ADDRESSES: Final = 8 << 30
_PEAK: Final = 256 << 20
"""Resident memory, which is what counts."""
COLLECTION: Final = b'{"type": "FeatureCollection", "features": [' + FEATURE + b"]}"
CASES: Final[list[tuple[Callable[[bytes], None], list[bytes], Mutation | None]]] = [
    (csv, [CSV, CSV.decode().encode("latin-1"), CSV + b"1,2\n"], None),
    (json_lines, [LINES], None),
    (utf16_lines, [LINES.decode().encode("utf-16-le")], None),
    (json_arrays, [ARRAY, b"[]"], None),
    (geo_json, [COLLECTION], None),
    (nd_geo_json, [FEATURE + b"\n" + FEATURE], None),
    (parquet_files, [parquet()], None),
    (shapefiles, [packed(shapes())], shape_parts),
    (gzips, [gzip.compress(CSV, mtime=0)], gzip_of_csv),
    (zips, [packed((("x.csv", CSV),))], None),
    (ddl, [b'id BIGINT NOT NULL;"na me" STRING;d DECIMAL(10, 2);t TIMESTAMP(3);a TIME'], None),
]


def any_format(data: bytes) -> None:
    """The target that the first byte names, on the bytes behind it."""
    CASES[data[0] % len(CASES) if data else 0][0](data[1:])


def any_mutation(random: Random, data: bytes) -> bytes:
    mutate = CASES[data[0]][2] or _flipped
    return data[:1] + mutate(random, data[1:])


@pytest.mark.parametrize(
    ("target", "seeds"), [case[:2] for case in CASES], ids=lambda value: getattr(value, "__name__", "")
)
def test_source_seed_of_each_format_is_readable(target: Callable[[bytes], None], seeds: list[bytes]) -> None:
    target(seeds[0])


def test_fuzzed_source_of_any_format_gives_result_or_named_error() -> None:
    seeds = [bytes([number]) + seed for number, (_, given, _) in enumerate(CASES) for seed in given]
    report = fuzz(
        any_format, seeds, variants=20 * len(seeds), mutate=any_mutation, soak=_CHUNK, memory=_ADDRESSES
    ).check()
    assert report.peak < _PEAK


@pytest.mark.skipif(not SOAK, reason="100,000 variants of each format")
@pytest.mark.parametrize(("target", "seeds", "mutate"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_fuzzed_source_of_one_format_gives_result_or_named_error(
    target: Callable[[bytes], None], seeds: list[bytes], mutate: Mutation | None
) -> None:
    for start in range(0, 100_000, _CHUNK):
        report = fuzz(
            target, seeds, mutate=mutate, start=start, variants=_CHUNK, soak=_CHUNK, memory=_ADDRESSES
        ).check()
        assert report.peak < _PEAK
