"""The logical hash (HS-02) and the physical one (HS-01)."""

from __future__ import annotations

import datetime
import struct
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha3_256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import InputError
from kubothek.odf.spec.digest import LogicalHash, logical_hash
from kubothek.odf.spec.multihash import Codec, Multihash
from tests.odf.slow_digest import slow_digest
from tests.odf.values import examples
from tests.odf.vectors import GOLDEN, VECTORS

DIGESTS = VECTORS["arrow_digest"]
PROMOTED = {"time32_s", "timestamp_s"}
"""Parquet has no seconds: pyarrow reads milliseconds, arrow-rs seconds. A slice has milliseconds only."""


@pytest.mark.requirement("HS-02")
@pytest.mark.parametrize("vector", DIGESTS, ids=lambda vector: vector["name"])
def test_logical_hash_matches_published_vectors(vector: dict[str, Any]) -> None:
    with pa.ipc.open_stream((GOLDEN / "arrow" / f"{vector['name']}.arrows").read_bytes()) as reader:
        table = reader.read_all()
    assert str(logical_hash(table.schema, table.to_batches())) == vector["logical_hash_multibase"]
    again = pq.read_table(GOLDEN / "arrow" / f"{vector['name']}.parquet")
    if vector["name"] not in PROMOTED:
        assert str(logical_hash(again.schema, again.to_batches())) == vector["parquet_roundtrip_logical_hash"]


@pytest.mark.requirement("HS-01")
def test_physical_hash_is_sha3_of_file() -> None:
    vector = VECTORS["multihash"][0]
    assert str(Multihash.sha3(memoryview(vector["data_utf8"].encode()))) == vector["sha3_256_multihash_base16"]


# --- against the slow one --------------------------------------------------------------------------------------------

_NAIVE = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **{
        kind: st.integers(0, 127) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 3): st.decimals(-(10**10), 10**10, places=3),
    pa.decimal256(60, 3): st.decimals(-(10**10), 10**10, places=3),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("ms", "UTC"): st.integers(-(2**40), 2**40),
    pa.timestamp("ns"): st.integers(-(2**60), 2**60),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.string_view(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
}


@st.composite
def _columns(draw: st.DrawFn, rows: int, depth: int = 0) -> Any:
    shape = draw(st.sampled_from(["simple", "simple", "list", "large list", "fixed list", "struct"]))
    if depth == 2 or shape == "simple":
        kind = draw(st.sampled_from(list(_VALUES)))
        each = _VALUES[kind] | st.none() if draw(st.booleans()) else _VALUES[kind]
        return pa.array(draw(st.lists(each, min_size=rows, max_size=rows)), kind)
    if shape == "struct":
        if depth:
            return draw(_columns(rows, depth + 1))  # a list of structs has no logical hash
        count = draw(st.integers(1, 3))
        return pa.StructArray.from_arrays(
            [draw(_columns(rows, 1)) for _ in range(count)], [f"f{n}" for n in range(count)]
        )
    nulls = draw(st.lists(st.booleans(), min_size=rows, max_size=rows)) if draw(st.booleans()) else [False] * rows
    if shape == "fixed list":
        items = draw(_columns(2 * rows, 2))
        return pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array(nulls, pa.bool_()))
    lengths = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    ends = [sum(lengths[:n]) for n in range(rows + 1)]
    items = draw(_columns(ends[-1], 2))
    lists: Any = pa.ListArray if shape == "list" else pa.LargeListArray
    word: Any = pa.int32() if shape == "list" else pa.int64()
    return lists.from_arrays(pa.array(ends, word), items, mask=pa.array(nulls, pa.bool_()))


@pytest.mark.requirement("HS-02")
@examples(100, 2000)
@given(data=st.data())
def test_logical_hash_is_independent_of_batch_size(data: st.DataObject) -> None:
    """Slices with any offset, nulls with something under them, all types."""
    rows = data.draw(st.integers(0, 12))
    count = data.draw(st.integers(1, 3))
    whole = pa.table({f"c{number}": data.draw(_columns(rows)) for number in range(count)})
    table = whole.slice(data.draw(st.integers(0, 3)))
    expected = slow_digest(table)
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    hasher = LogicalHash(table.schema)
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        hasher.update(table.slice(start, end - start))
    assert hasher.finish() == Multihash(Codec.ARROW0_SHA3_256, expected)


@pytest.mark.requirement("HS-02")
def test_logical_hash_ignores_values_under_nulls() -> None:
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0\4\0\0\0"), pa.py_buffer(b"abcd")]
    hidden = pa.StringArray.from_buffers(3, buffers[1], buffers[2], buffers[0])
    plain = pa.array(["a", None, "d"])
    assert hidden.equals(plain)
    assert _hash({"c": hidden}) == _hash({"c": plain})
    numbers = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\1\0\0\0\7\0\0\0")])
    assert _hash({"c": numbers}) == _hash({"c": pa.array([1, None], pa.int32())})


@pytest.mark.requirement("HS-02")
def test_logical_hash_depends_on_names_order_and_nesting_not_nullability() -> None:
    one, two = pa.array([1, 2]), pa.array(["a", "b"])
    usual = _hash({"a": one, "b": two})
    assert usual != _hash({"b": two, "a": one})
    assert usual != _hash({"a": one, "c": two})
    fields: list[pa.Field[Any]] = [pa.field("a", pa.int64(), False, {"k": "v"}), pa.field("b", pa.string(), False)]
    strict = pa.schema(fields)
    assert logical_hash(strict, [pa.record_batch([one, two], schema=strict)]) == usual
    assert (
        usual
        == _hash({"a": one, "b": two.cast(pa.large_string())})
        == _hash({"a": one, "b": two.cast(pa.string_view())})
    )
    nested = pa.StructArray.from_arrays([two], ["b"])
    assert _hash({"a": one, "b": nested}) != usual


@pytest.mark.requirement("HS-02")
def test_logical_hash_of_structs_follows_reference_batches() -> None:
    """Nulls of a struct and of what is in it: a slot is null only if both are, judged per 10,000 rows."""
    inner = [None if number == 3 else number for number in range(10_000)] + [None] * 3 + list(range(7))
    outer = [number == 5 for number in range(10_000)] + [False] * 10
    column = pa.StructArray.from_arrays([pa.array(inner, pa.int32())], ["d"], mask=pa.array(outer))
    table = pa.table({"b": column})
    once = _hash({"b": column})
    hasher = LogicalHash(table.schema)
    for start in range(0, table.num_rows, 7):
        hasher.update(table.slice(start, 7))
    assert hasher.finish() == once
    # of the first batch both have nulls: none of its slots is null, row 3 counts as 0; of the second only the inner has
    first = b"".join(
        (0 if number in (3, 5) and inner[number] is None else number).to_bytes(4, "little") for number in range(10_000)
    )
    second = b"\0" * 3 + b"".join(number.to_bytes(4, "little") for number in range(7))
    leaf = sha3_256(struct.pack("<HBQ", 1, 1, 32) + first + second).digest()
    names = struct.pack("<Q", 1) + b"b" + struct.pack("<Q", 0) + struct.pack("<Q", 1) + b"d" + struct.pack("<Q", 1)
    assert once.digest == sha3_256(names + leaf).digest()


@pytest.mark.requirement("HS-02")
def test_logical_hash_in_parallel_equals_sequential_hash() -> None:
    count = 70_000
    texts = pa.array([None if n % 7 == 0 else f"text {n}" for n in range(count)])
    columns: dict[str, Any] = {"n": pa.array(range(count)), "t": texts, "f": pa.array([n / 3 for n in range(count)])}
    table = pa.table(columns)
    with ThreadPoolExecutor(3) as pool:
        assert logical_hash(table.schema, table.to_batches(9_999), pool) == _hash(columns)
    assert _hash(columns) == Multihash(Codec.ARROW0_SHA3_256, slow_digest(table))


@pytest.mark.requirement("HS-02")
@pytest.mark.parametrize(
    "texts",
    [["JFK", "EWR", "LGA"], ["N1", "N10156", ""], ["", "", ""], ["ä", "a", "long enough to be long"]],
    ids=lambda texts: texts[-1],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_logical_hash_of_dictionary_equals_hash_of_plain_strings(texts: list[str], nulls: bool) -> None:
    values = [None if nulls and n % 5 == 0 else texts[n * n % 3] for n in range(40_000)]
    plain = pa.array(values, pa.string())
    coded = plain.dictionary_encode()
    hasher = LogicalHash(pa.schema([pa.field("c", pa.string())]))
    hasher.update(pa.table({"c": coded.slice(0, 33_003)}))
    hasher.update(
        pa.table({"c": pa.array(values[33_003:39_000], pa.string()).dictionary_encode()})
    )  # another dictionary
    hasher.update(pa.table({"c": plain.slice(39_000)}))
    assert (
        hasher.finish() == _hash({"c": plain}) == Multihash(Codec.ARROW0_SHA3_256, slow_digest(pa.table({"c": plain})))
    )


@pytest.mark.requirement("HS-02")
def test_logical_hash_treats_null_dictionary_values_as_nulls() -> None:
    texts = pa.array(["a", None])
    hasher = LogicalHash(pa.schema([pa.field("c", pa.string())]))
    hasher.update(pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), texts)}))
    assert hasher.finish() == _hash({"c": pa.array(["a", None, None])})


@pytest.mark.requirement("HS-02")
@pytest.mark.parametrize("index", [2, -1])
@pytest.mark.parametrize("texts", [["a", "b"], ["a", ""]])
@pytest.mark.parametrize("also", [[], [None]])
def test_logical_hash_of_invalid_dictionary_index_raises_input_error(
    index: int, texts: list[str], also: list[Any]
) -> None:
    indices = pa.array([0, index, *also], pa.int32())
    hasher = LogicalHash(pa.schema([pa.field("c", pa.string())]))
    with pytest.raises(InputError, match="no number"):
        hasher.update(pa.table({"c": pa.DictionaryArray.from_arrays(indices, pa.array(texts), safe=False)}))


@pytest.mark.requirement("HS-02")
@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.duration("s"),
        pa.dictionary(pa.int32(), pa.string()),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.struct([pa.field("x", pa.int64())])),
        pa.struct([pa.field("x", pa.null())]),
        pa.list_view(pa.int64()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.month_day_nano_interval(),
        pa.decimal32(5, 2),
    ],
    ids=str,
)
def test_logical_hash_of_unsupported_type_raises_input_error(kind: Any) -> None:
    with pytest.raises(InputError, match="has no logical hash"):
        LogicalHash(pa.schema([pa.field("c", kind)]))


@pytest.mark.requirement("HS-02")
def test_logical_hash_of_rows_with_other_columns_raises_input_error() -> None:
    hasher = LogicalHash(pa.schema([pa.field("a", pa.int64())]))
    with pytest.raises(InputError, match="columns"):
        hasher.update(pa.table({"a": pa.array([1], pa.int32())}))


def _hash(columns: dict[str, Any]) -> Multihash:
    table = pa.table(columns)
    return logical_hash(table.schema, table.to_batches())


@pytest.mark.requirement("HS-02")
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["aa", "bb", "cc", "dd"]),
        pa.array(["aa", "bb", "cc", None]),
        pa.array(["", "", "", ""]),
        pa.array(["aa", "b", "ccc", "dd"]),
        pa.array([b"1234"] * 4, pa.binary(4)),
        pa.array([[1, 2], [3, 4], [5, 6], [7, 8]]),
        pa.array([["a"], ["b"], ["c"], ["d"]]),
        pa.array([["a", None], ["b", None], ["c", None], ["d", None]]),
        pa.array([[], [], [], []], pa.list_(pa.int8())),
    ],
    ids=lambda values: str(values.to_pylist())[:30],
)
def test_logical_hash_of_fixed_width_values_matches_reference(values: Any) -> None:
    for part in (values, values.slice(1), values.slice(1, 2), values.slice(0, 0)):
        table = pa.table({"x": part})
        assert logical_hash(table.schema, table.to_batches()).digest == slow_digest(table)
