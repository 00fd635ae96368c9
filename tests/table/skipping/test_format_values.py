"""Describing files: the values that real Xskipper gets wrong, all types, nested columns, what cannot be told."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import SkippingInvalid
from kubothek.table.skipping.bounds import LONGEST
from kubothek.table.skipping.entries import Describer, fields, virtual_type, virtual_value
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import IndexDefinition, SkippingState

NAN = math.nan


def described(kind: str, *batches: pa.Array[Any], column: str = "c") -> Any:
    """The entry of a file with these rows."""
    schema = fields([IndexDefinition(kind, (column,))], pa.schema([(column, batches[0].type)]))
    describer = Describer(schema)
    for batch in batches:
        describer.update(pa.record_batch([batch], names=[column]))
    entry = describer.finish()
    if entry is None:
        return None
    assert entry[0] is not None
    assert entry[0].type == schema.arrow.field(2).type
    return entry[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("data_type", "values", "low", "high"),
    [
        (pa.int64(), [3, None, -(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
        (pa.int8(), [3, -1], -1, 3),
        (pa.uint64(), [3, 2**64 - 1], 3, 2**64 - 1),
        (pa.bool_(), [True, None], True, True),
        (pa.float64(), [0.5, -math.inf, None], -math.inf, 0.5),
        (pa.string(), ["～", "😀", ""], "", "😀"),
        (pa.binary(), [b"\xff", b"a"], b"a", b"\xff"),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], date(1, 1, 1), date(9999, 12, 31)),
        (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("1e20")], Decimal("-1.5"), Decimal("1e20")),
        (pa.timestamp("us"), [datetime(1, 1, 1), None], datetime(1, 1, 1), datetime(1, 1, 1)),
        (
            pa.timestamp("ms", "Europe/Berlin"),
            [datetime(2020, 1, 1, tzinfo=UTC)],
            datetime(2020, 1, 1, tzinfo=UTC),
            datetime(2020, 1, 1, tzinfo=UTC),
        ),
        (pa.int64(), [None, None], None, None),
        (pa.dictionary(pa.int8(), pa.string()), ["b", "a", "b"], "a", "b"),
    ],
    ids=str,
)
def test_min_max_entry_of_each_type_has_expected_bounds(data_type: Any, values: list[Any], low: Any, high: Any) -> None:
    array = pa.array(values, data_type)
    if pa.types.is_dictionary(data_type):
        definition = IndexDefinition("MinMax", ("c",))
        describer = Describer(fields([definition], pa.schema([("c", pa.string())])))
        describer.update(pa.record_batch([array], names=["c"]))
        entry = describer.finish()
        assert entry is not None
        assert entry[0] is not None
        assert entry[0].to_pylist() == [{"min": low, "max": high}]
        return
    for parts in ([array], [array[:1], array[1:]], [array[::-1]]):
        assert described("MinMax", *parts) == {"min": low, "max": high}


def test_min_max_entry_treats_nan_as_greatest_number() -> None:
    found = described("MinMax", pa.array([1.0]), pa.array([NAN, None]), pa.array([-2.0]))
    assert found["min"] == -2.0
    assert math.isnan(found["max"])
    found = described("MinMax", pa.array([NAN], pa.float32()))
    assert math.isnan(found["min"])
    assert math.isnan(found["max"])


def test_min_max_entry_rounds_nanoseconds_outwards() -> None:
    moments = pa.array([1_500, 1_999], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    schema = fields([IndexDefinition("MinMax", ("c",))], pa.schema([("c", moments.type)]))
    describer = Describer(schema)
    describer.update(pa.record_batch([moments], names=["c"]))
    entry = describer.finish()
    assert entry is not None
    assert entry[0] is not None
    low, high = (entry[0].field(n).cast(pa.int64())[0].as_py() for n in (0, 1))  # type: ignore[attr-defined]
    assert (low, high) == (1, 2)


def test_min_max_entry_of_long_text_has_short_bounds() -> None:
    """Bounds in bytes, also next to the surrogates, which no text holds, and at the end of Unicode."""
    for last in ("x", "\ud7ff", "\U0010ffff"):
        text = "é" * (LONGEST - 1) + last + "tail"
        found = described("MinMax", pa.array([text]))
        assert found["min"] == text[:LONGEST]
        assert found["min"].encode() < text.encode() < found["max"].encode()
        assert len(found["max"]) <= LONGEST
    highest = "\U0010ffff" * (LONGEST + 5)
    assert described("MinMax", pa.array([highest]))["max"] == highest
    data = b"\x01" + b"\xff" * 300
    assert described("MinMax", pa.array([data])) == {"min": data[:LONGEST], "max": b"\x02"}


def test_value_list_entry_has_all_values_and_both_zeros() -> None:
    assert sorted(described("ValueList", pa.array([3, None, 1]), pa.array([3]))) == [1, 3]
    assert described("ValueList", pa.array([None, None], pa.string())) == []
    found = described("ValueList", pa.array([-0.0, NAN]), pa.array([NAN, 1.5]))
    assert sorted(math.copysign(1, x) for x in found if x == 0) == [-1.0, 1.0]
    assert sum(math.isnan(x) for x in found) == 1
    assert len(found) == 4


def test_file_beyond_entry_limits_has_no_entry() -> None:
    large = pa.array([f"{n:0200d}" for n in range(100_000)])
    assert described("ValueList", large) is None
    assert described("BloomFilter", pa.array(["x" * 100_000])) is None


def test_skipping_entry_of_nested_and_missing_columns_is_correct() -> None:
    nested = pa.struct([("A", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    table_schema = pa.schema([("Nest", nested), ("id", pa.int64())])
    definitions = [IndexDefinition("MinMax", ("nest.a",)), IndexDefinition("ValueList", ("NEST.B.C",))]
    schema = fields(definitions, table_schema)
    assert schema.arrow.names[2:] == ["nest$#$a_minmax_8", "nest$#$b$#$c_valuelist_12"]
    describer = Describer(schema)
    rows = [{"A": 1, "b": {"c": "x"}}, None, {"A": None, "b": None}]
    describer.update(pa.record_batch([pa.array(rows, nested)], names=["Nest"]))
    describer.update(pa.record_batch({"id": [1]}))  # an old file: the column was not there yet
    describer.update(pa.record_batch({"Nest": pa.array([{"A": 7}], pa.struct([("A", pa.int32())]))}))
    entry = describer.finish()
    assert entry is not None
    assert [each.to_pylist() for each in entry if each is not None] == [[{"min": 1, "max": 7}], [["x"]]]


def test_describer_of_index_subset_leaves_other_columns_null() -> None:
    definitions = [IndexDefinition("MinMax", ("a",)), IndexDefinition("ValueList", ("a",))]
    schema = fields(definitions, pa.schema([("a", pa.int64())]))
    describer = Describer(schema, definitions[1:])
    describer.update(pa.record_batch({"a": [1]}))
    entry = describer.finish()
    assert entry is not None
    assert entry[0] is None
    row = schema.row("k", 5, {}, entry)
    assert row.to_pylist() == [{"key": "k", "modified": 5, "a_minmax_1": None, "a_valuelist_1": [1]}]


def test_skipping_entry_without_rows_is_empty() -> None:
    definitions = [IndexDefinition(kind, ("a",)) for kind in ("MinMax", "ValueList", "BloomFilter")]
    entry = Describer(fields(definitions, pa.schema([("a", pa.int64())]))).finish()
    assert entry is not None
    assert [each.to_pylist() for each in entry[:2] if each is not None] == [[{"min": None, "max": None}], [[]]]


_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("p", pa.int64()),
    ("x", pa.float64()),
    ("s", pa.string()),
    ("n", pa.null()),
    ("l", pa.list_(pa.int64())),
    ("t", pa.time64("us")),
    ("ns", pa.timestamp("ns")),
    ("u", pa.uint64()),
    ("a.b", pa.int64()),
    ("Twice", pa.int64()),
    ("twice", pa.int64()),
]
SCHEMA = pa.schema(_COLUMNS)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (IndexDefinition("Prefixes", ("s",)), "no index type 'Prefixes'; there are .*BloomFilter"),
        (IndexDefinition("MinMax", ("missing",)), "MinMax on 'missing': there is no 'missing'; there are 'p'"),
        (IndexDefinition("MinMax", ()), "name the column"),
        (IndexDefinition("MinMax", ("s", "x")), "it is on one column"),
        (IndexDefinition("MinMax", ("p",)), "'p' is a partition column"),
        (IndexDefinition("MinMax", ("l",)), "values of type list<int64>"),
        (IndexDefinition("ValueList", ("t",)), "values of type time64"),
        (IndexDefinition("ValueList", ("ns",)), "use MinMax"),
        (IndexDefinition("BloomFilter", ("x",)), "whole numbers and text"),
        (IndexDefinition("BloomFilter", ("u",)), "whole numbers and text"),
        (IndexDefinition("BloomFilter", ("s",), {"fpp": "1.5"}), "not between 0 and 1"),
        (IndexDefinition("BloomFilter", ("s",), {"ndv": "many"}), "are numbers"),
        (IndexDefinition("BloomFilter", ("s",), {"size": "1"}), "no parameter 'size'"),
        (IndexDefinition("MinMax", ("a.b",)), "dot in its name"),
        (IndexDefinition("MinMax", ("TWICE",)), "ambiguous: 'Twice', 'twice'"),
        (IndexDefinition("MinMax", ("s.x",)), "no fields in it"),
    ],
)
def test_skipping_index_on_unsupported_column_is_refused(definition: IndexDefinition, message: str) -> None:
    with pytest.raises(SkippingInvalid, match=message):
        check([definition], SCHEMA, ["p"])


def test_duplicate_skipping_index_is_refused_and_untyped_column_waits() -> None:
    both = [IndexDefinition("MinMax", ("S",)), IndexDefinition("minmax", ("s",))]
    with pytest.raises(SkippingInvalid, match="there twice"):
        check(both, SCHEMA)
    assert fields([IndexDefinition("MinMax", ("n",)), both[0]], SCHEMA).definitions == (both[0],)


def test_partition_values_have_types_that_spark_infers() -> None:
    assert virtual_value(2**40, virtual_type(pa.int64())).to_pylist() == [None]
    assert virtual_value(7, virtual_type(pa.int64())).to_pylist() == [7]
    assert virtual_value(True, virtual_type(pa.bool_())).to_pylist() == ["True"]
    assert virtual_value(b"x", virtual_type(pa.binary())).to_pylist() == [None]
    assert virtual_value(None, virtual_type(pa.date32())).to_pylist() == [None]
    assert virtual_value(datetime(2020, 1, 1), virtual_type(pa.timestamp("us"))).type == pa.timestamp("us", "UTC")


def test_skipping_state_survives_json_roundtrip() -> None:
    definition = IndexDefinition("BloomFilter", ("a",), {"ndv": "5"}, "k1")
    found = {
        "indices": [definition.to_json()],
        "parts": [{"key": "a", "rows": 1, "bytes": 2, "own": None}],
        "encryption": {"footer_key": "k0", "plaintext_footer": False},
    }
    state = SkippingState.from_json(found)
    assert state.indices == (definition,)
    assert state.to_json() == found
    assert SkippingState.from_json({}) == SkippingState()
