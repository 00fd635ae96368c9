"""Scans that DuckDB filters return the rows that Arrow's scan returns, and leave to Arrow what DuckDB cannot read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import AccessDenied, StoreError, VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import Op, Predicate, Term, parse
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.scan import local_filter, local_parquet
from kubothek.table.scan import read as scanning
from kubothek.table.scan.local_filter import LocalFilter, Part
from kubothek.table.scan.read import scan
from tests.sampling import SOAK
from tests.table.test_scan import dataset_of, schema_of

POOLS: dict[str, tuple[Any, list[Any]]] = {
    "k": (pa.int64(), [0, 1, 2]),
    "p": (pa.string(), ["a", "b/c", "é"]),
    "f": (pa.float64(), [0.0, -0.0, 5.0, -1.5, 1e300, inf, -inf, nan]),
    "i": (pa.int64(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "u": (pa.uint64(), [0, 1, 2**64 - 1]),
    "s": (pa.string(), ["", "a", "A", "a_b", "100%", "é", "東京", "it's", "\x00", "a\nb"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", b"abc"]),
    "yes": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1999, 12, 31), date(2024, 2, 29), date(1960, 1, 1)]),
    "t": (pa.timestamp("us"), [datetime(2024, 2, 29), datetime(1960, 1, 1, 0, 0, 0, 5), datetime(9999, 12, 31)]),
    "d": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-1234567.89"), Decimal("1.10")]),
    "l": (pa.list_(pa.string()), [[], ["a", None]]),
}
SCHEMA = schema_of(**{name: pool[0] for name, pool in POOLS.items()})
NUMBERS = schema_of(x=pa.int64(), y=pa.float64(), text=pa.string())
COMPARISONS = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


@pytest.fixture(autouse=True)
def small_files_are_worth_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_filter, "FEWEST_VALUES", 0)
    monkeypatch.setattr(local_filter, "MOST_FILES", 0)


def by_arrow(store: Store, dataset: Snapshot, columns: list[str] | None, where: Predicate) -> pa.Table:
    with patch.object(LocalFilter, "of", return_value=None):
        return scan(store, dataset, columns, where).read_all()


def exactly(table: pa.Table) -> tuple[pa.Schema, list[str]]:
    """NaN, and the sign of zero, compare."""
    return table.schema, [repr(row) for row in table.to_pylist()]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that DuckDB selects."""
    found: list[Part] = []
    original = LocalFilter.start

    def start(self: LocalFilter, part: Part) -> Iterator[pa.RecordBatch] | None:
        found.append(part)
        return original(self, part)

    monkeypatch.setattr(LocalFilter, "start", start)
    return found


def numbers(rows: int, files: int = 4) -> dict[str, pa.Table]:
    found = {}
    for number in range(files):
        x = range(number * rows, (number + 1) * rows)
        columns = {"x": x, "y": [value * 0.5 for value in x], "text": [f"{value % 7}" for value in x]}
        found[f"{number}"] = pa.table(columns, NUMBERS)
    return found


# --- the same rows ------------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, pa.Table]:
    """A file, with its path: columns may be missing, narrower, or contradict the path."""
    path = draw(st.sampled_from(["", "k=1", "k=2/p=a", "p=b%2Fc", "k=0/p=%C3%A9/more"]))
    names = [name for name in POOLS if draw(st.integers(0, 7))]
    rows = draw(st.integers(0, 9))
    columns = {}
    for name in names:
        data_type, pool = POOLS[name]
        if name == "i" and draw(st.booleans()):
            data_type = pa.int32()
        values = draw(st.lists(st.one_of(st.none(), st.sampled_from(pool)), min_size=rows, max_size=rows))
        columns[name] = pa.array(values, data_type)
    return path, pa.table({**columns, "other": pa.nulls(rows, pa.int8())})


def terms(name: str) -> st.SearchStrategy[Term]:
    values = st.sampled_from(POOLS[name][1])
    kinds = [
        st.builds(Term, st.just(name), st.sampled_from(COMPARISONS), values),
        st.builds(Term, st.just(name), st.sampled_from([Op.IN, Op.NOT_IN]), st.lists(values, min_size=1).map(tuple)),
        st.builds(Term, st.just(name), st.sampled_from([Op.IS_NULL, Op.IS_NOT_NULL])),
    ]
    if name == "s":
        patterns = st.sampled_from(["a%", "%", "_", "a__", "%é", "100%", "a_b"])
        kinds.append(st.builds(Term, st.just(name), st.sampled_from([Op.LIKE, Op.NOT_LIKE]), patterns))
    return st.one_of(kinds)


FLAT = [name for name in POOLS if name != "l"]
WHERE = st.lists(
    st.lists(st.sampled_from(FLAT).flatmap(terms), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
).map(lambda conjunctions: Predicate(tuple(conjunctions)))


@settings(max_examples=1_000 if SOAK else 80, deadline=None)
@given(
    files=st.lists(tables(), min_size=1, max_size=6),
    where=WHERE,
    columns=st.one_of(st.none(), st.lists(st.sampled_from(list(POOLS)), unique=True, max_size=4)),
    row_group=st.integers(1, 5),
    part=st.sampled_from([1, 40, 1 << 20]),
    few=st.sampled_from([0, 6]),
)
def test_local_filter_returns_rows_of_arrow(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[str, pa.Table]],
    where: Predicate,
    columns: list[str] | None,
    row_group: int,
    part: int,
    few: int,
) -> None:
    """``few``: the most files whose row groups Arrow decodes without a query."""
    store = open_store(StoreConfig(tmp_path_factory.mktemp("store").as_uri()))
    named = {f"{path}/{number}".strip("/"): table for number, (path, table) in enumerate(files)}
    dataset = dataset_of(store, SCHEMA, named, row_group_size=row_group)
    for wanted in (columns, FLAT):
        with patch.object(local_filter, "_PART_VALUES", part), patch.object(local_filter, "MOST_FILES", few):
            found = scan(store, dataset, wanted, where).read_all()
        assert exactly(found) == exactly(by_arrow(store, dataset, wanted, where))


@pytest.mark.parametrize("literal", ["5", "7", "9", "DOUBLE 'NaN'", "0"])
@pytest.mark.parametrize("op", [*COMPARISONS, "IN", "NOT IN"])
@pytest.mark.parametrize("also", ["", " AND i >= 0"])
def test_local_filter_finds_nan_that_bounds_omit(store: Store, op: str, literal: str, also: str) -> None:
    """DuckDB 2.0 would skip a row group, or keep all of it, by bounds that ignore NaN."""
    pages = np.concatenate([np.full(3000, 5.0), np.arange(3000.0), np.full(3000, 7.0)])
    pages[::7] = nan
    tables: list[Any] = [[5.0, nan, 5.0], [nan, nan], [5.0, 7.0], [8.0, nan, -0.0, 0.0], pages]
    files = {f"{number}": pa.table({"f": each, "i": range(len(each))}) for number, each in enumerate(tables)}
    schema = schema_of(f=pa.float64(), i=pa.int64())
    dataset = dataset_of(store, schema, files, write_page_index=True, data_page_size=1024)
    where = parse(f"f {op} ({literal}){also}" if op.endswith("IN") else f"f {op} {literal}{also}")
    found = scan(store, dataset, None, where).read_all()
    assert exactly(found) == exactly(by_arrow(store, dataset, None, where))


@pytest.mark.parametrize("where", ["f <= 9", "f < 9", "f = 5", "f IN (5, 6)"])
def test_local_filter_of_one_file_drops_nan_within_bounds(store: Store, queries: list[Part], where: str) -> None:
    """Of one file, DuckDB 2.0 takes a condition that holds for both bounds for TRUE."""
    dataset = dataset_of(store, schema_of(f=pa.float64()), {"": pa.table({"f": [5.0, nan, 5.0]})})
    assert scan(store, dataset, None, parse(where)).read_all()["f"].to_pylist() == [5.0, 5.0]
    assert len(queries) == 1


def test_local_filter_selects_row_groups_and_files_in_order(
    store: Store, queries: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_filter, "_PART_VALUES", 3 * 250)
    files = numbers(100, 7) | {"large": numbers(1000, 1)["0"]}
    dataset = dataset_of(store, NUMBERS, files, row_group_size=100)
    where = parse("text = '3' AND y != 1e9")
    found = scan(store, dataset, None, where).read_all()
    assert found.equals(by_arrow(store, dataset, None, where))
    assert sorted((len(part.files), part.row_groups or ()) for part in queries) == [
        (1, ()),
        *((1, (number, number + 1)) for number in range(0, 10, 2)),
        *[(2, ())] * 3,
    ]


def test_local_filter_waits_for_consumer_of_many_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_filter, "_HELD_BYTES", 1)
    monkeypatch.setattr(local_filter, "_BATCH_ROWS", 2048)
    dataset = dataset_of(store, NUMBERS, numbers(10_000, 2))
    where = parse("text != '3'")
    assert scan(store, dataset, None, where).read_all().equals(by_arrow(store, dataset, None, where))


def test_local_filter_leaves_files_without_undecided_rows_to_arrow(store: Store, queries: list[Part]) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), *NUMBERS])
    dataset = dataset_of(store, schema, {f"k={name}": table for name, table in numbers(50, 6).items()})
    where = parse("k = 1 OR k = 2 OR k > 3 AND text = '3'")
    found = scan(store, dataset, ["k", "x"], where).read_all()
    assert found.equals(by_arrow(store, dataset, ["k", "x"], where))
    assert [[file.label for file in part.files] for part in queries] == [["k=4/4", "k=5/5"]]


# --- what Arrow reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": pa.array([1, 2], pa.int32()), "y": [0.5, 1.5], "text": ["a", "b"]}),
        pa.table({"x": [1, 2], "X": [3, 4], "y": [0.5, 1.5], "text": ["a", "b"]}),
        pa.table({"x": [1, 2], "y": [0.5, 1.5], "text": ["a", "b"], "File_Index": [7, 7]}),
    ],
    ids=["narrower type", "names that differ in case", "name of a column that DuckDB adds"],
)
def test_local_filter_leaves_foreign_columns_to_arrow(store: Store, queries: list[Part], table: pa.Table) -> None:
    dataset = dataset_of(store, NUMBERS, {"0": table})
    assert scan(store, dataset, None, parse("x = 2")).read_all().to_pylist() == [{"x": 2, "y": 1.5, "text": "b"}]
    assert queries == []


def test_local_filter_leaves_patterns_of_files_to_arrow(store: Store, queries: list[Part]) -> None:
    dataset = dataset_of(store, NUMBERS, {"[ab]": numbers(10)["0"], "a": numbers(10)["1"]})
    assert scan(store, dataset, ["x"], parse("y = 1 OR x = 12")).read_all()["x"].to_pylist() == [2, 12]
    assert [len(part.files) for part in queries] == [1]


@pytest.mark.parametrize(
    "where", [f"x IN ({', '.join(map(str, range(0, 1000, 3)))})", "y = DOUBLE 'NaN' OR x = 7", "y >= DOUBLE 'NaN'"]
)
def test_local_filter_leaves_filters_without_condition_to_arrow(store: Store, queries: list[Part], where: str) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100))
    found = scan(store, dataset, None, parse(where)).read_all()
    assert found.equals(by_arrow(store, dataset, None, parse(where)))
    assert queries == []


def test_local_filter_of_few_rows_runs_no_query(
    store: Store, queries: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_filter, "FEWEST_VALUES", 301)
    dataset = dataset_of(store, NUMBERS, numbers(100, 1))
    assert scan(store, dataset, None, parse("x = 7")).read_all().num_rows == 1
    assert queries == []
    monkeypatch.setattr(local_filter, "FEWEST_VALUES", 300)
    assert scan(store, dataset, None, parse("x = 7")).read_all().num_rows == 1
    assert len(queries) == 1


# --- failures -----------------------------------------------------------------------------------------------


def test_local_filter_continues_with_arrow_where_duckdb_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that DuckDB returned before its failure are not returned again."""
    monkeypatch.setattr(local_filter, "_PART_VALUES", 3 * 250)
    dataset = dataset_of(store, NUMBERS, numbers(1000, 3), row_group_size=100)
    where = parse("text != '3'")
    expected = by_arrow(store, dataset, None, where)
    original = LocalFilter.start

    def start(self: LocalFilter, part: Part) -> Iterator[pa.RecordBatch] | None:
        selected = original(self, part)
        assert selected is not None
        return broken(next(selected))

    def broken(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 17)
        raise duckdb.IOException("no more")

    monkeypatch.setattr(LocalFilter, "start", start)
    assert scan(store, dataset, None, where).read_all().equals(expected)
    monkeypatch.setattr(LocalFilter, "start", lambda self, part: None)
    assert scan(store, dataset, None, where).read_all().equals(expected)


def test_local_filter_names_missing_file(store: Store, queries: list[Part]) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100))
    where = parse("text = '3'")
    assert scan(store, dataset, None, where).read_all().num_rows
    store.delete(["ds/table/2/2.parquet"])
    with pytest.raises(VersionIncomplete, match=r"no longer exists in file:.*ds/table/2/2\.parquet"):
        scan(store, dataset, None, where).read_all()
    assert len(queries) == 2


def test_local_filter_names_damaged_file(store: Store) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100))
    where = parse("text = '3'")
    assert scan(store, dataset, None, where).read_all().num_rows
    content = store.get("ds/table/2/2.parquet")
    store.put("ds/table/2/2.parquet", b"PAR1" + bytes(len(content) - 4))
    with pytest.raises(StoreError, match=r"ds/table/2/2\.parquet"):
        scan(store, dataset, None, where).read_all()


def test_local_filter_of_link_is_refused(tmp_path: Path, store: Store) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100))
    where = parse("text = '3'")
    assert scan(store, dataset, None, where).read_all().num_rows  # its footer is cached
    file = tmp_path / "ds/table/2/2.parquet"
    file.rename(tmp_path / "outside.parquet")
    file.symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(AccessDenied, match=r"2\.parquet"):
        scan(store, dataset, None, where).read_all()


def test_local_filter_ends_its_threads_with_the_stream(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_filter, "_PART_VALUES", 300)
    dataset = dataset_of(store, NUMBERS, numbers(100, 20))
    batches = scanning.scan(store, dataset, None, parse("text = '3'"))
    assert batches.read_next_batch().num_rows
    assert any(thread.name.startswith("scan") for thread in threading.enumerate())
    del batches
    assert not any(thread.name.startswith("scan") for thread in threading.enumerate())


def test_scan_database_reaches_files_only(tmp_path: Path) -> None:
    """Its statements are ours, and it still loads no extension and writes nothing to disk."""
    with local_parquet.cursor() as database:
        settings = dict(database.sql("SELECT name, value FROM duckdb_settings()").fetchall())
        assert settings["autoload_known_extensions"] == settings["autoinstall_known_extensions"] == "false"
        assert settings["threads"] == "1"
        pq.write_table(pa.table({"x": [1]}), tmp_path / "1.parquet")
        assert database.sql("SELECT x FROM read_parquet($1)", params=[str(tmp_path / "1.parquet")]).fetchall() == [(1,)]
