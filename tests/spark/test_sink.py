"""Writes of DataFrames into datasets: modes, refusals, failures of tasks, and races with other writers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType, VariantType

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    Conflict,
    DatasetDeleted,
    IdReused,
    InputError,
    OwnedByAnother,
    PartitionInvalid,
    RowsLost,
    SchemaMismatch,
    SourceEmpty,
)
from kubothek.spark import sink
from kubothek.spark.options import WriteOptions
from kubothek.spark.sink import BatchWriter, StreamWriter, Wrote
from kubothek.spark.types import spark_schema
from kubothek.storage import open_store
from kubothek.table.log import Change, Claim, DatasetLog, Operation
from kubothek.table.log.model.writers import Grant
from kubothek.table.skipping.model import IndexDefinition
from tests.faultstore import Crash, Fault, FaultStore
from tests.sparks import configured

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [  # type: ignore[arg-type] # the stubs want all types to be one
        ("region", pa.string()),
        ("id", pa.int64()),
        ("name", pa.string()),
    ]
)
_names = count()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    """A dataset of 12 rows in two regions, with an index and skipping metadata."""
    dataset = lake.create_dataset(
        "t", ["region"], SCHEMA, indices=["name"], skipping=IndexDefinition("MinMax", ("id",))
    )
    dataset.append(table(0, 12))
    return dataset


def table(first: int, rows: int, regions: int = 2) -> pa.Table:
    ids = range(first, first + rows)
    regional, names = [f"r{n % regions}" for n in ids], [f"n{n}" for n in ids]
    columns: dict[str, Any] = {"region": regional, "id": list(ids), "name": names}
    return pa.table(columns, schema=SCHEMA)


def frame(session: SparkSession, first: int, rows: int, regions: int = 2) -> DataFrame:
    """The rows of :func:`table`, in two tasks."""
    ids = session.range(first, first + rows, 1, 2)
    region = sf.concat(sf.lit("r"), (sf.col("id") % regions).cast("string"))
    return ids.select(region.alias("region"), "id", sf.concat(sf.lit("n"), "id").alias("name"))


def write(rows: DataFrame, lake: Lake, mode: str = "append", uuid: str = "t", **options: Any) -> None:
    rows.write.format("kubothek").mode(mode).options(path=lake.store.url, uuid=uuid, **options).save()


def ids(dataset: Dataset) -> list[Any]:
    return sorted(dataset.scan(columns=["id"]).read_all().column("id").to_pylist())


def unreferenced(lake: Lake, dataset: Dataset) -> set[str]:
    """The data files that no version names."""
    named = {file.key for record in dataset.history() for file in record.delta.added}
    stored = {info.key for info in lake.store.list(f"{dataset.name}/table/") if info.key.endswith(".parquet")}
    return stored - named


# Modes, through Spark.


def test_spark_append_adds_indexed_files_in_one_commit(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    write(frame(session, 12, 20), lake)
    assert ids(dataset) == list(range(32))
    record = next(iter(dataset.history()))
    assert (record.version, record.operation, record.by) == (3, "Append", "spark")
    assert all(file.sha3 for file in record.delta.added)
    found = dataset.plan("name = 'n20'")
    assert len(found.files) == 1, "the index knows the new rows"
    assert len(dataset.plan("id = 31").files) == 1, "the skipping metadata, too"
    described = {key for part in dataset.snapshot().head.skipping.parts for key in part.keys}
    assert described, "parts describe the files"
    assert not unreferenced(lake, dataset)


def test_spark_append_with_id_of_a_commit_writes_nothing(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    for _ in range(2):
        write(frame(session, 12, 4), lake, commitId="load-1")
    assert ids(dataset) == list(range(16))
    assert dataset.append(table(12, 4), id="load-1").version == dataset.version, "the id means the same in Python"
    with pytest.raises(PySparkException, match="IdReused"):
        write(frame(session, 12, 4), lake, "overwrite", commitId="load-1")
    assert not unreferenced(lake, dataset)


def test_spark_overwrites_replace_all_or_chosen_partitions(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    odd = frame(session, 100, 4).where("region = 'r1'")
    write(odd, lake, "overwrite", partitionOverwriteMode="dynamic")
    assert ids(dataset) == [0, 2, 4, 6, 8, 10, 101, 103]
    write(frame(session, 200, 1, regions=1), lake, "overwrite", replaceWhere="region = 'r0'")
    assert ids(dataset) == [101, 103, 200]
    with pytest.raises(PySparkException, match=r"FilterNotMet.*region = 'r1'"):
        write(frame(session, 300, 4), lake, "overwrite", replaceWhere="region = 'r1'")
    assert not unreferenced(lake, dataset), "the files of the refused write are gone"
    write(frame(session, 0, 3), lake, "overwrite")
    assert ids(dataset) == [0, 1, 2]
    assert [record.operation for record in dataset.history()][:3] == ["Overwrite", "Replace", "Replace"]


def test_spark_write_creates_partitioned_dataset(session: SparkSession, lake: Lake) -> None:
    times = frame(session, 0, 5).withColumn("at", sf.to_timestamp(sf.lit("2024-03-31 02:30:00+01:00")))
    write(times.withColumn("big", sf.col("id").cast("decimal(20,0)")), lake, uuid="new", partitionBy="region")
    new = lake.dataset("new")
    assert new.layout.partition_on == ("region",)
    assert new.schema.field("at").type == pa.timestamp("us", "UTC")
    assert new.schema.field("big").type == pa.decimal128(20, 0)
    assert set(new.scan(["at"]).read_all().column("at").cast(pa.string()).to_pylist()) == {
        "2024-03-31 01:30:00.000000Z"
    }
    write(times.withColumn("big", sf.lit(7)), lake, uuid="new")
    assert new.rows == 10, "an int fits a decimal"


def test_spark_merge_schema_adds_columns(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    more = frame(session, 12, 2).withColumn("new", sf.lit(1.5)).drop("name")
    with pytest.raises(PySparkException, match="SchemaMismatch"):
        write(more, lake)
    write(more, lake, mergeSchema="true")
    found = dataset.scan(where="id > 10").read_all().sort_by("id").to_pylist()
    assert [(row["name"], row["new"]) for row in found] == [("n11", None), (None, 1.5), (None, 1.5)]


def test_spark_sql_inserts_into_a_view(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    view = f"sink_{next(_names)}"
    session.sql(f"CREATE TEMPORARY VIEW {view} USING kubothek OPTIONS (path '{lake.store.url}', uuid 't')")
    session.sql(f"INSERT INTO {view} VALUES ('r0', 12, 'n12')")
    session.sql(f"INSERT INTO {view} BY NAME SELECT 13 AS id, 'n13' AS name, 'r1' AS region")
    assert ids(dataset) == list(range(14))
    frame(session, 14, 2).writeTo(view).append()
    session.sql(f"INSERT OVERWRITE {view} VALUES ('r0', 1, NULL)")
    assert ids(dataset) == [1]
    with pytest.raises(PySparkException, match="overwrite by filter"):
        session.sql(f"INSERT INTO {view} REPLACE WHERE id = 1 VALUES ('r0', 2, NULL)")


# Refusals, before any file.


def plan(lake: Lake, *, rows: pa.Schema = SCHEMA, overwrite: bool = False, **options: Any) -> BatchWriter:
    given = {"path": lake.store.url, "uuid": "t", **options}
    return BatchWriter(WriteOptions.of(given, overwrite=overwrite), spark_schema(rows))


REFUSED: list[tuple[dict[str, str], bool, pa.Schema, type[Exception], str]] = [
    ({"replaceWhere": "region = 'r1'"}, False, SCHEMA, InputError, "need mode"),
    ({"partitionOverwriteMode": "dynamic"}, False, SCHEMA, InputError, "need mode"),
    ({"partitionOverwriteMode": "dynamic", "replaceWhere": "TRUE"}, True, SCHEMA, InputError, "not both"),
    ({"partitionOverwriteMode": "often"}, True, SCHEMA, InputError, "static, dynamic"),
    ({"mergeSchema": "maybe"}, False, SCHEMA, InputError, "mergeSchema is 'maybe'"),
    ({"versionAsOf": "2"}, False, SCHEMA, InputError, "unknown option 'versionAsOf'"),
    ({"replaceWhere": "id = 3"}, True, SCHEMA, InputError, "partition columns"),
    ({"partitionBy": "id"}, False, SCHEMA, PartitionInvalid, "partitioned on"),
    ({}, False, SCHEMA.remove(1), SchemaMismatch, "id"),
    ({}, False, SCHEMA.set(2, pa.field("name", pa.int64())), SchemaMismatch, "name"),
    ({}, True, SCHEMA.append(pa.field("more", pa.int64())), SchemaMismatch, "more"),
]


@pytest.mark.parametrize(("options", "overwrite", "schema", "error", "says"), REFUSED)
def test_spark_write_that_cannot_succeed_is_refused_by_the_plan(
    lake: Lake,
    dataset: Dataset,
    options: dict[str, str],
    overwrite: bool,
    schema: pa.Schema,
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        plan(lake, rows=schema, overwrite=overwrite, **options)
    assert dataset.version == 2


def test_spark_write_to_owned_dataset_is_refused_before_any_file(
    session: SparkSession, lake: Lake, dataset: Dataset
) -> None:
    DatasetLog(lake.store, "t", claim=Claim("c/ns/t", "1", adopts=True)).settle()
    before = {info.key for info in lake.store.list("t")}
    with pytest.raises(OwnedByAnother, match="c/ns/t"):
        plan(lake)
    with pytest.raises(PySparkException, match="OwnedByAnother"):
        write(frame(session, 12, 2), lake)
    assert {info.key for info in lake.store.list("t")} == before
    assert ids(dataset) == list(range(12))


def test_spark_writer_that_the_owner_admits_writes_under_its_name(
    session: SparkSession, lake: Lake, dataset: Dataset
) -> None:
    claim = Claim("c/ns/t", "1", adopts=True)
    DatasetLog(lake.store, "t", claim=claim).settle()
    wanted = Grant.of(claim.owner, claim.incarnation, {"etl": ["Append"]}.items())
    log = DatasetLog(lake.store, "t", claim=claim)
    log.begin_new("writers").commit(Change(operation=Operation.LAYOUT, grant=wanted, by=claim.owner))
    write(frame(session, 12, 2), lake, writer="etl")
    assert ids(dataset) == list(range(14))
    assert next(iter(dataset.history())).by == "etl"
    version = dataset.version
    for options, mode in (({"writer": "other"}, "append"), ({"writer": "etl"}, "overwrite")):
        with pytest.raises(PySparkException, match="OwnedByAnother"):
            write(frame(session, 14, 2), lake, mode, **options)
    assert dataset.version == version


def test_spark_write_without_place_names_the_option() -> None:
    with pytest.raises(InputError, match=r"'uuid' is missing.*INSERT INTO t WITH"):
        WriteOptions.of({"path": "file:///nowhere"}, overwrite=False)


def test_spark_write_of_unknown_type_names_the_column(lake: Lake) -> None:
    with pytest.raises(InputError, match="column 'v' is variant"):
        sink.plan_write(
            WriteOptions.of({"path": lake.store.url, "uuid": "x"}, overwrite=False),
            StructType([StructField("v", VariantType())]),
        )


def test_spark_write_names_value_that_does_not_fit(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    halves = frame(session, 12, 4).withColumn("id", sf.col("id") + sf.when(sf.col("id") == 14, 0.5).otherwise(0.0))
    with pytest.raises(PySparkException, match=r"SchemaMismatch: column 'id': 14\.5 .*cannot be stored without loss"):
        write(halves, lake)
    assert ids(dataset) == list(range(12))
    assert not unreferenced(lake, dataset)


# Tasks that fail, and drivers that end.


def run(writer: BatchWriter, *tasks: pa.Table) -> list[Wrote]:
    """What the tasks answer."""
    return [writer.write(iter(rows.to_batches())) for rows in tasks]


def test_spark_task_that_fails_leaves_nothing_referenced(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    def fails(number: int) -> str:
        if number == 15:
            raise ValueError("this row fails")
        return f"n{number}"

    with pytest.raises(PySparkException, match="this row fails"):
        write(frame(session, 12, 4).withColumn("name", sf.udf(fails, "string")("id")), lake)
    assert (dataset.version, ids(dataset)) == (2, list(range(12)))
    write(frame(session, 12, 4), lake)
    assert ids(dataset) == list(range(16))


def test_spark_abort_deletes_files_of_tasks_that_succeeded(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    (wrote,) = run(writer, table(12, 4))
    assert unreferenced(lake, dataset) == {file.key for file in wrote.files}
    writer.abort([wrote, None])
    assert not unreferenced(lake, dataset)


def test_spark_second_attempt_of_a_task_is_the_one_that_counts(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    lost, wrote = run(writer, table(12, 4), table(12, 4))
    writer.commit([wrote])
    assert ids(dataset) == list(range(16))
    assert unreferenced(lake, dataset) == {file.key for file in lost.files}, "for the collector"


def test_spark_abort_after_a_commit_keeps_its_files(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    wrote = run(writer, table(12, 4))
    writer.commit(wrote)
    writer.abort(wrote)  # the commit's answer was lost
    assert ids(dataset) == list(range(16))


def test_spark_commit_with_a_task_missing_commits_nothing(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    with pytest.raises(RowsLost, match="1 of 2 tasks"):
        writer.commit([*run(writer, table(12, 4)), None])
    assert dataset.version == 2


def test_spark_driver_that_ends_at_any_write_commits_once(
    lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 30):
        rows, commit_id = table(12 * call, 12), f"load-{call}"
        writer = plan(lake, commitId=commit_id)
        wrote = run(writer, rows)
        dies = FaultStore(open_store(lake.store.config), Fault(nth=call))
        with monkeypatch.context() as patched:
            patched.setattr("kubothek.spark.options.open_store", lambda _, dies=dies: dies)
            try:
                writer.commit(wrote)
                break
            except Crash:
                pass
        again = plan(lake, commitId=commit_id)
        again.commit(run(again, rows))
        assert ids(dataset) == list(range(12 * (call + 1)))
    assert call > 3, "a commit writes more often"


def test_spark_write_without_rows_uses_its_id_or_is_refused(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake, commitId="none")
    writer.commit(run(writer, table(0, 0)))
    assert dataset.version == 3
    empty = plan(lake, overwrite=True)
    with pytest.raises(SourceEmpty, match="no rows to overwrite"):
        empty.commit(run(empty, table(0, 0)))
    assert ids(dataset) == list(range(12))


# Races.


def test_spark_append_beside_appends_and_compaction(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    wrote = run(writer, table(12, 4))
    dataset.append(table(100, 4))
    assert dataset.compact(min_files=2)
    writer.commit(wrote)
    assert ids(dataset) == [*range(16), *range(100, 104)]


OVERWRITES: list[dict[str, Any]] = [{}, {"partitionOverwriteMode": "dynamic"}, {"replaceWhere": "region = 'r0'"}]


@pytest.mark.parametrize("options", OVERWRITES)
def test_spark_overwrite_conflicts_with_commits_since_its_plan(
    lake: Lake, dataset: Dataset, options: dict[str, Any]
) -> None:
    writer = plan(lake, overwrite=True, **options)
    wrote = run(writer, table(50, 4, regions=1))
    dataset.append(table(100, 4))
    with pytest.raises(Conflict, match="changed while this"):
        writer.commit(wrote)
    assert ids(dataset) == [*range(12), *range(100, 104)]
    assert not unreferenced(lake, dataset)


def test_spark_replace_of_other_partitions_is_no_conflict(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake, overwrite=True, partitionOverwriteMode="dynamic")
    wrote = run(writer, table(50, 4, regions=1))
    dataset.append(table(100, 4).filter(pa.compute.field("region") == "r1"))
    assert dataset.compact(min_files=2)
    writer.commit(wrote)
    assert ids(dataset) == [1, 3, 5, 7, 9, 11, *range(50, 54), 101, 103]


def test_spark_overwrite_of_a_dataset_made_meanwhile_conflicts(lake: Lake) -> None:
    writer = plan(lake, overwrite=True)
    wrote = run(writer, table(0, 4))
    made = lake.create_dataset("t", schema=SCHEMA)
    with pytest.raises(Conflict, match="another program created it"):
        writer.commit(wrote)
    assert not unreferenced(lake, made)


def test_spark_write_to_a_deleted_dataset_is_refused(lake: Lake, dataset: Dataset) -> None:
    writer = plan(lake)
    wrote = run(writer, table(12, 4))
    DatasetLog(lake.store, "t").delete()
    with pytest.raises(DatasetDeleted):
        writer.commit(wrote)
    with pytest.raises(DatasetDeleted):
        plan(lake)


def test_spark_id_of_another_change_is_refused(lake: Lake, dataset: Dataset) -> None:
    dataset.delete("region = 'r0'", id="load")
    writer = plan(lake, commitId="load")
    with pytest.raises(IdReused):
        writer.commit(run(writer, table(12, 4)))
    assert not unreferenced(lake, dataset)


def test_spark_stream_without_ids_of_its_query_is_refused(lake: Lake, dataset: Dataset) -> None:
    options = WriteOptions.of({"path": lake.store.url, "uuid": "t"}, overwrite=False, stream=True)
    writer = StreamWriter(options, spark_schema(SCHEMA))
    with pytest.raises(InputError, match="do not know the id of their query"):
        writer.commit([writer.write(iter(table(0, 2).to_batches()))], 0)
