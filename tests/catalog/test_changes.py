"""Changes row by row: applied to one version they give the other, whatever the history; and what Delta's feed gives."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    FilterMatchesAll,
    InputError,
    MergeTooLarge,
    SchemaMismatch,
    StoreError,
    VersionIncomplete,
    VersionNotFound,
)
from kubothek.table import scratch
from kubothek.table.changes import changed_rows, plan_changes
from kubothek.table.changes import rows as feed_rows
from kubothek.table.log import Change, Claim, DatasetLog, Operation, Transaction
from kubothek.table.operations import append, write_rows
from tests.sampling import sampled
from tests.table.operations.test_merge_histories import TYPES, clauses, merge_with_delta, some_rows

FEED = ("_change_type", "_commit_version", "_commit_timestamp")
LONG = timedelta(days=40, microseconds=1)
Row = tuple[Any, ...]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open((tmp_path / "lake").as_uri())


@pytest.fixture
def flights(lake: Lake) -> Dataset:
    """Versions: 1 empty, 2 months 1 and 2, 3 more of month 2, 4 an update in month 1, 5 a delete in month 1."""
    flights = lake.create_dataset("flights", ["month"], {"month": "int64", "n": "int64", "text": "string"})
    flights.append(pa.table({"month": [1, 1, 2], "n": [1, 2, 3], "text": ["a", None, "c"]}))
    flights.append(pa.table({"month": [2, 2], "n": [3, 3], "text": ["c", "c"]}))
    flights.update({"text": "z"}, where="n = 1", row_level=True)
    flights.delete("n = 2", row_level=True)
    return flights


def plain(value: Any) -> Any:
    """A value that equals another if SQL's IS NOT DISTINCT FROM says so."""
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, list):
        return tuple(map(plain, value))
    return tuple(sorted((k, plain(v)) for k, v in value.items())) if isinstance(value, Mapping) else value


def tuples(table: pa.Table, names: list[str]) -> list[Row]:
    """The rows in these columns, null where the table has no such column."""
    return [tuple(plain(row.get(name)) for name in names) for row in table.to_pylist()]


def feed(dataset: Dataset, before: int, after: int | None = None, key: Any = ()) -> list[Row]:
    found = dataset.changes(before, after, key=key).read_all()
    return tuples(found.drop_columns(["_commit_timestamp"]), [*found.schema.names[:-3], *FEED[:2]])


# --- random histories ------------------------------------------------------------------------------------------------


class History:
    """A table with random commits; its keys ``n`` are unique."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.random = random.Random(seed)
        self.partitioned = self.random.random() < 0.7
        self.nested = self.random.random() < 0.4
        self.durations = self.random.random() < 0.5
        self.table = lake.create_dataset("t", ["p"] if self.partitioned else [])
        self.next = 0
        self.evolved = False
        self.table.append(self.rows(8))
        self.repeated = self.random.random() < 0.5
        """Whether rows occur more than once, so that there is no key."""

    def rows(self, count: int) -> pa.Table:
        draw = self.random
        numbers = list(range(self.next, self.next + count))
        self.next += count
        columns: dict[str, Any] = {
            "p": pa.array([draw.randrange(3) for _ in numbers], pa.int64()),
            "n": pa.array(numbers, pa.int64()),
            "x": pa.array([draw.choice([None, float("nan"), 0.0, 1.5]) for _ in numbers], pa.float64()),
            "s": pa.array([draw.choice([None, "", "a", "b"]) for _ in numbers], pa.string()),
        }
        if self.durations:
            columns["d"] = pa.array([draw.choice([None, LONG]) for _ in numbers], pa.duration("us"))
        if self.nested:
            columns["l"] = pa.array([draw.choice([None, [], [1, None]]) for _ in numbers], pa.list_(pa.int64()))
        if self.evolved:
            columns["new"] = pa.array([draw.choice([None, "x"]) for _ in numbers], pa.string())
        return pa.table(columns)

    def step(self) -> None:
        draw, table = self.random, self.table
        number, part = draw.randrange(max(1, self.next)), draw.randrange(3)
        steps: list[Callable[[], object]] = [
            lambda: table.append(self.rows(draw.randrange(1, 6)), evolve=self.evolved),
            lambda: table.append(self.rows(0), evolve=self.evolved),
            lambda: table.update({"s": "u"}, where=f"n <= {number}", row_level=True),
            lambda: table.update({"p": part}, where=f"n = {number}", row_level=True),
            lambda: table.delete(f"n = {number}", row_level=True),
            lambda: table.delete(f"n < {number} AND x IS NULL", row_level=True),
            lambda: table.replace(self.rows(4), where="TRUE", evolve=self.evolved),
            lambda: table.compact(),
            lambda: table.compact(sort_by=["s"], min_files=1),
            lambda: table.rollback(draw.randrange(2, table.version + 1), allow_schema_change=True),
            lambda: table.tag("some"),
        ]
        if self.partitioned:
            steps.append(lambda: table.delete(f"p = {part}"))
        if self.repeated:
            steps.append(lambda: table.append(self.table.scan().read_all().slice(0, 3)))
        if not self.evolved and draw.random() < 0.1:
            self.evolved = True
            steps = steps[:1]
        with suppress(FilterMatchesAll):  # the filter happens to select every row that is left
            draw.choice(steps)()


def require_chain(dataset: Dataset, before: int, after: int, key: tuple[str, ...]) -> None:
    """Apply the changes, version by version, with Python's own bags; compare with the rows of each version."""
    found = dataset.changes(before, after, key=key).read_all()
    names = found.schema.names[:-3]
    state = Counter(tuples(dataset.scan(as_of=before).read_all(), names))
    times = {record.version: record.time for record in dataset.history()}
    versions: list[Any] = found["_commit_version"].to_pylist()
    assert versions == sorted(versions)
    for version, rows in groupby(found.to_pylist(), key=lambda row: row["_commit_version"]):
        removed, added, kinds = Counter[Row](), Counter[Row](), Counter[str]()
        for row in rows:
            assert row["_commit_timestamp"] == times[version]
            values = tuple(plain(row[name]) for name in names)
            kind = row["_change_type"]
            kinds[kind] += 1
            (removed if kind in ("delete", "update_preimage") else added)[values] += 1
        assert kinds["update_preimage"] == kinds["update_postimage"]
        assert not removed & added, "a row that did not change"
        assert removed <= state, "a row that was not there"
        state = state - removed + added
        assert state == Counter(tuples(dataset.scan(as_of=version).read_all(), names)), version
        if key:
            positions = [names.index(name) for name in key]
            both = {tuple(r[i] for i in positions) for r in removed} & {tuple(r[i] for i in positions) for r in added}
            assert len(both) == kinds["update_preimage"]
    assert state == Counter(tuples(dataset.scan(as_of=after).read_all(), names))


@pytest.mark.parametrize("seed", sampled(range(600), 60))
def test_changes_applied_to_earlier_version_give_later_one(lake: Lake, seed: int) -> None:
    history = History(lake, seed)
    for _ in range(10):
        history.step()
    table, draw = history.table, history.random
    last = table.version
    key = () if history.repeated else draw.choice([("n",), ("p", "n")])
    # Rollbacks can take a column back, which a later version then lacks: both ways are read.
    for before, after in [(0, last), (1, last), sorted(draw.choices(range(1, last + 1), k=2))]:
        require_chain(table, before, after, ()) if before else feed(table, 0, last)
        if before and not history.repeated:
            require_chain(table, before, after, key)


@pytest.mark.parametrize("files", [1, 3])
def test_changes_in_small_portions_are_those_of_one_statement(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    history = History(lake, 5)
    for _ in range(12):
        history.step()
    at_once = Counter(feed(history.table, 1))
    monkeypatch.setattr(feed_rows, "_FILES", files)
    assert Counter(feed(history.table, 1)) == at_once
    require_chain(history.table, 1, history.table.version, ())


# --- beside Delta Lake -----------------------------------------------------------------------------------------------


def test_changes_have_the_rows_of_delta_change_data_feed(lake: Lake, tmp_path: Path) -> None:
    """Of updates and deletes; Delta's feed includes its first version, ours is of the commits after it."""
    url = str(tmp_path / "delta")
    first = pa.table({"n": range(40), "p": [n % 3 for n in range(40)], "x": [None, 1.0] * 20})
    ours = lake.create_dataset("t", ["p"])
    ours.append(first)
    write_deltalake(url, first, partition_by=["p"], configuration={"delta.enableChangeDataFeed": "true"})
    ours.append(more := pa.table({"n": [100, 101], "p": [0, 5], "x": [2.0, None]}))
    write_deltalake(url, more, mode="append")
    for where, x in [("n < 7", 9.5), ("p = 1", 3.5), ("n = 101", -1.0)]:
        ours.update({"x": x}, where=where, row_level=True)
        DeltaTable(url).update(updates={"x": str(x)}, predicate=where)
    for where in ("n > 30 AND n < 35", "x = 9.5", "p = 5"):
        ours.delete(where, row_level=True)
        DeltaTable(url).delete(where)
    ours.compact()
    DeltaTable(url).optimize.compact()
    last = DeltaTable(url).version()
    theirs = pa.table(DeltaTable(url).load_cdf(starting_version=1, ending_version=last).read_all())
    found = ours.changes(2, key="n").read_all()
    names = ["n", "p", "x", "_change_type"]
    # Their version 0 is our 2.
    assert Counter(zip(tuples(found, names), found["_commit_version"].to_pylist(), strict=True)) == Counter(
        zip(tuples(theirs, names), pc.add(theirs["_commit_version"], 2).to_pylist(), strict=True)
    )
    assert found.num_rows > 50


@pytest.mark.parametrize("seed", sampled(range(400), 100))
def test_changes_of_merges_have_the_rows_of_delta_change_data_feed(lake: Lake, tmp_path: Path, seed: int) -> None:
    draw, url = random.Random(seed), tmp_path / "delta"
    partition_on = draw.choice([[], ["p"]])
    ours, first = lake.create_dataset("t", partition_on), keyed_rows(draw)
    ours.append(first)
    feeds = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(url, first, partition_by=partition_on or None, configuration=feeds)
    delta = DeltaTable(url)
    versions: dict[int | None, int] = {0: 2}
    for _ in range(5):
        rows, chosen = keyed_rows(draw), clauses(draw)
        ours.merge(rows, key="id", **chosen)
        merge_with_delta(delta, rows, ("id",), chosen, evolve=False)
        versions.setdefault(delta.version(), ours.version)  # Delta has no version for a merge without effect
    found = ours.changes(2, key="id").read_all()
    theirs = pa.table(delta.load_cdf(starting_version=1, ending_version=delta.version()).read_all())
    rows_of_delta = tuples(theirs, found.schema.names[:-3])
    kinds, numbers = theirs["_change_type"].to_pylist(), theirs["_commit_version"].to_pylist()
    in_delta = Counter(zip(rows_of_delta, kinds, (versions[number] for number in numbers), strict=True))
    # Delta also has the rows that an update left as they were.
    for row, kind, version in list(in_delta):
        if kind == "update_preimage" and (row, "update_postimage", version) in in_delta:
            del in_delta[row, kind, version], in_delta[row, "update_postimage", version]
    assert Counter((row[:-2], *row[-2:]) for row in feed(ours, 2, key="id")) == in_delta


def keyed_rows(draw: random.Random) -> pa.Table:
    """Rows of a merge whose keys identify a row."""
    rows = some_rows(draw, draw.randrange(3, 10), TYPES, unique=True)
    return rows.filter(pc.is_valid(rows["id"]))


# --- what is computed ------------------------------------------------------------------------------------------------


def test_changes_list_inserted_deleted_and_updated_rows(flights: Dataset) -> None:
    assert feed(flights, 2) == [
        (2, 3, "c", "insert", 3),
        (2, 3, "c", "insert", 3),
        (1, 1, "a", "delete", 4),
        (1, 1, "z", "insert", 4),
        (1, 2, None, "delete", 5),
    ]
    assert feed(flights, 3, 4, key="n") == [(1, 1, "a", "update_preimage", 4), (1, 1, "z", "update_postimage", 4)]
    assert feed(flights, 3, 4, key=["month", "n"]) == feed(flights, 3, 4, key="n")
    assert feed(flights, 4, 4) == []


def test_changes_schema_has_zones_and_columns_of_feed(lake: Lake) -> None:
    at = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    table = lake.create_dataset("t")
    table.append(pa.table({"at": at, "n": [1]}))
    table.append(pa.table({"at": at, "n": [2]}))
    table.update({"n": 3}, where="n = 1", row_level=True)
    found = table.changes(1).read_all()
    assert found.schema.names == ["at", "n", *FEED]
    assert found.schema.field("at").type == pa.timestamp("us", "Europe/Berlin")
    assert found["n"].to_pylist() == [1, 2, 1, 3]
    assert found["at"].unique().to_pylist() == at.to_pylist()


def test_changes_with_key_that_repeats_are_deletes_and_inserts(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"k": [1, 1, None], "x": [1, 2, 3]}))
    table.update({"x": 9}, where="TRUE", row_level=True)
    found = feed(table, 2, key="k")
    assert Counter(found) == Counter(
        [
            *[(None, 3, "update_preimage", 3), (None, 9, "update_postimage", 3)],
            *[(1, 1, "delete", 3), (1, 2, "delete", 3), (1, 9, "insert", 3), (1, 9, "insert", 3)],
        ]
    )


def test_changes_of_row_that_moves_to_another_partition(flights: Dataset) -> None:
    flights.update({"month": 7}, where="n = 1", row_level=True)
    assert feed(flights, 5, key="n") == [(1, 1, "z", "update_preimage", 6), (7, 1, "z", "update_postimage", 6)]
    assert Counter(feed(flights, 5)) == Counter([(1, 1, "z", "delete", 6), (7, 1, "z", "insert", 6)])


def test_changes_of_columns_that_differ_in_case_only(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"a": [1, 2], "A": ["x", "y"], "n": [0, 0]}))
    table.update({"A": "z"}, where="a = 1", row_level=True)
    assert Counter(feed(table, 2)) == Counter([("x", 1, 0, "delete", 3), ("z", 1, 0, "insert", 3)])


def test_changes_open_only_files_that_differ(lake: Lake, flights: Dataset) -> None:
    flights.compact(min_files=1)
    assert plan_changes(DatasetLog(lake.store, "flights"), 5).items == ()
    planned = plan_changes(DatasetLog(lake.store, "flights"), 3, 5)
    assert [(item.version, len(item.removed), len(item.added)) for item in planned.items] == [(4, 1, 1), (5, 1, 1)]
    assert all("month=1" in key for item in planned.items for key in (*item.removed, *item.added))
    for info in lake.store.list("flights/table/month=2/"):
        lake.store.delete([info.key])
    assert len(feed(flights, 3, 5)) == 3


def test_changes_of_items_in_other_processes_are_those_of_all(lake: Lake, flights: Dataset) -> None:
    planned = pickle.loads(pickle.dumps(plan_changes(DatasetLog(lake.store, "flights"), 0, key=["n"])))
    parts = [changed_rows(lake.store, planned, [item]).read_all() for item in planned.items]
    assert pa.concat_tables(parts).equals(flights.changes(0, key="n").read_all())


def test_changes_of_restored_and_of_recreated_dataset(lake: Lake, flights: Dataset) -> None:
    log = DatasetLog(lake.store, "flights", claim=Claim("cluster/ns/flights", "incarnation-1", adopts=True))
    everything = Counter(row[:-2] for row in tuples(flights.scan().read_all(), ["month", "n", "text", "", ""]))
    assert (log.delete(), log.restore()) == (6, 7)
    found = feed(flights, 5)
    assert {(kind, version) for *_, kind, version in found} == {("delete", 6), ("insert", 7)}
    for version in (6, 7):
        assert Counter(row[:-2] for row in found if row[-1] == version) == everything
    log.delete()
    again = DatasetLog(lake.store, "flights", claim=Claim("cluster/ns/flights", "incarnation-2"))
    transaction = again.begin("again", "digest")
    assert isinstance(transaction, Transaction)
    written = write_rows(lake.store, transaction.snapshot, pa.table({"x": [1.5]}), table=None)
    transaction.commit(append(written))
    assert feed(flights, 8) == [(1.5, "insert", 9)]
    with pytest.raises(VersionNotFound, match=r"since version 5 have expired: the oldest .* is 9"):
        flights.changes(5)


def test_changes_from_time_and_tag(flights: Dataset) -> None:
    flights.tag("audit", 4)
    assert feed(flights, 4, 5) == tuples_of(flights, "audit", 5) == tuples_of(flights, "audit", datetime.now(UTC))
    times = {record.version: record.time for record in flights.history()}
    assert feed(flights, 3, 5) == tuples_of(flights, times[3], times[5])


def tuples_of(dataset: Dataset, before: Any, after: Any) -> list[Row]:
    found = dataset.changes(before, after).read_all().drop_columns(["_commit_timestamp"])
    return tuples(found, found.schema.names)


def test_changes_of_foreign_writer_belong_to_version_that_adopts_them(lake: Lake, flights: Dataset) -> None:
    import json

    from kubothek.table.log.model import keys

    head = json.loads(lake.store.get(keys.head("flights")))
    label = next(label for label, each in head["partitions"].items() if "month=2" in each["files"]["table"])
    del head["partitions"][label]
    lake.store.put(keys.head("flights"), json.dumps(head).encode())
    assert feed(flights, 5) == []
    flights.append(pa.table({"month": [9], "n": [9], "text": ["z"]}))
    kinds = {(record.version, record.operation) for record in flights.history() if record.version > 5}
    external = min(version for version, _ in kinds)
    assert {(kind, version) for *_, kind, version in feed(flights, 5)} == {
        ("delete", external),
        ("insert", external + 1),
    }


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "key", "error", "text"),
    [
        ((9,), (), InputError, "version 9 to 5: the first is newer; swap them"),
        ((4, 3), (), InputError, "swap them"),
        ((3, 9), (), VersionNotFound, "no version 9"),
        ((-1,), (), VersionNotFound, "since version -1 have expired"),
        (("nope",), (), VersionNotFound, "no tag 'nope'"),
        ((1,), "nope", InputError, "key: there is no column 'nope'; the columns are month, n, text"),
        ((1,), ("n", "n"), SchemaMismatch, "more than once"),
    ],
)
def test_changes_with_invalid_arguments_are_refused(
    flights: Dataset, arguments: Any, key: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        flights.changes(*arguments, key=key)


def test_changes_since_expired_version_name_the_oldest(lake: Lake, flights: Dataset) -> None:
    flights.tag("audit", 2)
    oldest = 4
    log = DatasetLog(lake.store, "flights")
    tagged = frozenset(tag.record for tag in log.snapshot().head.tags.values())
    log.begin_new("expire").commit(Change(operation=Operation.EXPIRE, horizon=oldest, spares=tagged))
    with pytest.raises(VersionNotFound, match=f"version 3 have expired: the oldest version .* is {oldest}; read"):
        flights.changes(3)
    with pytest.raises(VersionNotFound, match="its tag 'audit' keeps the version, but not the commits after it"):
        flights.changes("audit")
    with pytest.raises(VersionNotFound, match="since version 0 have expired"):
        flights.changes(0)
    assert [version for *_, version in feed(flights, oldest)] == [5]


def test_changes_of_lost_and_damaged_files_fail(lake: Lake, flights: Dataset) -> None:
    planned = plan_changes(DatasetLog(lake.store, "flights"), 3)
    lake.store.put(planned.items[0].removed[0], b"x" * 500)
    with pytest.raises(StoreError, match="cannot read the table"):
        feed(flights, 3)
    lake.store.delete([planned.items[0].removed[0]])
    with pytest.raises(VersionIncomplete, match="no longer exists"):
        feed(flights, 3)
    with pytest.raises(VersionIncomplete, match="no longer exists"):
        feed(flights, 1)
    assert len(feed(flights, 4)) == 1


def test_changes_across_columns_of_another_type_are_refused(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"a": [1], "b": [1]}))
    table.overwrite(pa.table({"a": ["x"]}), allow_schema_change=True)
    table.append(pa.table({"a": ["y"]}))
    with pytest.raises(SchemaMismatch, match="column 'a' is int64 up to version 2, and string in version 4"):
        table.changes(1)
    assert feed(table, 1, 2) == [(1, 1, "insert", 2)]
    assert feed(table, 3) == [("y", "insert", 4)]


def test_changes_of_evolved_table_have_its_columns(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"a": [1, 2], "b": pa.nulls(2)}))
    table.append(pa.table({"a": [3], "b": ["x"], "c": [0.5]}), evolve=True)
    table.update({"c": 1.5}, where="a = 1", row_level=True)
    assert feed(table, 1) == [
        *[(1, None, None, "insert", 2), (2, None, None, "insert", 2), (3, "x", 0.5, "insert", 3)],
        *[(1, None, None, "delete", 4), (1, None, 1.5, "insert", 4)],
    ]


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version"])
def test_changes_of_table_with_column_of_feed_are_refused(lake: Lake, name: str) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({name: [1]}))
    with pytest.raises(SchemaMismatch, match="has the name of a column of its changes; rename it"):
        table.changes(1)


def test_changes_spill_and_stay_below_memory_limit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_dataset("t")
    count = 300_000
    table.append(pa.table({"n": range(count), "s": [f"{n:0>40}" for n in range(count)]}))
    table.update({"s": "x"}, where="n >= 0 AND n < 299999", row_level=True)
    planned = plan_changes(DatasetLog(lake.store, "t"), 2)
    reader = changed_rows(lake.store, planned, memory="64MB")
    assert sum(batch.num_rows for batch in reader) == 2 * (count - 1)

    def full(*_: object, **__: object) -> Iterator[None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch, "TemporaryDirectory", full)
    with pytest.raises(MergeTooLarge, match="No space left on device; free space, or set TMPDIR"):
        changed_rows(lake.store, planned).read_all()
