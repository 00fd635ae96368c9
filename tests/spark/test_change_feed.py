"""Change feeds in Spark have the rows of ``Dataset.changes``, in reads and, each once, in streams."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import FilterMatchesAll, InputError, LakeError, SchemaMismatch, VersionNotFound
from kubothek.spark import change_feed
from kubothek.spark.change_feed import tasks, version_before
from kubothek.spark.datasource import KubothekSource, Reader, StreamReader
from kubothek.table.changes import FileChanges, plan_changes
from kubothek.table.log import Change, DatasetLog, Operation
from tests.sampling import sampled
from tests.sparks import configured

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64()), ("s", pa.string())])  # type: ignore[arg-type] # one type


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    # A zone other than UTC shows whether times of commits are moments.
    with configured(spark, {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "America/Lima"}):
        yield spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open((tmp_path / "lake").as_uri())


@pytest.fixture
def flights(lake: Lake) -> Dataset:
    """Versions: 1 empty, 2 six rows, 3 two more, 4 an update of n 0, 5 a delete of n 1, 6 a compaction."""
    flights = lake.create_dataset("t", ["p"], schema=SCHEMA)
    flights.append(rows_from(0, 6))
    flights.append(rows_from(6, 2))
    flights.update({"s": "z"}, where="n = 0", row_level=True)
    flights.delete("n = 1", row_level=True)
    flights.compact(min_files=1)
    return flights


def rows_from(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, Any] = {
        "p": [n % 2 for n in numbers],
        "n": list(numbers),
        "s": [None if n % 3 else f"s{n}" for n in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def history(lake: Lake, seed: int, commits: int = 8) -> Dataset:
    """A dataset with random commits."""
    draw = random.Random(seed)
    table = lake.create_dataset("t", ["p"] if seed % 2 else [], schema=SCHEMA)
    table.append(rows_from(0, 8))
    following = 8
    for _ in range(commits):
        number = draw.randrange(following)
        with suppress(FilterMatchesAll):  # the filter happens to select every row that is left
            match draw.randrange(6):
                case 0 | 1:
                    table.append(rows_from(following, 3))
                    following += 3
                case 2:
                    table.update({"s": "u"}, where=f"n <= {number}", row_level=True)
                case 3:
                    table.update({"p": draw.randrange(3)}, where=f"n = {number}", row_level=True)
                case 4:
                    table.delete(f"n = {number}", row_level=True)
                case _:
                    table.compact(min_files=1)
    return table


def bag(found: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.items()) for row in found.to_pylist())


def changes(dataset: Dataset, before: Any, after: Any = None, key: Any = ()) -> Counter[tuple[Any, ...]]:
    return bag(dataset.changes(before, after, key=key).read_all())


def options(lake: Lake, **more: Any) -> dict[str, str]:
    given = {"path": lake.store.url, "uuid": "t", "readChangeFeed": "true", **more}
    return {name: str(value) for name, value in given.items()}


def source(lake: Lake, **more: Any) -> KubothekSource:
    return KubothekSource(options(lake, **more))


def reader(lake: Lake, **more: Any) -> Reader:
    made = source(lake, **more)
    return made.reader(made.schema())


def stream_reader(lake: Lake, **more: Any) -> StreamReader:
    made = source(lake, **more)
    return made.streamReader(made.schema())


def read(made: Reader | StreamReader, *offsets: dict[str, int]) -> Counter[tuple[Any, ...]]:
    """The rows of a reader's tasks, each read as an executor does."""
    batches = [batch for part in made.partitions(*offsets) for batch in made.read(part)]
    return bag(pa.Table.from_batches(batches)) if batches else Counter()


# Through Spark.


def test_spark_feed_has_rows_and_types_of_python(session: SparkSession, lake: Lake, flights: Dataset) -> None:
    flights.append(
        pa.table({"p": [7], "n": [70], "s": ["t"], "at": pa.array([0], pa.timestamp("us", "Europe/Berlin"))}),
        evolve=True,
    )
    frame = session.read.format("kubothek").options(**options(lake, startingVersion=3, key="n")).load()
    assert frame.columns == ["p", "at", "n", "s", "_change_type", "_commit_version", "_commit_timestamp"]
    assert frame.schema["_commit_timestamp"].dataType == TimestampType()
    expected = flights.changes(2, key="n").read_all()
    naive = pa.field("at", pa.timestamp("us"))
    assert bag(frame.toArrow()) == bag(expected.cast(expected.schema.set(1, naive)))
    assert set(expected["_change_type"].to_pylist()) == {"insert", "delete", "update_preimage", "update_postimage"}
    assert frame.where("_change_type = 'delete'").select("n", "_commit_version").collect() == [(1, 5)]
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW feed USING kubothek OPTIONS (path '{lake.store.url}', uuid 't', "
        "readChangeFeed 'true', startingVersion '4', endingVersion '4')"
    )
    assert session.sql("SELECT count(*) FROM feed").collect() == [(2,)]


def test_spark_feed_stream_gives_each_change_once_after_crashes(
    session: SparkSession, lake: Lake, flights: Dataset, tmp_path: Path
) -> None:
    checkpoint, oldest = tmp_path / "checkpoint", flights.version
    copy(session, lake, checkpoint)
    flights.update({"s": "y"}, where="n = 2", row_level=True)
    flights.delete("n = 3", row_level=True)
    copy(session, lake, checkpoint)
    # The driver ends after the commit and before Spark notes it: the batch runs again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    copy(session, lake, checkpoint)
    copied = lake.dataset("copy").scan(columns=["n", "change", "version"]).read_all().to_pylist()
    first = [(n, "insert", oldest) for n in (0, 2, 3, 4, 5, 6, 7)]
    later = flights.changes(oldest, key="n").read_all().to_pylist()
    assert Counter(tuple(row.values()) for row in copied) == Counter(first) + Counter(
        (row["n"], row["_change_type"], row["_commit_version"]) for row in later
    )


def copy(session: SparkSession, lake: Lake, checkpoint: Path) -> None:
    """Write one batch of changes, and stop."""
    feed: DataFrame = session.readStream.format("kubothek").options(**options(lake, key="n")).load()
    (
        feed.selectExpr("n", "_change_type AS change", "_commit_version AS version")
        .writeStream.format("kubothek")
        .options(path=lake.store.url, uuid="copy", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


# What tasks read.


@pytest.mark.parametrize("seed", sampled(range(200), 40))
def test_spark_feed_of_random_history_has_rows_of_python(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    table = history(lake, seed)
    draw, last = random.Random(seed), table.version
    monkeypatch.setattr(change_feed, "_FILES", draw.choice([1, 2, 16]))
    key = draw.choice(["", "n", "p,n"])
    names = [name for name in key.split(",") if name]
    first, end = sorted(draw.choices(range(1, last + 1), k=2))
    given = {"key": key} if key else {}
    assert read(reader(lake, startingVersion=1, **given)) == changes(table, 0, key=names)
    assert read(reader(lake, startingVersion=first, endingVersion=end, **given)) == changes(
        table, first - 1, end, key=names
    )
    streamed: Counter[tuple[Any, ...]] = Counter()
    stream = stream_reader(lake, startingVersion=first, **given)
    offset = stream.initialOffset()
    for version in sorted({*draw.choices(range(first, last + 1), k=2), last}):
        streamed += read(stream, offset, offset := {"version": version})
    assert streamed == changes(table, first - 1, key=names)


def test_spark_feed_tasks_have_each_file_once_and_whole_comparisons(
    flights: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_changes(flights._log(), 0)
    assert len(tasks(planned)) == 1, "a few small files"
    monkeypatch.setattr(change_feed, "_FILES", 1)
    groups = [task.changes.items for task in tasks(planned)]
    divided = [item for group in groups for item in group]
    assert all(len(group) == 1 for group in groups)
    assert all(len(item.added) + len(item.removed) == 1 for item in divided if not item.compared)
    assert [item for item in divided if item.compared] == [item for item in planned.items if item.compared]
    assert Counter(named(divided)) == Counter(named(planned.items))
    monkeypatch.setattr(change_feed, "_FILES", 16)
    monkeypatch.setattr(change_feed, "_BYTES", 1)
    assert len(tasks(planned)) >= sum(1 for item in divided if item.bytes)
    assert len(tasks(replace(planned, items=()))) == 0


def named(items: Any) -> Iterator[tuple[int, str, str]]:
    for item in items:
        yield from ((item.version, "added", key) for key in item.added)
        yield from ((item.version, "removed", key) for key in item.removed)


def test_spark_feed_of_many_files_has_bounded_number_of_tasks(flights: Dataset) -> None:
    planned = plan_changes(flights._log(), 6)
    moment = next(flights.history()).time
    many = FileChanges(7, moment, added=tuple(map(str, range(100_000))), bytes=100_000 << 30)
    divided = tasks(replace(planned, items=(many,)))
    assert change_feed.MOST_TASKS <= len(divided) <= 2 * change_feed.MOST_TASKS


def test_spark_feed_start_is_first_commit_that_is_included(lake: Lake, flights: Dataset) -> None:
    times = {record.version: record.time for record in flights.history()}
    from_5 = changes(flights, 4)
    assert sum(from_5.values()) == 1
    assert read(reader(lake, startingVersion=5)) == from_5
    assert read(reader(lake, startingTimestamp=times[5].isoformat())) == from_5
    assert read(reader(lake, startingTimestamp=(times[5] + timedelta(microseconds=1)).isoformat())) == Counter()
    assert read(reader(lake, startingTimestamp="2001-01-01")) == changes(flights, 0)
    assert read(reader(lake, startingVersion=4, endingTimestamp=times[4].isoformat())) == changes(flights, 3, 4)
    assert read(reader(lake, startingVersion=7)) == Counter(), "only commits to come"
    assert stream_reader(lake, startingTimestamp=times[3].isoformat()).initialOffset() == {"version": 2}


def test_spark_feed_starts_at_number_after_missing_one(lake: Lake, flights: Dataset) -> None:
    commit = next(flights.history())

    class Gaps:
        name, version = "t", 9

        def history(self) -> Iterator[Any]:
            return iter([replace(commit, version=number) for number in (9, 7, 5, 4)])

    assert [version_before(Gaps(), number) for number in (10, 9, 8, 7, 6, 5, 4)] == [9, 7, 7, 5, 5, 4, 3]  # type: ignore[arg-type]


def test_spark_feed_of_columns_has_them_and_those_of_feed(lake: Lake, flights: Dataset) -> None:
    made = source(lake, startingVersion=4, endingVersion=4, columns="s", key="n")
    assert made.schema().names == ["s", "_change_type", "_commit_version", "_commit_timestamp"]
    expected = flights.changes(3, 4, key="n").read_all().drop_columns(["p", "n"])
    assert read(made.reader(made.schema())) == bag(expected)


def test_spark_feed_has_columns_of_its_last_version(lake: Lake, flights: Dataset) -> None:
    flights.append(pa.table({"p": [0], "n": [90], "s": ["t"], "new": [1]}), evolve=True)
    assert "new" not in source(lake, startingVersion=2, endingVersion=6).schema().names
    assert read(reader(lake, startingVersion=2)) == changes(flights, 1)
    # A stream keeps the columns of its start.
    stream = stream_reader(lake, columns="p,n,s")
    assert sum(read(stream, {"version": 6}, {"version": 7}).values()) == 1
    flights.overwrite(pa.table({"p": [0], "n": [1]}), allow_schema_change=True)
    with pytest.raises(InputError, match="no column 's'; there are p, n, _change_type"):
        read(stream, {"version": 7}, {"version": 8})


def test_spark_feed_stream_begins_with_all_rows_as_inserts(lake: Lake, flights: Dataset) -> None:
    stream = stream_reader(lake, key="n")
    assert stream.initialOffset() == {"version": 0}
    rows = flights.scan().read_all()
    time = next(flights.history()).time
    for name, value in (("_change_type", "insert"), ("_commit_version", 6), ("_commit_timestamp", time)):
        rows = rows.append_column(name, pa.array([value] * rows.num_rows))
    assert read(stream, {"version": 0}, {"version": 6}) == bag(rows)
    assert read(stream, {"version": 6}, {"version": 6}) == Counter()


# Errors.


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, InputError, "needs startingVersion or startingTimestamp"),
        ({"startingVersion": 0}, InputError, "startingVersion is 0; it is the number of a version, from 1"),
        ({"startingVersion": "first"}, InputError, "startingVersion is 'first'; it is the number of a version"),
        ({"startingTimestamp": "noon"}, InputError, "startingTimestamp is 'noon'; it is a time in ISO 8601"),
        ({"startingVersion": 1, "endingVersion": "x"}, InputError, "endingVersion is 'x'; it is the number"),
        ({"startingVersion": 1, "startingTimestamp": "2026-01-01"}, InputError, "startingVersion or startingTimestamp"),
        ({"startingVersion": 5, "endingVersion": 4}, InputError, "ends at 4, before it starts at 5; swap them"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01T23Z"}, InputError, "swap them"),
        ({"startingVersion": 8}, InputError, "the current version of 't' is 6; use 7 at most"),
        ({"startingVersion": 1, "endingVersion": 9}, VersionNotFound, "has no version 9; its versions are from 1 to 6"),
        ({"startingVersion": 1, "key": "nope"}, InputError, "key: there is no column 'nope'"),
        ({"startingVersion": 1, "columns": "nope"}, InputError, "no column 'nope'; there are p, n, s"),
        ({"startingVersion": 1, "where": "p = 1"}, InputError, "unknown option 'where'"),
        ({"startingVersion": 1, "versionAsOf": 3}, InputError, "unknown option 'versionAsOf'"),
        ({"readChangeFeed": "yes"}, InputError, "readChangeFeed is 'yes'; use one of false, true"),
        ({"readChangeFeed": "false", "endingVersion": 3}, InputError, "'endingVersion' needs readChangeFeed=true"),
        ({"readChangeFeed": "false", "key": "n"}, InputError, "'key' needs readChangeFeed=true"),
        ({"readChangeFeed": "false", "startingVersion": 3}, InputError, "'startingVersion' needs readChangeFeed=true"),
    ],
)
def test_spark_feed_with_invalid_options_is_refused(
    lake: Lake, flights: Dataset, given: dict[str, Any], error: type[LakeError], says: str
) -> None:
    with pytest.raises(error, match=says):
        reader(lake, **given).partitions()


def test_spark_feed_stream_refuses_an_end(lake: Lake, flights: Dataset) -> None:
    with pytest.raises(InputError, match="unknown option 'endingVersion'"):
        stream_reader(lake, startingVersion=1, endingVersion=2)


def test_spark_feed_behind_expired_versions_fails(lake: Lake, flights: Dataset) -> None:
    DatasetLog(lake.store, "t").begin_new("expire").commit(Change(operation=Operation.EXPIRE, horizon=4))
    with pytest.raises(VersionNotFound, match=r"since version 3 have expired: the oldest .* is 4; read"):
        reader(lake, startingVersion=4).partitions()
    assert read(reader(lake, startingVersion=5)) == changes(flights, 4)
    stream = stream_reader(lake, startingVersion=5)
    with pytest.raises(
        VersionNotFound, match=r"since version 2 have expired.* start a new query with a new checkpoint"
    ):
        stream.partitions({"version": 2}, {"version": 6})


def test_spark_feed_of_column_with_its_name_is_refused(lake: Lake, flights: Dataset) -> None:
    flights.overwrite(pa.table({"p": [1], "_change_type": [1]}), allow_schema_change=True)
    with pytest.raises(SchemaMismatch, match="has the name of a column of its changes; rename it"):
        reader(lake, startingVersion=7)
