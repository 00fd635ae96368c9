"""Looking values up finds exactly the files that hold them, in either kind of index and of every type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.table.expressions import Op, Term, intervals
from kubothek.table.indexes import Dialect, IndexFile, IndexState, kartothek, lookup, lookup_interval, native
from kubothek.table.indexes.compact import compacted, stream
from kubothek.table.indexes.entries import entries, no_entries, sort_distinct
from kubothek.table.indexes.lookup import labels_held
from kubothek.table.indexes.native import Manifest
from kubothek.table.indexes.object_cache import Opened, OpenedFile, opened
from kubothek.table.indexes.types import file_type, indexable
from tests.table.indexes.model import UUID, Indexed, Rows, collect, matching
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

MOMENT = datetime(2026, 3, 1, 8, 0, 0, 5, tzinfo=UTC)

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int64": (pa.int64(), st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
    "uint64": (pa.uint64(), st.integers(0, 4) | st.just(2**64 - 1)),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), 1e300])),
    "string": (pa.string(), st.sampled_from(["", "a", "é", "𐀀", "￿", "x" * 200, "x" * 199 + "y", "'", "a/b"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"\xff", b"a" * 300])),
    "date32": (pa.date32(), st.dates(date(1, 1, 1), date(1, 1, 4)) | st.just(date(9999, 12, 31))),
    "timestamp": (pa.timestamp("us"), st.datetimes(datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1, 0, 0, 1))),
}


@st.composite
def questions(draw: st.DrawFn, strategy: st.SearchStrategy[Any]) -> tuple[Rows, str, list[Any]]:
    rows = draw(st.dictionaries(st.sampled_from("abcdef"), st.lists(strategy | st.none(), max_size=8), max_size=6))
    op = draw(st.sampled_from(["=", "in", "<", "<=", ">", ">="]))
    count = (0, 4) if op == "in" else (1, 1)
    values = draw(st.lists(strategy | st.none(), min_size=count[0], max_size=count[1]))
    return rows, op, values


def in_native(store: MemoryStore, rows: Rows, value_type: pa.DataType) -> Indexed:
    """As commits leave it: several small files."""
    files = collect(store, rows, value_type, memory_budget=1).files["x"]
    key = native.write_manifest(store, UUID, Manifest("x", value_type, files))
    return Indexed(IndexState(UUID, {}, {"x": key}))


def in_kartothek(store: MemoryStore, rows: Rows, value_type: pa.DataType, dialect: Dialect) -> Indexed:
    files = collect(store, rows, value_type).files["x"]
    sorted_ = sort_distinct([no_entries(value_type), *stream(store, files, value_type)()])
    key = kartothek.write(store, UUID, "x", sorted_, file_type(value_type, dialect), MOMENT)
    return Indexed(IndexState(UUID, {"x": key}))


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_lookup_of_any_value_returns_exactly_matching_files(name: str, data: st.DataObject) -> None:
    value_type, strategy = VALUES[name]
    rows, op, values = data.draw(questions(strategy))
    schema = pa.schema([("x", value_type)])
    store = MemoryStore()
    heads = [in_native(store, rows, value_type)]
    heads += [in_kartothek(store, rows, value_type, dialect) for dialect in Dialect]
    expected = matching(rows, op, values)
    for head in heads:
        found = lookup(store, head, schema, "x", op, values)
        if name == "double" and op in (">", ">=") and values[0] is not None:
            assert found is None
        else:
            assert found == expected


@pytest.mark.parametrize("name", ["int64", "double", "string", "binary", "date32", "timestamp"])
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_lookup_of_several_terms_returns_files_with_value_in_interval(name: str, data: st.DataObject) -> None:
    """A file with a value below and one above the interval holds none within."""
    value_type, strategy = VALUES[name]
    rows = data.draw(st.dictionaries(st.sampled_from("abcdef"), st.lists(strategy, max_size=4), max_size=6))
    low, high = data.draw(st.sampled_from([">", ">="])), data.draw(st.sampled_from(["<", "<="]))
    terms = [Term("x", Op(low), data.draw(strategy)), Term("x", Op(high), data.draw(strategy))]
    schema, store = pa.schema([("x", value_type)]), MemoryStore()
    values_of = {
        label: [v for v in held if matching({"v": [v]}, low, [terms[0].value])] for label, held in rows.items()
    }
    expected = matching(values_of, high, [terms[1].value])
    heads = [in_native(store, rows, value_type), in_kartothek(store, rows, value_type, Dialect.PLATEAU)]
    for head in heads:
        assert lookup_interval(store, head, schema, "x", intervals(terms)["x"]) == expected


def test_lookup_that_index_cannot_answer_returns_none(store: MemoryStore) -> None:
    head = in_native(store, {"a": [1.0], "n": [float("nan")], "z": [None]}, pa.float64())
    fields: list[pa.Field[Any]] = [pa.field("x", pa.float64()), pa.field("y", pa.int64())]
    schema = pa.schema(fields)
    for op, values in [("!=", [1.0]), ("not in", [1.0]), ("is null", []), ("is not null", [])]:
        assert lookup(store, head, schema, "x", op, values) is None
    assert lookup(store, head, schema, "x", "=", [float("nan")]) is None, "NaN is in no index"
    assert lookup(store, head, schema, "x", ">", [0.0]) is None, "NaN is larger than every number"
    assert lookup(store, head, schema, "x", "<", [5.0]) == {"a"}
    assert lookup(store, head, schema, "y", "=", [1]) is None, "no index"
    assert lookup(store, head, schema, "gone", "=", [1]) is None
    assert lookup(store, head, schema, "x", "=", ["text"]) is None, "no value of the column"


def test_lookup_returns_unindexed_files_as_candidates(store: MemoryStore) -> None:
    files = collect(store, {"a": [1]}, pa.int64()).files["x"]
    key = native.write_manifest(store, UUID, Manifest("x", pa.int64(), files, frozenset({"foreign"})))
    head = Indexed(IndexState(UUID, {}, {"x": key}))
    assert lookup(store, head, pa.schema([("x", pa.int64())]), "x", "=", [2]) == {"foreign"}
    assert lookup(store, head, pa.schema([("x", pa.int64())]), "x", "=", [None]) == set()


@pytest.mark.parametrize(("value", "expected"), [(1.5, set()), (2.0, {"b"}), (7.25, set())])
def test_lookup_in_widened_column_compares_as_wider_type(store: MemoryStore, value: float, expected: set[str]) -> None:
    """The index was written for int64."""
    rows = {"a": [1], "b": [2]}
    schema = pa.schema([("x", pa.float64())])
    for head in (in_native(store, rows, pa.int64()), in_kartothek(store, rows, pa.int64(), Dialect.KARTOTHEK)):
        assert lookup(store, head, schema, "x", "=", [value]) == expected
        assert lookup(store, head, schema, "x", "<", [1.5]) == {"a"}


def test_lookup_reads_legacy_index_map_in_head(store: MemoryStore) -> None:
    """Values are JSON text there (Kartothek specification, "Attributes")."""
    cases: list[tuple[pa.DataType, list[str], Any]] = [
        (pa.int64(), ["1", "2"], 2),
        (pa.string(), ["one", "two"], "two"),
        (pa.date32(), ["2020-01-01", "2020-01-02"], date(2020, 1, 2)),
        (pa.timestamp("us"), ["2020-01-01 00:00:00", "2020-01-02 00:00:00"], datetime(2020, 1, 2)),
        (pa.bool_(), ["False", "True"], True),
        (pa.float64(), ["1.0", "2.5"], 2.5),
    ]
    for value_type, texts, value in cases:
        head = Indexed(IndexState(UUID, {"x": {texts[0]: ["a"], texts[1]: ["b", "c"]}}))
        assert lookup(store, head, pa.schema([("x", value_type)]), "x", "=", [value]) == {"b", "c"}


def test_index_file_of_other_writer_layout_is_read(store: MemoryStore) -> None:
    """Unordered, values in nanoseconds, large lists of large strings, another column: Kartothek specification, "Index
    files"."""
    moments = [datetime(2020, 1, 2), datetime(2020, 1, 1)]
    columns = {
        "other": pa.array([1, 2]),
        "partition": pa.array([["b"], ["a", "b"]], pa.large_list(pa.large_string())),
        "x": pa.array(moments, pa.timestamp("ns")),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=1)
    store.put("somewhere/else.parquet", sink.getvalue().to_pybytes())
    head = Indexed(IndexState(UUID, {"x": "somewhere/else.parquet"}))
    schema = pa.schema([("x", pa.timestamp("us"))])
    assert lookup(store, head, schema, "x", "=", [moments[0]]) == {"b"}
    assert lookup(store, head, schema, "x", "<", [moments[0]]) == {"a", "b"}
    read, found = kartothek.read(store, "x", "somewhere/else.parquet", pa.timestamp("us"))
    assert read.column("value").to_pylist() == [moments[1], moments[1], moments[0]]
    assert set(read.column("label").to_pylist()[:2]) == {"a", "b"}
    assert found == pa.timestamp("ns")


@pytest.mark.parametrize("content", [None, b"garbage", b""])
def test_lookup_in_missing_or_damaged_index_returns_none_and_warns(
    store: MemoryStore, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A garbage collection of plateau's takes the indices of old versions."""
    for state in (IndexState(UUID, {"x": "the/index"}), IndexState(UUID, {}, {"x": "the/index"})):
        if content is not None:
            store.put("the/index", content)
        assert lookup(store, Indexed(state), pa.schema([("x", pa.int64())]), "x", "=", [1]) is None
        assert "--rebuild" in caplog.text
        caplog.clear()


def test_point_lookup_opens_one_file_and_reads_part_of_file(store: MemoryStore) -> None:
    """The base is divided by value; of one file, a row group."""
    files: tuple[IndexFile, ...] = ()
    for n in range(4):
        values = pa.array(range(n * 40_000, (n + 1) * 40_000))
        files += native.write_files(store, UUID, "x", [sort_distinct([entries(values, f"file-{n}")])])
    key = native.write_manifest(store, UUID, Manifest("x", pa.int64(), files))
    counting = CountingStore(store)
    head = Indexed(IndexState(UUID, {}, {"x": key}))
    assert lookup(counting, head, pa.schema([("x", pa.int64())]), "x", "=", [50_000]) == {"file-1"}
    assert counting.opened == [files[1].key]
    assert lookup(counting, head, pa.schema([("x", pa.int64())]), "x", "=", [50_001]) == {"file-1"}
    assert counting.opened == [files[1].key], "kept"


def test_entries_of_mostly_distinct_values_occur_once_when_sorted() -> None:
    numbers = pa.chunked_array([np.arange(20_000.0), [7.0, -0.0, float("nan"), None]])
    found = indexable(numbers, pa.float64())
    assert len(found) == 20_002, "their sort finds the duplicates"
    sorted_ = sort_distinct([entries(found, "b"), entries(found, "a")])
    assert sorted_.column("value").to_pylist() == [n for n in range(20_000) for _ in "ba"]
    assert sorted_.column("label").to_pylist() == ["b", "a"] * 20_000
    assert indexable(pa.chunked_array([[1, None] * 10_000, [2]]), pa.int64()).to_pylist() == [1, 2]


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_sorted_entries_ascend_and_hold_each_pair_once(name: str, data: st.DataObject) -> None:
    value_type, strategy = VALUES[name]
    rows = data.draw(
        st.lists(st.tuples(st.sampled_from("cab"), st.lists(strategy, min_size=1, max_size=6)), min_size=1)
    )
    given_ = [
        entries(indexable(pa.chunked_array([pa.array(held, value_type)]), value_type), label) for label, held in rows
    ]
    sorted_ = sort_distinct(given_)
    assert sorted_.schema == given_[0].schema
    pairs: list[tuple[Any, Any]] = list(
        zip(sorted_.column("value").to_pylist(), sorted_.column("label").to_pylist(), strict=True)
    )
    assert [value for value, _ in pairs] == sorted(value for value, _ in pairs)
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {(value, label) for label, held in rows for value in held}


def test_key_lookup_for_labels_reads_no_more_than_it_needs(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(70_000)
    single = [entries(pa.array(numbers), "a")]
    mixed = [entries(pa.array(numbers[n::2]), label) for n, label in enumerate("bc")]
    files = tuple(
        file for each in (single, mixed) for file in native.write_files(store, UUID, "x", [sort_distinct(each)])
    )
    key = native.write_manifest(store, UUID, Manifest("x", pa.int64(), files))
    real, reads = OpenedFile._read, []

    def noted(file: OpenedFile, read: Callable[[], pa.Table]) -> pa.Table:
        found = real(file, read)
        reads.append((file.key == files[0].key, found.column_names, found.num_rows))
        return found

    monkeypatch.setattr(OpenedFile, "_read", noted)
    head, schema = Indexed(IndexState(UUID, {}, {"x": key})), pa.schema([("x", pa.int64())])

    def labels(*wanted: int, of: str = "abc") -> set[str] | None:
        reads.clear()
        return labels_held(store, head, schema, "x", pa.array(wanted), frozenset(of))

    assert labels(2, 60_000, 99_999) == {"a", "b"}
    alone, both = sorted(reads, reverse=True)
    assert alone[1:] == (["value"], 1 << 15), "of one label the first row group suffices"
    assert both[1] == ["value", "label"]
    assert labels(-1, 69_000, 70_001) == {"a", "b"}
    assert [rows for of_one, _, rows in reads if of_one] == [1 << 15, 1 << 15, 70_000 - (2 << 15)]
    assert labels(3) == {"a", "c"}
    assert labels(-1, 99_999) == set()
    assert labels(3, of="b") == set()


class CountingStore(MemoryStore):
    """Knows which objects were opened."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self.objects = inner.objects
        self.opened: list[str] = []

    def open(self, key: str) -> Any:
        self.opened.append(key)
        return super().open(key)


def test_cache_of_opened_index_files_stays_within_budget(store: MemoryStore) -> None:
    files = [collect(store, {"a": [n]}, pa.int64()).files["x"][0] for n in range(20)]
    kept = Opened(store, budget=30_000)
    for file in files:
        kept.file(file.key)
    assert 0 < kept.cost <= 30_000
    assert kept.file(files[-1].key) is kept.file(files[-1].key)
    assert opened(store) is opened(store)


def test_index_compaction_keeps_answers_and_drops_deleted_files(store: MemoryStore) -> None:
    rows = {f"{n}": [n, n + 1, n % 7, None] for n in range(100)}
    files = collect(store, rows, pa.int64(), memory_budget=1).files["x"]
    assert len(files) >= 100
    whole = compacted(store, UUID, Manifest("x", pa.int64(), files), {str(n) for n in range(50)})
    assert len(whole.files) == 1
    head = Indexed(IndexState(UUID, {}, {"x": native.write_manifest(store, UUID, whole)}))
    left = {label: held for label, held in rows.items() if int(label) < 50}
    for value in range(102):
        found = lookup(store, head, pa.schema([("x", pa.int64())]), "x", "=", [value])
        assert found == matching(left, "=", [value]), value
