"""Planning: each step drops files without matches and none with, whatever index there is; speed and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import FilterInvalid, StoreError
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.immutable_cache import Kept
from kubothek.table.expressions import Predicate, parse
from kubothek.table.indexes import IndexChange, IndexKind, IndexState
from kubothek.table.indexes.maintain import Files, maintain
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import INDEX, Head
from kubothek.table.partitioning import render_path
from kubothek.table.scan import local_filter, pruner, statistics
from kubothek.table.scan import plan as planning
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import scan
from tests.table.expressions.naive import naive
from tests.table.expressions.strategies import SCHEMA, predicates, rows

_UNIQUE = count()  # no file is ever written twice
NO_STORE = cast("Store", object())
MOMENT = datetime(2020, 1, 1, 12)
NASTY = ["a/b", "100%", "%2F", "it's", '"', "ü", " ", "", "a=b", "\U0001f600", "None", "+"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def schema_of(**types: pa.DataType) -> pa.Schema:
    return pa.schema(types)


def table_of(store: Store, schema: pa.Schema, files: Sequence[tuple[str, pa.Table]], **options: Any) -> Snapshot:
    """A table of these files: partition path, and the columns that the file really has."""
    partitions = {}
    for number, (path, table) in enumerate(files):
        label = f"{path}/{number}" if path else str(number)
        key = f"ds/table/{label}-{next(_UNIQUE)}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        store.put(key, sink.getvalue().to_pybytes())
        partitions[label] = {"files": {"table": key}}
    return Snapshot(Head("ds", partitions), schema, 1, "etag", None, None)


def indexed(store: Store, snapshot: Snapshot, columns: Sequence[str], kind: IndexKind) -> Snapshot:
    """The same with indices."""
    assert snapshot.schema is not None
    keys = snapshot.head.files()
    files = Files(files=keys, added=set(), removed=set(), schema=snapshot.schema, partition_keys=("s",))
    wanted = IndexChange(wanted=dict.fromkeys(columns, kind))
    state = maintain(store, IndexState("ds"), files, datetime.now(UTC), wanted)
    head = replace(snapshot.head, indices=state.kartothek, metadata={INDEX: dict(state.native)})
    return replace(snapshot, head=head)


def steps(store: Store, snapshot: Snapshot, where: str) -> dict[str, int]:
    return dict(plan(store, snapshot, parse(where)).steps)


# --- the same rows, always ------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(rows(min_size=1, max_size=12), predicates(), st.data())
def test_plan_with_any_index_selects_rows_that_sql_selects(
    data: list[dict[str, Any]], where: Predicate, draw: st.DataObject
) -> None:
    schema = SCHEMA.append(pa.field("row", pa.int64()))
    data = [row | {"s": row["s"] or draw.draw(st.sampled_from(NASTY)), "row": n} for n, row in enumerate(data)]
    files: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in data:
        files.setdefault((render_path({"s": row["s"]}), draw.draw(st.integers(0, 1))), []).append(row)
    payload = pa.schema([field for field in schema if field.name != "s"])
    with TemporaryDirectory() as directory:
        store = open_store(StoreConfig(Path(directory).as_uri()))
        tables = [(path, pa.Table.from_pylist(found, payload)) for (path, _), found in files.items()]
        plain = table_of(store, schema, tables, row_group_size=draw.draw(st.integers(1, 3)))
        for snapshot in (
            plain,
            indexed(store, plain, ["i", "f", "t"], IndexKind.NATIVE),
            indexed(store, plain, ["u", "f", "d"], IndexKind.KARTOTHEK),
        ):
            check(store, snapshot, where, dict(zip(snapshot.head.files(), files.values(), strict=True)))


def check(store: Store, snapshot: Snapshot, where: Predicate, files: dict[str, list[dict[str, Any]]]) -> None:
    matching = {label: [row["row"] for row in rows if naive(where, row)] for label, rows in files.items()}
    found = scan(store, snapshot, ["row"], where).read_all()["row"].to_pylist()
    assert found == [row for rows in matching.values() for row in rows]
    planned = plan(store, snapshot, where)
    kept = [file.label for file in planned.files]
    assert kept == [label for label in files if label in kept]
    assert set(kept) >= {label for label, rows in matching.items() if rows}
    assert all(len(matching[f.label]) == len(files[f.label]) for f in planned.files if f.all_rows)
    left = [step.files_left for step in planned.steps]
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (len(files), len(kept))


@pytest.mark.parametrize("kind", [None, *IndexKind])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i = 1", [0]),
        ("i = NULL", []),
        ("i IN (1, NULL)", [0]),
        ("i NOT IN (1)", [2]),
        ("i NOT IN (1, NULL)", []),
        ("i != 1", [2]),
        ("NOT i = 1", [2]),
        ("i IS NULL", [1, 3]),
        ("i IS NOT NULL", [0, 2]),
        ("i = 1 OR i IS NULL", [0, 1, 3]),
        ("i > 0", [0, 2]),
        ("f > 1", [2, 3]),
        ("f = DOUBLE 'NaN'", [2]),
        ("f != 0.5", [2, 3]),
        ("f >= DOUBLE 'NaN' AND i > 0", [2]),
    ],
)
def test_null_and_nan_filters_are_equal_for_every_index_kind(
    store: Store, kind: IndexKind | None, where: str, expected: list[int]
) -> None:
    """Seen with plateau 4.6: with an index, its library loses the rows that are NULL."""
    schema = schema_of(f=pa.float64(), i=pa.int64(), row=pa.int64())
    values = [(0.5, 1), (None, None), (float("nan"), 2), (7.0, None)]
    files = [("", pa.table({"f": [f], "i": [i], "row": [n]}, schema)) for n, (f, i) in enumerate(values)]
    snapshot = table_of(store, schema, files)
    if kind is not None:
        snapshot = indexed(store, snapshot, ["i", "f"], kind)
    assert scan(store, snapshot, ["row"], parse(where)).read_all()["row"].to_pylist() == expected


@pytest.mark.parametrize("value", NASTY)
def test_plan_finds_partitions_with_any_text(store: Store, value: str) -> None:
    schema = schema_of(s=pa.string(), row=pa.int64())
    files = [(render_path({"s": each}), pa.table({"row": [n]})) for n, each in enumerate(NASTY)]
    snapshot = table_of(store, schema, files)
    quoted = "'" + value.replace("'", "''") + "'"
    (file,) = plan(NO_STORE, snapshot, parse(f"s = {quoted}")).files
    assert file.all_rows
    assert scan(store, snapshot, where=parse(f"s = {quoted}")).read_all().to_pylist() == [
        {"s": value, "row": NASTY.index(value)}
    ]
    assert len(plan(NO_STORE, snapshot, parse(f"s != {quoted}")).files) == len(NASTY) - 1


@pytest.mark.parametrize(
    ("data_type", "values", "where", "found"),
    [
        (pa.int64(), [-3, 0, 2**63 - 1], "k < 0.5", [-3, 0]),
        (pa.uint64(), [0, 2**64 - 1], "k > 9223372036854775807", [2**64 - 1]),
        (pa.float64(), [-0.0, 1e300, float("inf"), float("-inf")], "k >= 0", [-0.0, 1e300, float("inf")]),
        (pa.float64(), [-0.0, 1.5], "k IN (0, 7)", [-0.0]),
        (pa.date32(), [date(1, 1, 1), date(2020, 2, 29)], "k = '2020-02-29'", [date(2020, 2, 29)]),
        (
            pa.timestamp("us"),
            [MOMENT, MOMENT.replace(microsecond=5)],
            f"k > TIMESTAMP '{MOMENT}'",
            [MOMENT.replace(microsecond=5)],
        ),
        (pa.bool_(), [True, False], "k = FALSE", [False]),
        (pa.binary(), [b"a/b", b"\xff"], "k > X'80'", [b"\xff"]),
    ],
    ids=str,
)
def test_plan_finds_partitions_of_every_type(
    store: Store, data_type: pa.DataType, values: list[Any], where: str, found: list[Any]
) -> None:
    """bool and binary only other writers use."""
    files = [(f"k={quote(v if isinstance(v, bytes) else str(v), safe='')}", pa.table({"row": [0]})) for v in values]
    snapshot = table_of(store, schema_of(k=data_type, row=pa.int64()), files)
    assert all(file.all_rows for file in plan(NO_STORE, snapshot, parse(where)).files)
    assert scan(store, snapshot, ["k"], parse(where)).read_all()["k"].to_pylist() == found


# --- the steps ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sales(store: Store) -> Snapshot:
    """Four regions of five files; ``id`` counts through, ``day`` is NULL in every second file."""
    schema = schema_of(s=pa.string(), id=pa.int64(), day=pa.int64())
    files = [
        (
            f"s=r{n // 5}",
            pa.table({"id": [10 * n, 10 * n + 9], "day": pa.array([n, n] if n % 2 else [None] * 2, pa.int64())}),
        )
        for n in range(20)
    ]
    return table_of(store, schema, files)


def test_plan_steps_successively_narrow_files(store: Store, sales: Snapshot) -> None:
    snapshot = indexed(store, sales, ["id"], IndexKind.KARTOTHEK)
    assert plan(store, snapshot, parse("s IN ('r0', 'r1') AND id IN (0, 10, 20, 199) AND day >= 1")).steps == (
        ("table", 20),
        ("partition keys", 10),
        ("secondary indices", 3),
        ("skipping metadata", 3),
        ("file statistics", 1),
    )


def test_plan_by_partition_keys_needs_no_store(sales: Snapshot) -> None:
    planned = plan(NO_STORE, sales, parse("s = 'r1' OR s > 'r2'"))
    assert [file.label for file in planned.files] == [f"s=r{n // 5}/{n}" for n in (5, 6, 7, 8, 9, 15, 16, 17, 18, 19)]
    assert all(file.all_rows for file in planned.files)


def test_plan_without_filter_keeps_all_files_and_rows(sales: Snapshot) -> None:
    for where in (None, parse("TRUE"), parse("s = 'nowhere' OR TRUE")):
        planned = plan(NO_STORE, sales, where)
        assert [(file.label, file.key) for file in planned.files] == list(sales.head.files().items())
        assert all(file.all_rows for file in planned.files)


def test_plan_of_unsatisfiable_filter_has_no_files(sales: Snapshot) -> None:
    for where in ("FALSE", "id = NULL", "s = 'r9' AND id = 1", "s IS NULL AND day = 3"):
        assert list(plan(NO_STORE, sales, parse(where)).files) == []


def test_file_statistics_mark_files_in_which_all_rows_match(store: Store, sales: Snapshot) -> None:
    planned = plan(store, sales, parse("id < 25 OR s = 'r3'"))
    assert [file.all_rows for file in planned.files] == [True, True, False, *[True] * 5]
    assert steps(store, sales, "day IS NOT NULL") == {
        "table": 20,
        "partition keys": 20,
        "secondary indices": 20,
        "skipping metadata": 20,
        "file statistics": 10,
    }


def test_plan_of_single_file_reads_no_statistics(sales: Snapshot) -> None:
    (file, *_) = plan(
        NO_STORE, replace(sales, head=Head("ds", dict(list(sales.head.partitions.items())[:1]))), parse("id = 3")
    ).files
    assert not file.all_rows


def test_file_statistics_of_too_many_files_are_not_read(
    store: Store, sales: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_FOOTERS", range(2, 20))
    assert steps(NO_STORE, sales, "id = 3")["file statistics"] == 20
    assert steps(store, sales, "id = 3 AND s != 'r3'")["file statistics"] == 1


def test_file_statistics_are_cached(store: Store, sales: Snapshot) -> None:
    assert steps(store, sales, "id = 3")["file statistics"] == 1
    store.delete(sales.head.files().values())
    assert steps(store, sales, "id = 13")["file statistics"] == 1


def test_plan_ignores_deleted_files_named_by_index(store: Store, sales: Snapshot) -> None:
    snapshot = indexed(store, sales, ["id"], IndexKind.KARTOTHEK)
    left = {label: found for label, found in snapshot.head.partitions.items() if label != "s=r0/0"}
    snapshot = replace(snapshot, head=replace(snapshot.head, partitions=left))
    assert [file.label for file in plan(store, snapshot, parse("id IN (0, 10)")).files] == ["s=r0/1"]


def test_plan_with_unknown_column_raises_filter_invalid(sales: Snapshot) -> None:
    with pytest.raises(FilterInvalid, match="no column 'regio'"):
        plan(NO_STORE, sales, parse("regio = 'r1'"))


def test_lookup_scan_opens_only_found_files(store: Store, sales: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def spy(store: Store, keys: Any) -> Any:
        opened.extend(keys)
        return original(store, keys)

    original = statistics.footers
    monkeypatch.setattr(local_filter, "footers", spy)
    assert scan(store, sales, ["id"], parse("id = 13")).read_all()["id"].to_pylist() == []
    assert opened == [sales.head.file("s=r0/1")]


def test_files_with_uninformative_paths_are_candidates(store: Store) -> None:
    """Kartothek specification, "Filenames": parts of a path without '=' are ignored, and the column then comes from
    the file."""
    schema = schema_of(s=pa.string(), row=pa.int64())
    table = pa.table({"s": ["a"], "row": [0]})
    snapshot = table_of(store, schema, [("s=b", table), ("elsewhere", table), ("s=a=b", table)])
    assert [file.all_rows for file in plan(store, snapshot, parse("s = 'b'")).files] == [True, False, False]
    assert scan(store, snapshot, where=parse("s = 'a'")).read_all().to_pylist() == [{"s": "a", "row": 0}] * 2
    assert [file.label for file in plan(store, snapshot, parse("s = 'a'")).files] == ["elsewhere/1", "s=a=b/2"]


# --- statistics of other writers ------------------------------------------------------------------------------------


def footers(store: Store, data_type: pa.DataType, *tables: pa.Table, where: str, **options: Any) -> list[str]:
    """Which of the files, each with the column x or without, statistics leave."""
    schema = schema_of(x=data_type)
    files = plan(store, table_of(store, schema, [("", each) for each in tables], **options), parse(where)).files
    return [file.label + ("!" if file.all_rows else "") for file in files]


ONE_TWO = pa.array([1, 2])
NAN = pa.table({"x": [1.0, float("nan")]})
ONE = pa.table({"x": [1.0, 1.0]})


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("x > 1", ["0", "1"]),
        ("x != 1", ["0", "1"]),
        ("x NOT IN (1)", ["0", "1"]),
        ("x = 1", ["0", "1"]),
        ("x <= 1", ["0", "1"]),
        ("x < 1", []),
        ("x >= 1", ["0!", "1!"]),
        ("x = DOUBLE 'NaN'", ["0", "1"]),
    ],
)
def test_file_statistics_without_nan_keep_files_that_may_hold_nan(store: Store, where: str, left: list[str]) -> None:
    assert footers(store, pa.float64(), NAN, ONE, where=where) == left


def test_column_missing_from_file_is_planned_as_null(store: Store) -> None:
    there, lacking = pa.table({"x": ONE_TWO}), pa.table({"y": ONE_TWO})
    assert footers(store, pa.int64(), there, lacking, where="x IS NULL") == ["1!"]
    assert footers(store, pa.int64(), there, lacking, where="x != 7") == ["0!"]


def test_file_statistics_of_narrower_and_dictionary_types_prune(store: Store) -> None:
    low = pa.table({"x": pa.array([1, 2], pa.int8())})
    high = pa.table({"x": pa.array([3, 4], pa.uint16())})
    assert footers(store, pa.int64(), low, high, where="x > 2") == ["1!"]
    names = [pa.table({"x": pa.array([name]).dictionary_encode()}) for name in ("a", "b")]
    assert footers(store, pa.string(), *names, where="x >= 'b'") == ["1!"]
    floats = [pa.table({"x": pa.array([number], pa.float32())}) for number in (0.1, 0.5)]
    assert footers(store, pa.float64(), *floats, where="x < 0.2") == ["0"]


@pytest.mark.parametrize(
    ("data_type", "options"),
    [
        (pa.timestamp("us"), {}),
        (pa.timestamp("ms"), {}),
        (pa.timestamp("ns"), {}),
        (pa.timestamp("us", "UTC"), {}),
        (pa.timestamp("us", "UTC"), {"store_schema": False}),
        (pa.timestamp("ns"), {"use_deprecated_int96_timestamps": True}),
    ],
    ids=str,
)
def test_file_statistics_of_all_timestamp_kinds_prune(
    store: Store, data_type: pa.DataType, options: dict[str, Any]
) -> None:
    tables = [pa.table({"x": pa.array([moment], data_type)}) for moment in (MOMENT, MOMENT.replace(hour=13))]
    for where, left in (("x > ", {"1"}), ("x >= ", {"0", "1"}), ("x < ", set()), ("x = ", {"0"}), ("x != ", {"1"})):
        found = footers(store, pa.timestamp("us"), *tables, where=f"{where}TIMESTAMP '{MOMENT}'", **options)
        assert {label.strip("!") for label in found} >= left
        snapshot = table_of(store, schema_of(x=pa.timestamp("us")), [("", t) for t in tables], **options)
        assert scan(store, snapshot, where=parse(f"{where}TIMESTAMP '{MOMENT}'")).read_all().num_rows == len(left)


def test_file_statistics_beyond_python_years_keep_files(store: Store) -> None:
    far = [pa.table({"x": pa.array([2**62 + n], pa.timestamp("us"))}) for n in range(2)]
    assert footers(store, pa.timestamp("us"), *far, where="x > DATE '2020-01-01'") == ["0", "1"]


def test_file_statistics_at_last_python_year_prune(store: Store) -> None:
    tables = [pa.table({"x": pa.array([moment], pa.timestamp("us"))}) for moment in (datetime.min, datetime.max)]
    assert footers(store, pa.timestamp("us"), *tables, where="x > DATE '2020-01-01'") == ["1!"]
    assert footers(store, pa.timestamp("us"), *tables, where="x = TIMESTAMP '0001-01-01'") == ["0!"]


def test_file_statistics_of_nested_columns_are_ignored(store: Store) -> None:
    lists = pa.table({"x": [[1], None]})
    assert footers(store, pa.list_(pa.int64()), lists, lists, where="x IS NULL") == ["0", "1"]
    schema = pa.schema([pa.field("x.y", pa.int64())])
    snapshot = table_of(store, schema, [("", pa.table({"x": [{"y": 5}]}))] * 2)
    assert len(plan(store, snapshot, parse('"x.y" IS NULL')).files) == 2


def test_file_statistics_of_mismatched_type_keep_files(store: Store) -> None:
    texts = pa.table({"x": ["1", "2"]})
    assert footers(store, pa.int64(), texts, texts, where="x = 7") == ["0", "1"]


def test_plan_keeps_damaged_file_for_reader_error(store: Store, sales: Snapshot) -> None:
    store.put(sales.head.file("s=r0/0"), b"PAR1 not really")
    assert steps(store, sales, "id = 3")["file statistics"] == 1
    with pytest.raises(StoreError, match="s=r0/0"):
        scan(store, sales, where=parse("id = 3")).read_all()


def test_footer_cache_stays_within_budget() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": ONE_TWO}), sink)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    kept: Kept[tuple[str, str], pq.FileMetaData] = Kept(25 * footer.serialized_size)
    reads: list[int] = []

    def read(n: int) -> pq.FileMetaData:
        reads.append(n)
        return footer

    for n in (0, 1, 0, 2, 0, 1, 3, 3):
        kept.get(("store", str(n)), partial(read, n), statistics._size)
        assert kept.cost <= 25 * footer.serialized_size
    assert reads == [0, 1, 2, 1, 3]


# --- many partitions ------------------------------------------------------------------------------------------------

MANY = 100_000


@pytest.fixture(scope="module")
def many() -> Snapshot:
    schema = schema_of(p=pa.int64(), s=pa.string(), x=pa.int64())
    labels = (f"p={n}/s=C%2F{n % 50}/{n:032x}" for n in range(MANY))
    head = Head("ds", {label: {"files": {"table": f"ds/table/{label}.parquet"}} for label in labels}, ("p", "s"))
    return Snapshot(head, schema, 1, "etag", None, None)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("p = 77", 1),
        ("p IN (1, 2, 51) AND s = 'C/1'", 2),
        ("p >= 50000 AND s != 'C/1'", 49_000),
        ("s = 'C/1' OR s = 'C/2' OR p < 50", 4_048),
        ("x = 1", MANY),
        ("TRUE", MANY),
    ],
)
def test_plan_of_100_000_cached_partitions_takes_under_50_ms(many: Snapshot, where: str, left: int) -> None:
    took = []
    for _ in range(6):
        start = time.process_time()
        assert len(plan(NO_STORE, many, parse(where)).files) == left
        took.append(time.process_time() - start)
    assert min(took[1:]) < 0.05


def test_path_column_cache_is_small_and_freed_with_head(many: Snapshot) -> None:
    assert many.schema is not None
    columns = pruner.path_columns(many.head, many.schema, {"p"})
    assert sum(column.nbytes for column in columns.values()) < 20 * MANY
    assert pruner.path_columns(many.head, many.schema, {"p"}) is columns
    gc.collect()  # the heads of other tests
    before = len(pruner._KNOWN)
    copy = replace(many.head)
    pruner.path_columns(copy, many.schema, {"p"})
    assert len(pruner._KNOWN) == before + 1
    del copy
    gc.collect()
    assert len(pruner._KNOWN) == before


@pytest.mark.slow
def test_concurrent_plans_of_one_head_are_exact(many: Snapshot) -> None:
    """Its partition columns are shared, and forgotten with it, whoever else is reading."""
    part = dict(list(many.head.partitions.items())[:500])

    def one(n: int) -> int:
        snapshot = replace(many, head=Head("ds", part, ("p", "s")))
        return sum(len(plan(NO_STORE, snapshot, parse(f"p = {n}")).files) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(100))) == [20] * 100


def test_plan_after_column_gains_type_reads_paths_again() -> None:
    head = Head("ds", {"s=1/a": {"files": {"table": "ds/table/s=1/a.parquet"}}})
    for data_type, where in ((pa.string(), "s = '1'"), (pa.int64(), "s = 1")):
        snapshot = Snapshot(head, schema_of(s=data_type), 1, "etag", None, None)
        assert len(plan(NO_STORE, snapshot, parse(where)).files) == 1
