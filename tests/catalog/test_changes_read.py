"""How a change feed reads and compares files: always with the rows of Arrow's dataset and of DuckDB's comparison."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.errors import StoreError, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.changes import FileChanges, aligned, parquet
from kubothek.table.changes.files import open_changes
from kubothek.table.changes.plan import with_feed_columns
from kubothek.table.changes.read import FeedReader
from kubothek.table.changes.relation import difference
from kubothek.table.changes.unmixed import unmixed_changes
from tests.sampling import sampled

TIME = datetime(2026, 11, 28, tzinfo=UTC)
TYPES: dict[str, pa.DataType] = {"p": pa.int64(), "n": pa.int64(), "x": pa.float64(), "s": pa.string()}
SCHEMA = pa.schema(TYPES)


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return kubothek.open(tmp_path.as_uri()).store


def written(store: Store, name: str, rows: pa.Table, partition: int = 1, **options: Any) -> str:
    key = f"t/table/p={partition}/{name}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    store.put(key, sink.getvalue().to_pybytes())
    return key


def counted(batches: Any) -> Counter[str]:
    """The rows by their text, in which NaN equals NaN and 0.0 equals -0.0."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return Counter(repr({k: v + 0.0 if isinstance(v, float) else v for k, v in row.items()}) for row in rows)


# --- files of all kinds ----------------------------------------------------------------------------------------------

ROWS = pa.table({"n": [1, 2, 3], "x": [0.5, None, float("nan")], "s": ["a", "", None]})
FILES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "of the schema": (ROWS, {}),
    "with row groups": (ROWS, {"row_group_size": 1}),
    "without rows": (ROWS.slice(0, 0), {}),
    "with columns in another order": (ROWS.select(["s", "n", "x"]), {}),
    "without a column": (ROWS.select(["x", "n"]), {}),
    "with no column of the schema": (pa.table({"other": [1, 2]}), {}),
    "with other columns": (ROWS.append_column("other", pa.array([1, 2, 3])), {}),
    "that contradicts its path": (ROWS.append_column("p", pa.array([7, 8, 9])), {}),
    "with narrow types": (ROWS.set_column(0, "n", pa.array([1, 2, 3], pa.int16())), {}),
    "with large text": (ROWS.set_column(2, "s", pa.array(["a", "", None], pa.large_string())), {}),
    "with dictionaries": (ROWS.set_column(2, "s", pa.array(["a", "", None]).dictionary_encode()), {}),
    "without compression": (ROWS, {"compression": "none", "use_dictionary": False}),
}


@pytest.mark.parametrize("kind", FILES)
def test_feed_reader_reads_rows_of_arrow_dataset(store: Store, pool: Executor, kind: str) -> None:
    rows, options = FILES[kind]
    key = written(store, "other", rows, **options)
    ours = written(store, "ours", ROWS, partition=2)
    items = [FileChanges(3, TIME, removed=(ours, key)), FileChanges(4, TIME, added=(key, ours, key))]
    expected = open_changes(store, items, SCHEMA).to_table()
    found = pa.Table.from_batches(FeedReader(store, SCHEMA, pool).rows(items), with_feed_columns(SCHEMA))
    assert found.to_pylist().__repr__() == expected.to_pylist().__repr__()
    assert found.num_rows == 2 * ROWS.num_rows + 3 * rows.num_rows


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("a.b", pa.int64()),
        ("s", pa.struct([("b", pa.int64())])),
        ("l", pa.list_(pa.string())),
        ("t", pa.duration("us")),
    ],
)
def test_feed_reader_reads_columns_of_any_name_and_type(
    store: Store, pool: Executor, name: str, data_type: pa.DataType
) -> None:
    schema = pa.schema({"p": pa.int64(), name: data_type, "n": pa.int64()})
    key = written(store, "a", schema.remove(0).empty_table())
    values: Any = {"a.b": 5, "s": {"b": 5}, "l": ["x", None], "t": 5}[name]
    full = written(store, "b", pa.table({name: pa.array([values, None], data_type), "n": [1, 2]}), store_schema=False)
    items = [FileChanges(3, TIME, added=(key, full))]
    found = pa.Table.from_batches(FeedReader(store, schema, pool).rows(items), with_feed_columns(schema))
    assert found.to_pylist() == open_changes(store, items, schema).to_table().to_pylist()
    assert found.num_rows == 2


def test_feed_reader_names_file_that_is_lost_or_damaged(store: Store, pool: Executor) -> None:
    keys = [written(store, name, ROWS) for name in "abc"]
    reader = FeedReader(store, SCHEMA, pool)
    store.put(keys[1], b"PAR1" * 20)
    for item in (FileChanges(3, TIME, added=tuple(keys)), FileChanges(3, TIME, (keys[0],), (keys[1],))):
        with pytest.raises(StoreError, match="cannot read the table"):
            list(reader.remainder([item]) if item.compared else reader.rows([item]))
    store.delete([keys[1]])
    for item in (FileChanges(3, TIME, added=tuple(keys)), FileChanges(3, TIME, (keys[0],), (keys[1],))):
        with pytest.raises(VersionIncomplete, match="no longer exists"):
            list(reader.remainder([item]) if item.compared else reader.rows([item]))


# --- rewritten files -------------------------------------------------------------------------------------------------


def random_rows(draw: random.Random, count: int) -> pa.Table:
    columns: dict[str, Any] = {
        "n": pa.array([draw.randrange(5) for _ in range(count)], pa.int64()),
        "x": pa.array([draw.choice([None, float("nan"), 0.0, -0.0, 1.5]) for _ in range(count)], pa.float64()),
        "s": pa.array([draw.choice([None, "", "a"]) for _ in range(count)], pa.string()),
    }
    return pa.table(columns)


def rewritten(draw: random.Random, rows: pa.Table) -> pa.Table:
    """The rows after an update, a delete, a sort, or nothing."""
    other = random_rows(draw, rows.num_rows)
    match draw.randrange(5):
        case 0:
            return rows
        case 1:
            keep = [draw.random() < 0.7 for _ in range(rows.num_rows)]
            return rows.filter(pa.array(keep, pa.bool_()))
        case 2:
            return rows.sort_by("n")
        case 3:
            changed = draw.choice(["n", "x", "s"])
            return rows.set_column(rows.schema.get_field_index(changed), changed, other[changed])
        case _:
            start = draw.randrange(rows.num_rows + 1)
            return pa.concat_tables([rows.slice(0, start), other.slice(start)])


@pytest.mark.parametrize("seed", sampled(range(2000), 50))
def test_remainder_of_rewrite_has_its_changes(
    store: Store, pool: Executor, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    if draw.random() < 0.5:  # files that are not small
        monkeypatch.setattr(parquet, "_SMALL_BYTES", -1)
        monkeypatch.setattr(aligned, "_ROWS", draw.randrange(1, 6))
    options: dict[str, Any] = {"row_group_size": draw.randrange(1, 9), "use_dictionary": draw.random() < 0.5}
    items, removed, added = [], Counter[str](), Counter[str]()
    for version in range(2):
        keys: tuple[list[str], list[str]] = ([], [])
        for number in range(draw.randrange(1, 3)):
            rows = random_rows(draw, draw.randrange(12))
            name = f"{version}{number}"
            keys[0].append(written(store, f"{name}old", rows, **options))
            keys[1].append(written(store, f"{name}new", rewritten(draw, rows), **options))
        if draw.random() < 0.2:
            keys[1].append(written(store, f"{version}more", random_rows(draw, 3)))
        item = FileChanges(version, TIME, tuple(keys[0]), tuple(keys[1]))
        items.append(item)
        whole = open_changes(store, [item], SCHEMA).to_table()
        removed += counted([of_kind(whole, "delete")])
        added += counted([of_kind(whole, "insert")])
    found = pa.Table.from_batches(FeedReader(store, SCHEMA, pool).remainder(items), with_feed_columns(SCHEMA))
    left = {kind: counted([of_kind(found, kind)]) for kind in ("delete", "insert")}
    assert left["delete"] - left["insert"] == removed - added
    assert left["insert"] - left["delete"] == added - removed


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.filter(pc.field("_change_type") == kind).drop_columns(["_change_type"])


def test_remainder_of_row_level_update_is_its_rows(store: Store, pool: Executor) -> None:
    rows = pa.table({"n": range(100), "x": [0.5] * 100, "s": ["a"] * 100})
    old = written(store, "old", rows, row_group_size=20)
    texts = pa.array(["b" if n in (41, 45) else "a" for n in range(100)])
    new = written(store, "new", rows.set_column(2, "s", texts), row_group_size=20)
    copy = written(store, "copy", rows, row_group_size=20)
    reader = FeedReader(store, SCHEMA, pool)
    found = pa.Table.from_batches(reader.remainder([FileChanges(3, TIME, (old, old), (new, copy))]))
    kept = found.select(["_change_type", "n", "s"]).to_pydict()
    assert kept == {
        "_change_type": ["delete", "delete", "insert", "insert"],
        "n": [41, 45, 41, 45],
        "s": ["a", "a", "b", "b"],
    }


# --- comparison in Arrow ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [(), (0,), (0, 1), (1, 2)])
@pytest.mark.parametrize("seed", sampled(range(400), 40))
def test_unmixed_changes_are_those_of_database(seed: int, key: tuple[int, ...]) -> None:
    draw = random.Random(seed)
    rows = random_rows(draw, draw.randrange(1, 9))
    rows = rows.append_column("d", pa.array([draw.choice([None, Decimal("1.5")]) for _ in range(rows.num_rows)]))
    rows = rows.append_column("nothing", pa.nulls(rows.num_rows))
    schema = with_feed_columns(rows.schema)
    feed = [draw.choice(["delete", "insert"]) for _ in range(rows.num_rows)]
    versions = [draw.randrange(2) for _ in range(rows.num_rows)]
    moments = pa.array([TIME] * rows.num_rows, schema.field("_commit_timestamp").type)
    table = pa.Table.from_arrays(
        [*rows.columns, pa.array(feed), pa.array(versions, pa.int64()), moments], schema=schema
    )
    with duckdb.connect() as database:
        database.register("rows", table)
        expected = database.sql(difference("rows", table.column_names, key, ordered=True)).to_arrow_table()
    found = unmixed_changes(table, key)
    if found is None:
        assert expected.num_rows < table.num_rows, "every row is a change"
        return
    assert found.schema == schema
    assert counted([found.drop_columns(["_commit_timestamp"])]) == counted(
        [expected.drop_columns(["_commit_timestamp"])]
    )
    order = ["_commit_version", *(rows.column_names[at] for at in key)]
    assert repr(shown(found, order)) == repr(shown(expected, order))


def shown(table: pa.Table, names: list[str]) -> list[Any]:
    rows = table.select(names).to_pylist()
    return [[value + 0.0 if isinstance(value, float) else value for value in row.values()] for row in rows]
