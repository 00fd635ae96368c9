"""Slices whose hashes are right and which say something wrong: DAT, SL, OP, TIM, DS-01, HS-02."""

from __future__ import annotations

import decimal
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.odf import Layout, verify
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.events import OffsetInterval, SetDataSchema, SetVocab
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.storage import Store
from tests.odf.conftest import first
from tests.odf.making import SCHEMA, Maker, changes, later, rows


def _bad_rows(**columns: Any) -> pa.Table:
    return rows(3, 4, 2, **columns)


_MOMENT = later(2).nanoseconds // 10**6


@pytest.mark.requirement("DAT-03", "OP-01", "OP-03", "TIM-01", "TIM-02")
@pytest.mark.parametrize(
    ("code", "row", "column", "table"),
    [
        ("DataOffsets", 4, "offset", _bad_rows(offset=[3, 5, 6, 7])),
        ("DataOffsets", 3, "offset", _bad_rows(offset=[0, 1, 2, 3])),
        ("DataOffsets", 5, "offset", _bad_rows(offset=[3, 4, None, 6])),
        ("DataOp", 4, "op", _bad_rows(op=[0, 4, 0, 0])),
        ("DataOp", 6, "op", _bad_rows(op=[0, 0, 0, -1])),
        ("DataCorrection", 4, "op", _bad_rows(op=[0, 3, 0, 0])),
        ("DataCorrection", 3, "op", _bad_rows(op=[3, 0, 0, 0])),
        ("DataCorrection", 5, "op", _bad_rows(op=[0, 2, 0, 3])),
        ("DataCorrection", 5, "op", _bad_rows(op=[0, 2, 2, 3])),
        ("DataCorrection", 6, "op", _bad_rows(op=[2, 3, 3, 0][::-1])),
        ("DataCorrection", 6, "op", _bad_rows(op=[0, 0, 0, 2])),
        ("DataSystemTime", 5, "system_time", _bad_rows(system_time=[_MOMENT, _MOMENT, _MOMENT - 1, _MOMENT])),
        ("DataSystemTime", 3, "system_time", _bad_rows(system_time=[0, 0, 0, 0])),
    ],
)
def test_slice_violation_names_row_and_column(store: Store, code: str, row: int, column: str, table: pa.Table) -> None:
    if code == "DataCorrection" and table.column("op").to_pylist() == [0, 3, 3, 2]:
        row = 4
    maker = Maker(store)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    maker.data(table, 2)
    problem = first(store)
    assert (problem.code, problem.number, problem.row, problem.column) == (code, 3, row, column)


@pytest.mark.requirement("OP-03", "DAT-03")
def test_slice_rows_are_checked_across_batches(store: Store) -> None:
    """The second half of a correction is the first record of the reader's next batch."""
    count = 65_536
    op = [0] * (count - 1) + [2, 3, 0]
    moment = later(1).nanoseconds // 10**6
    same = {"city": ["x"] * (count + 2), "population": [1] * (count + 2), "event_time": [moment] * (count + 2)}
    maker = Maker(store)
    maker.start()
    maker.data(rows(0, count + 2, 1, op=op, **same), 1)
    assert verify(store, Layout(), threads=1).sound
    forged = Maker(store, Layout("forged/"))
    forged.start()
    forged.data(rows(0, count + 2, 1, op=[0] * count + [3, 0]), 1)
    assert (first(store, forged.layout).code, first(store, forged.layout).row) == ("DataCorrection", count)


@pytest.mark.requirement("SL-10")
@pytest.mark.slow
@pytest.mark.parametrize(
    "written",
    [
        {},
        {"use_dictionary": False},
        {"row_group_size": 7_000},
        {"dictionary_pagesize_limit": 1_000, "data_page_size": 1_000},
        {"version": "2.6", "compression": "zstd"},
    ],
    ids=str,
)
def test_slice_records_are_independent_of_parquet_encoding(store: Store, written: dict[str, Any]) -> None:
    """Texts in dictionaries, in none, in several, and in one that became too large half-way; columns within columns."""
    count = 20_000
    nested = pa.array([{"city": f"in {n % 9}", "seen": [n, None]} for n in range(count)])
    table = rows(0, count, 1, city=[None if n % 11 == 0 else f"town {n * n % 4_000}" for n in range(count)])
    for name, values in (("city.city", pa.array(["JFK", "EWR"] * (count // 2))), ("place", nested)):
        table = table.append_column(name, values)
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"version": "1.0", "store_schema": False, **written})
    table = pq.read_table(io.BytesIO(sink.getvalue()))
    for threads in (1, 3):  # of which each reads columns, as there is but one slice
        maker = Maker(store, Layout(f"{threads}/"))
        maker.start(table.schema)
        maker.data(table, 1, new_data=maker.stored(sink.getvalue(), table, 0))
        verdict = verify(store, maker.layout, threads=threads)
        assert (verdict.sound, verdict.records) == (True, count), verdict.first
        maker.data(table, 2, new_data=maker.stored(sink.getvalue(), table.slice(0, count - 1), 0))
        assert first(store, maker.layout).code in ("DataOffsets", "Offsets")


def _changed(maker: Maker, **changed: Any) -> None:
    """A slice whose event says something else of it."""
    maker.data(rows(0, 3, 1), 1, new_data=maker.slice(rows(0, 3, 1), 0, **changed))


@pytest.mark.requirement("DS-01", "DAT-04", "HS-02")
@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("DataSize", {"size": 5}),
        ("DataRows", {"offset_interval": OffsetInterval(start=0, end=3)}),
        ("DataRows", {"offset_interval": OffsetInterval(start=0, end=1)}),
        ("Offsets", {"offset_interval": OffsetInterval(start=2**63, end=2**64 - 1)}),
        ("DataLogical", {"logical_hash": Multihash(Codec.ARROW0_SHA3_256, b"x" * 32)}),
    ],
)
def test_slice_metadata_mismatch_is_reported(store: Store, code: str, changed: dict[str, Any]) -> None:
    maker = Maker(store)
    maker.start()
    _changed(maker, **changed)
    assert first(store).code == code


@pytest.mark.requirement("DAT-04", "SL-11")
@pytest.mark.parametrize(
    ("code", "column", "table"),
    [
        ("DataSchema", None, rows(0, 3).drop_columns(["city"])),
        ("DataSchema", None, rows(0, 3).select([0, 1, 2, 3, 5, 4])),
        ("DataSchema", "population", rows(0, 3).set_column(5, "population", pa.array([1, 2, 3], pa.int32()))),
        ("DataColumns", "op", rows(0, 3).set_column(1, "op", pa.array(["0", "0", "0"]))),
        ("DataTimestamp", "city", rows(0, 3).set_column(4, "city", pa.array([1, 2, 3], pa.timestamp("ms")))),
    ],
)
def test_slice_column_mismatch_names_column(store: Store, code: str, column: str | None, table: pa.Table) -> None:
    maker = Maker(store)
    maker.start()
    maker.data(table, 0)
    assert (first(store).code, first(store).column) == (code, column)


@pytest.mark.requirement("SL-10")
@pytest.mark.slow
def test_slice_with_invalid_parquet_is_reported(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    buffer = io.BytesIO()
    pq.write_table(rows(0, 3), buffer, compression="none", store_schema=False)
    data = bytearray(buffer.getvalue())
    for number, broken in enumerate(
        (b"PAR1", b"", b"x" * 100, bytes(data[:-9]) + b"\xff" * 9, b"PAR1" + b"\xff" * 60 + data[64:])
    ):
        forged = Maker(store, Layout(f"{number}/"))
        forged.start()
        forged.data(rows(0, 3), 0, new_data=forged.stored(broken, rows(0, 3), 0))
        assert first(store, forged.layout).code in {"DataParquet", "DataLogical"}, number


@pytest.mark.requirement("SL-12", "SL-13")
def test_slice_with_specification_types_is_sound(store: Store) -> None:
    """uint64 and uint8, a vocabulary of one's own, and a date as event time."""
    fields: list[pa.Field[Any]] = [
        pa.field("n", pa.uint64()),
        pa.field("kind_of", pa.uint8()),
        pa.field("system_time", pa.timestamp("ms", "UTC")),
        pa.field("date", pa.date32()),
        pa.field("x", pa.string()),
    ]
    schema = pa.schema(fields)
    moment = later(1).nanoseconds // 10**6
    values: list[list[Any]] = [[0, 1], [0, 1], [moment] * 2, [1, 1], [None, None]]
    arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    maker = Maker(store)
    maker.start(SCHEMA)
    maker.blocks.pop()
    maker.add(SetVocab(offset_column="n", operation_type_column="kind_of", event_time_column="date"))
    maker.add(SetDataSchema(raw_arrow_schema=encode_schema(schema)))
    maker.data(table, 1)
    assert verify(store, Layout(), threads=1).problems == ()


@pytest.mark.requirement("DAT-04")
def test_slice_schema_may_differ_in_string_type_and_nullability(store: Store) -> None:
    """A schema with large strings, say of a writer in Arrow's view types, is the schema of the same column."""
    maker = Maker(store)
    wide = SCHEMA.set(4, pa.field("city", pa.large_string(), nullable=False))
    maker.start(wide)
    maker.data(rows(0, 3, 1), 1)
    assert verify(store, Layout(), threads=1).sound


_EVENTS = [later(1).nanoseconds // 10**6 - 1000 * number for number in range(4)]


@pytest.mark.requirement("OP-02")
@pytest.mark.parametrize(
    ("row", "changed"),
    [
        (None, {}),
        (4, {"city": ["new", "city 9", "city 1", "city 1"]}),
        (4, {"city": ["new", None, "city 1", "city 1"]}),
        (4, {"population": [9, None, 1, 7]}),
        (4, {"event_time": [_EVENTS[0], _EVENTS[1], _EVENTS[1], _EVENTS[1]]}),
        (5, {"population": [9, 0, 2, 7]}),
        (5, {"op": [0, 1, 1, 0], "city": ["new", "city 0", "city 0", "x"], "population": [9, 0, 0, 7],
             "event_time": [_EVENTS[0]] * 4}),
        (3, {"op": [1, 0, 0, 0], "city": ["city 5"] * 4, "population": [0] * 4, "event_time": [_EVENTS[0]] * 4}),
        (None, {"op": [1, 0, 1, 0], "city": ["city 0"] * 4, "population": [0] * 4, "event_time": [_EVENTS[0]] * 4}),
        (4, {"op": [1, 1, 0, 0], "city": ["city 0"] * 4, "population": [0] * 4, "event_time": [_EVENTS[0]] * 4}),
        (None, {"op": [0, 0, 1, 1], "city": [None] * 4, "population": [None] * 4, "event_time": [None] * 4}),
    ],
)  # fmt: skip
def test_retraction_without_matching_record_is_reported(store: Store, row: int | None, changed: dict[str, Any]) -> None:
    maker = Maker(store)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    maker.data(changes(**changed), 2)
    verdict = verify(store, Layout(), threads=1)
    found = [(problem.code, problem.number, problem.row) for problem in verdict.problems]
    assert found == ([("DataRetract", 3, row)] if row is not None else [])


@pytest.mark.requirement("OP-02")
def test_retraction_of_record_before_added_column_needs_null(store: Store) -> None:
    kind = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])
    wide = SCHEMA.append(pa.field("extra", kind))
    for number, (value, sound) in enumerate([(None, True), ({"x": 0, "y": None}, False)]):
        maker = Maker(store, Layout(f"{number}/"))
        maker.start()
        maker.data(rows(0, 3, 1), 1)
        maker.add(SetDataSchema(raw_arrow_schema=encode_schema(wide)), 1)
        maker.data(changes().append_column("extra", pa.array([{"x": 1, "y": ["a"]}, value, None, None], kind)), 2)
        assert verify(store, maker.layout, threads=1).sound is sound


@pytest.mark.requirement("SL-19")
def test_slice_types_of_schema_language_are_read_back(store: Store) -> None:
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "boolean": (pa.bool_(), [True, None]),
        "int": (pa.int32(), [1, None]),
        "bigint": (pa.int64(), [1, None]),
        "decimal": (pa.decimal128(10, 2), [decimal.Decimal("1.25"), None]),
        "float": (pa.float32(), [0.5, None]),
        "double": (pa.float64(), [0.5, None]),
        "uuid": (pa.binary(16), [b"0123456789abcdef", None]),
        "string": (pa.string(), ["", None]),
        "timestamp": (pa.timestamp("ms", "UTC"), [5, None]),
        "date": (pa.date32(), [5, None]),
        "time": (pa.time32("ms"), [5, None]),
        "list": (pa.list_(pa.int64(), 2), [[1, 2], None]),
        "struct": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": None, "y": "a"}]),
    }
    table = rows(0, 2, 1).select([0, 1, 2, 3])
    for name, (kind, values) in kinds.items():
        table = table.append_column(name, pa.array(values, kind))
    maker = Maker(store)
    maker.start(table.schema)
    buffer = io.BytesIO()
    written = table.set_column(10, "uuid", pa.array([b"0123456789abcdef", None], pa.uuid()))  # annotated in Parquet
    pq.write_table(written, buffer, store_schema=False)
    maker.data(table, 1, new_data=maker.stored(buffer.getvalue(), table, 0))
    assert verify(store, Layout(), threads=1).problems == ()
