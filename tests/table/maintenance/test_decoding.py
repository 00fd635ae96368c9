"""What DuckDB decodes is what is in the files, to the bit; what it would make something else of is left to Arrow."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import VersionIncomplete
from kubothek.storage import Store
from kubothek.table.maintenance import decoding
from kubothek.table.maintenance.content import Content
from kubothek.table.scan.local_parquet import exact
from tests.table.operations.table import labels

FILES = 3


def _numbers(size: int, kind: str) -> pa.Array[Any]:
    bounds = np.iinfo(f"{kind}{size}")
    return pa.array([bounds.min, bounds.max, None, 1, 0], f"{kind}{size}")


def _bits(*words: int) -> pa.Array[Any]:
    return pa.Array.from_buffers(pa.float64(), len(words), [None, pa.py_buffer(np.array(words, "<u8").tobytes())])


def _decimals(precision: int, scale: int) -> pa.Array[Any]:
    most = Context(prec=76).scaleb(Decimal(10**precision - 1), -scale)
    return pa.array([most, most.copy_negate(), None, Decimal(0), None], pa.decimal128(precision, scale))


def _ticks(*values: int | None) -> pa.Array[Any]:
    return pa.array(values, pa.int64())


EXACT: dict[str, pa.Array[Any]] = {
    "flag": pa.array([True, False, None, True, None]),
    **{f"int{size}": _numbers(size, "int") for size in (8, 16, 32, 64)},
    **{f"uint{size}": _numbers(size, "uint") for size in (8, 16, 64)},
    "single": pa.array([np.float32("nan"), -0.0, None, np.float32("-inf"), 1e-45], pa.float32()),
    # NaNs of several kinds, -0.0, and the smallest number
    "double": _bits(0x7FF8000000000001, 0xFFF0000000000001, 0x8000000000000000, 0x7FF0DEAD00000001, 1),
    "text": pa.array(["", "a\0b", None, "\N{GRINNING FACE}" * 5000, "12"]),
    "bytes": pa.array([b"", b"\0\xff\xfe", None, b"x" * 100_000, b"\\x00"]),
    "date": pa.array([-(2**31), 2**31 - 1, None, 0, 1 - 2**31], pa.int32()).view(pa.date32()),
    "time": _ticks(-(2**63), 2**63 - 1, None, -1, 1 - 2**63).view(pa.timestamp("us")),
    **{f"d{p}_{s}": _decimals(p, s) for p, s in ((1, 0), (4, 4), (9, 2), (18, 18), (19, 3), (38, 0), (38, 38))},
}
INEXACT = [
    _ticks(0).view(pa.timestamp("us", "UTC")),
    _ticks(0).view(pa.timestamp("ns")),
    _ticks(0).view(pa.timestamp("ms")),
    _ticks(0).view(pa.time64("us")),
    _ticks(0).view(pa.duration("us")),
    pa.array([[1]]),
    pa.array([{"a": 1}]),
    pa.array(["a"], pa.large_string()),
    pa.array([b"a"], pa.binary(1)),
    pa.array(["a"]).dictionary_encode(),
    pa.array([1], pa.decimal256(50, 3)),
    pa.nulls(1),
]


def written(directory: Path, *tables: pa.Table, **options: Any) -> list[Path]:
    paths = [directory / f"{number}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **options)
    return paths


def comparable(table: pa.Table) -> list[Any]:
    """Columns of which NaN equals NaN and -0.0 is not 0.0."""
    numbers = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [column.combine_chunks() for column in table.columns]
    return [column.view(numbers.get(column.type, column.type)) for column in columns]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "1.0", "compression": "gzip"},
        {"use_dictionary": False, "compression": "none"},
        {"data_page_version": "2.0", "compression": "zstd", "row_group_size": 2},
        {"store_schema": False, "compression": "brotli", "version": "1.0", "store_decimal_as_integer": True},
        {"use_dictionary": False, "use_byte_stream_split": ["single", "double"], "compression": "lz4"},
        {"use_dictionary": False, "column_encoding": {"int64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}},
    ],
)
def test_decoding_by_duckdb_of_exact_types_returns_identical_values(tmp_path: Path, options: dict[str, Any]) -> None:
    given = dict(EXACT)
    if "store_schema" in options:  # which then says that the narrow ones are 32 bits wide
        given = {name: column for name, column in given.items() if "8" not in name and "16" not in name}
    table = pa.table(given)
    assert exact(table.schema)
    found = decoding.decoded(written(tmp_path, *[table] * FILES, **options), table.schema)
    assert found is not None
    expected = pa.concat_tables([table] * FILES)
    assert found.schema == table.schema
    assert comparable(found) == comparable(expected)
    assert Content.of(found.to_batches()) == Content.of(expected.combine_chunks().to_batches())


@pytest.mark.parametrize("column", INEXACT, ids=lambda column: str(column.type))
def test_decoding_by_duckdb_rejects_other_types(column: pa.Array[Any]) -> None:
    assert not exact(pa.schema([("n", pa.int64()), ("other", column.type)]))


def test_decoding_by_duckdb_keeps_requested_file_and_column_order(tmp_path: Path) -> None:
    names = ["n", "select", "filename", "file_row_number", 'a"b', "Größe", "with space"]
    tables = [pa.table({name: [f"{name}{n}{row}" for row in range(3)] for name in names}) for n in range(20)]
    paths = written(tmp_path, *tables, row_group_size=2)
    paths[7] = paths[7].rename(tmp_path / "x=1, ~'$1'%3D;.parquet")
    wanted = pa.schema([(name, pa.string()) for name in reversed(names[1:])])
    found = decoding.decoded([*paths, paths[0]], wanted)
    assert found is not None
    assert found.equals(pa.concat_tables([*tables, tables[0]]).select(wanted.names))


NUMBERS = pa.table({"n": [1, 2], "t": ["1", None]})
"""What the first file holds."""
OTHERS: dict[str, Callable[[], pa.Table]] = {
    "narrower": lambda: NUMBERS.set_column(0, "n", pa.array([1, 2], pa.int32())),
    "text": lambda: NUMBERS.set_column(0, "n", pa.array(["1", "2"])),
    "bytes": lambda: NUMBERS.set_column(1, "t", pa.array([b"\xff", b"a"])),
    "a column less": lambda: NUMBERS.select(["t"]),
    "a column more": lambda: NUMBERS.append_column("m", pa.array([1, 2])),
    "another case": lambda: NUMBERS.rename_columns(["N", "t"]),
    "a name twice, but for its case": lambda: NUMBERS.append_column("N", pa.array([1, 2])),
    "nanoseconds": lambda: NUMBERS.set_column(0, "n", pa.array([1, 2], pa.timestamp("ns"))),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_decoding_of_files_with_different_columns_returns_none(tmp_path: Path, other: Callable[[], pa.Table]) -> None:
    assert decoding.decoded(written(tmp_path, NUMBERS, NUMBERS), NUMBERS.schema) is not None
    assert decoding.decoded(written(tmp_path, NUMBERS, other()), NUMBERS.schema) is None
    if "more" not in other.__name__:
        one = decoding.decoded(written(tmp_path, other()), NUMBERS.schema)
        assert one is None or one.equals(NUMBERS)


def test_decoding_of_nanoseconds_as_microseconds_returns_none(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1, 1001], pa.timestamp("ns"))})
    old = written(tmp_path, table, use_deprecated_int96_timestamps=True)
    assert decoding.decoded(old, pa.schema([("t", pa.timestamp("us"))])) is None


@pytest.mark.parametrize("name", ["*.parquet", "[0].parquet", "?.parquet", "{0,1}.parquet"])
def test_decoding_of_file_name_with_glob_pattern_returns_none(tmp_path: Path, name: str) -> None:
    paths = written(tmp_path, NUMBERS, NUMBERS)
    paths[0].rename(tmp_path / name)
    assert decoding.decoded([tmp_path / name], NUMBERS.schema) is None


def test_decoding_of_unreadable_file_returns_none(tmp_path: Path) -> None:
    paths = written(tmp_path, NUMBERS, NUMBERS, NUMBERS)
    assert decoding.decoded([*paths, tmp_path / "gone"], NUMBERS.schema) is None
    paths[1].write_bytes(b"no Parquet")
    assert decoding.decoded(paths, NUMBERS.schema) is None
    no_text = pa.table({"n": [1], "t": pa.array([b"\xff"]).view(pa.string())})
    assert decoding.decoded(written(tmp_path, NUMBERS, no_text), NUMBERS.schema) is None
    content = bytearray(written(tmp_path, NUMBERS)[0].read_bytes())
    content[4:60] = bytes(56)
    paths[0].write_bytes(content)
    assert decoding.decoded(paths[:1], NUMBERS.schema) is None


def test_compaction_decodes_exact_files_in_duckdb_and_rest_in_arrow(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[int | None] = []
    decode = decoding.decoded

    def spied(paths: Any, schema: pa.Schema) -> pa.Table | None:
        table = decode(paths, schema)
        outcomes.append(None if table is None else table.num_rows)
        return table

    monkeypatch.setattr(decoding, "decoded", spied)
    monkeypatch.setattr("kubothek.table.maintenance.reading._QUERY", 16)
    table = grown(Lake(store), 40)
    narrow = next(iter(labels(table).values()))
    sink = pa.BufferOutputStream()
    found = pq.read_table(pa.BufferReader(store.get(narrow)))
    pq.write_table(found.set_column(0, "n", pc.cast(found["n"], pa.int32())), sink)
    store.put(narrow, sink.getvalue().to_pybytes())
    before = table.scan().read_all()
    assert table.compact().added.files == 1
    assert outcomes[:3] == [None, 32, 16]  # 16 files of two rows with the narrow one, 16, and 8
    assert table.scan().read_all().sort_by("n") == before.sort_by("n")


def test_compaction_of_many_files_with_one_missing_fails(store: Store) -> None:
    table = grown(Lake(store), 12)
    store.delete([list(labels(table).values())[9]])
    with pytest.raises(VersionIncomplete, match="a file that the version needs no longer exists"):
        table.compact()


def grown(lake: Lake, files: int) -> Dataset:
    """A table of so many files of two rows."""
    table = lake.create_dataset("grown")
    for number in range(files):
        rows: dict[str, list[Any]] = {
            "n": [2 * number, 2 * number + 1],
            "x": [float(number), None],
            "t": ["a", "é" * number],
        }
        table.append(pa.table(rows))
    return table
