"""Layout and schema evolution as a Dataset manifest asks for them, the same in process and with Spark."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import minimalkv
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import read_table
from pyspark.sql import SparkSession

from kubothek.api.jobs import ExitCode
from kubothek.table.bucketing import Bucketing
from kubothek.table.layout import Layout
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

ROWS = 20_000
Json = dict[str, Any]
LAYOUT: Json = {"partition_on": ["k"], "sort_by": ["s", "x"], "bucket_by": ["x"], "num_buckets": 3}


def csv_of(numbers: range) -> str:
    return "k,s,x\n" + "".join(f"{n % 2},text {n * 7919 % 97},{n * 104_729 % ROWS}\n" for n in numbers)


def columns_of(here: Here) -> dict[str, str]:
    schema = here.snapshot().schema
    assert schema is not None
    return {field.name: str(field.type) for field in schema}


def files_of(here: Here) -> dict[str, pq.ParquetFile]:
    head = here.snapshot().head
    return {label: pq.ParquetFile(io.BytesIO(here.store.get(key))) for label, key in head.files().items()}


def test_commit_job_writes_sorted_bucketed_files_in_minimal_number(either: Here) -> None:
    names = [either.put(f"in/{part}.csv", csv_of(range(part, ROWS, 2))) for part in range(2)]
    result = either.commit(*names, table={**LAYOUT, "row_group_rows": 1000, "dictionary_columns": ["s"]})
    assert result.commit is not None
    assert (result.commit.rows, result.commit.files) == (ROWS, 6)
    bucketing = Bucketing((("x", pa.int64()),), 3)
    found = files_of(either)
    buckets = bucketing.read(pa.array(list(found))).to_pylist()
    assert [buckets.count(bucket) for bucket in range(3)] == [2, 2, 2]
    for file, bucket in zip(found.values(), buckets, strict=True):
        read = file.read()
        assert read == read.sort_by([("s", "ascending"), ("x", "ascending")])
        assert {b for batch in read.to_batches() for b in bucketing.buckets(batch).to_pylist()} == {bucket}
        group = file.metadata.row_group(0)
        assert group.num_rows == 1000
        assert [each.column_index for each in group.sorting_columns] == [0, 1]
        assert ["RLE_DICTIONARY" in group.column(n).encodings for n in range(2)] == [True, False]
    store = minimalkv.get_store_from_url(f"hfs://{either.root}")
    assert set(read_table("flights", store=lambda: store)["x"]) == set(range(ROWS))


def test_layout_edit_applies_from_next_write(here: Here) -> None:
    here.put("x.csv", csv_of(range(100)))
    here.commit("x.csv", commit_id="1", table=LAYOUT)
    assert Layout.of(here.snapshot().head) == Layout(
        partition_on=("k",), sort_by=("s", "x"), bucket_by=("x",), num_buckets=3
    )
    before = set(files_of(here))
    edited = {"partition_on": ["k"], "sort_by": ["x"], "compression": "SNAPPY"}
    here.commit("x.csv", commit_id="2", table=edited)
    assert Layout.of(here.snapshot().head) == Layout(partition_on=("k",), sort_by=("x",), compression="SNAPPY")
    for label, file in files_of(here).items():
        column = file.metadata.row_group(0).column(0)
        assert column.compression == ("ZSTD" if label in before else "SNAPPY")
        assert len(file.metadata.row_group(0).sorting_columns) == (2 if label in before else 1)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"sort_by": ["nope"]}, "sortBy names column 'nope'; the columns are k, s, x"),
        ({"bucket_by": ["nope"], "num_buckets": 2}, "bucketBy names column 'nope'"),
        ({"bucket_by": ["x"]}, "numBuckets must be 1 to 65536"),
        ({"partition_on": ["k"], "sort_by": ["k"]}, "sortBy names partition column 'k'"),
    ],
)
def test_commit_job_with_invalid_layout_is_refused_before_writing(either: Here, table: Json, says: str) -> None:
    either.put("x.csv", csv_of(range(10)))
    result, code = either.run(either.commit_job("x.csv", table=table))
    assert (result.reason, code) == ("LayoutInvalid", ExitCode.INVALID)
    assert says in result.message
    assert either.head() is None
    assert not list(either.root.glob("flights/**/*.parquet"))


# --- schema evolution ---------------------------------------------------------------------------------------


def test_commit_job_evolves_table_only_with_compatible_setting(either: Here) -> None:
    strict, compatible = {"partition_on": ["k"]}, {"partition_on": ["k"], "schema_evolution": "Compatible"}
    either.put("old.csv", "k,x\na,1\n")
    either.put("new.csv", "k,n,x\na,7.5,2\n")
    either.commit("old.csv", commit_id="1", table=strict)
    head = either.head()
    result, _ = either.run(either.commit_job("new.csv", commit_id="2", table=strict))
    assert result.reason == "SchemaMismatch"
    assert either.head() == head
    either.commit("new.csv", commit_id="3", table=compatible)
    either.commit("old.csv", commit_id="4", table=compatible)
    assert columns_of(either) == {"k": "string", "n": "double", "x": "int64"}
    newest = files_of(either)[list(files_of(either))[-1]]
    assert newest.schema_arrow.names == ["n", "x"], "what a source lacks is null in the file"
    assert newest.read()["n"].to_pylist() == [None]
    store = minimalkv.get_store_from_url(f"hfs://{either.root}")
    frame = read_table("flights", store=lambda: store).sort_values("x")
    assert frame["n"].isna().tolist() == [True, True, False]


def test_evolution_keeps_type_of_known_columns(here: Here) -> None:
    """What looks like a number is text where the table has text."""
    table = {"schema_evolution": "Compatible"}
    here.put("1.csv", "t\nabc\n")
    here.put("2.csv", "t,n\n12,3\n")
    here.commit("1.csv", commit_id="1", table=table)
    here.commit("2.csv", commit_id="2", table=table)
    assert columns_of(here) == {"n": "int64", "t": "string"}


def test_evolution_adds_only_columns_of_declared_schema(here: Here) -> None:
    promised: list[dict[str, Any]] = [
        {"name": "a", "type": "int64", "nullable": False},
        {"name": "b", "type": "float64"},
    ]
    table = {"schema_evolution": "Compatible", "columns": promised[:1]}
    here.put("a.csv", "a\n1\n")
    here.put("ab.csv", "a,b\n2,3\n")
    here.put("b.csv", "b\n4\n")
    here.commit("a.csv", commit_id="1", table=table)
    result, _ = here.run(here.commit_job("ab.csv", commit_id="2", table=table))
    assert result.reason == "SchemaMismatch"
    wider = {**table, "columns": promised}
    here.commit("ab.csv", commit_id="3", table=wider)
    here.commit("a.csv", commit_id="4", table=wider)
    assert columns_of(here) == {"a": "int64", "b": "double"}
    result, _ = here.run(here.commit_job("b.csv", commit_id="5", table=wider))
    assert result.reason == "SchemaMismatch"
    assert "column 'a' must not be null, and the source does not have it" in result.message


# --- refused before a byte is written -----------------------------------------------------------------------

REFUSED: dict[str, tuple[pa.Table, list[str], str, str]] = {
    "bool": (pa.table({"k": [True], "x": [1]}), ["k"], "PartitionInvalid", "partition column 'k' is bool"),
    "null values": (pa.table({"k": ["a", None], "x": [1, 2]}), ["k"], "PartitionInvalid", "no value in a partition"),
    "a time zone": (
        pa.table({"k": pa.array([0], pa.timestamp("us", "Asia/Tokyo")), "x": [1]}),
        ["k"],
        "PartitionInvalid",
        "partition column 'k' is timestamp[us, tz=Asia/Tokyo]: a partition has no time zone",
    ),
    "no values at all": (pa.table({"k": pa.nulls(1), "x": [1]}), ["k"], "PartitionInvalid", "'k' is null"),
    "NaN": (pa.table({"k": [float("nan")], "x": [1]}), ["k"], "PartitionInvalid", "no value in a partition"),
    "a slash in its name": (pa.table({"a/b": [1], "x": [1]}), ["a/b"], "PartitionInvalid", "contain '/'"),
    "the name partition": (pa.table({"partition": [1], "x": [1]}), [], "SchemaMismatch", "reserves this name"),
    "a name of cubes": (pa.table({"__a": [1], "x": [1]}), [], "SchemaMismatch", "reserves this name"),
    "a name twice": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]),
        [],
        "SchemaMismatch",
        "more than once",
    ),
    "a label of 2 KB": (
        pa.table({f"k{n}": ["x" * 200] for n in range(10)} | {"x": [1]}),
        [f"k{n}" for n in range(10)],
        "PartitionInvalid",
        "too long for a key",
    ),
    "a value of 2 KB": (pa.table({"k": ["x" * 2048], "x": [1]}), ["k"], "PartitionInvalid", "too long for a key"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_commit_job_with_unsupported_data_is_refused_before_writing(either: Here, case: str) -> None:
    table, partition_on, reason, says = REFUSED[case]
    either.put("bad.parquet", table)
    result, code = either.run(either.commit_job("bad.parquet", format="Parquet", table={"partition_on": partition_on}))
    assert (result.reason, code) == (reason, ExitCode.INVALID)
    assert says in result.message
    assert either.head() is None
    assert not list(either.root.glob("flights*")), "not even a directory"


def test_declared_zoneless_partition_column_is_stored_in_utc(here: Here) -> None:
    """A library that is told of a zone can write such a table, and never read it (Kartothek specification,
    "Filenames")."""
    here.put("x.csv", "k,x\n1970-01-01T09:00:00+09:00,1\n")
    columns = [{"name": "k", "type": "timestamp[us]"}, {"name": "x", "type": "int64"}]
    here.commit("x.csv", columns=columns, table={"partition_on": ["k"]})
    (label,) = here.snapshot().head.files()
    assert label.startswith("k=1970-01-01%2000%3A00%3A00/")


# --- the hash, as Spark has it ------------------------------------------------------------------------------


@pytest.mark.spark
def test_bucket_hash_equals_spark_hash(spark: SparkSession) -> None:
    """docs/layout.md: ``pmod(hash(…), numBuckets)``, for the types that Spark has."""
    rows = 500
    table = pa.table(
        {
            "i": [n * 2**40 - 7 if n % 5 else None for n in range(rows)],
            "f": [0.0 if n % 3 else -0.0 if n % 2 else n / 7 for n in range(rows)],
            "s": ["ü" * (n % 11) + "x" * (n % 3) if n % 7 else None for n in range(rows)],
            "b": [n % 2 == 0 for n in range(rows)],
            "r": [bytes([n % 256] * (n % 9)) for n in range(rows)],
            "d": pa.array(range(-100, rows - 100), pa.int32()).cast(pa.date32()),
            "t": pa.array([n * 10**12 for n in range(rows)], pa.timestamp("us")),
            "c": pa.array([Decimal(n - 250) / 8 for n in range(rows)], pa.decimal128(18, 4)),
        }
    )
    bucketing = Bucketing(tuple(zip(table.schema.names, table.schema.types, strict=True)), 1000)
    frame = spark.createDataFrame(table).selectExpr(f"pmod(hash({','.join(table.column_names)}), 1000) AS bucket")
    assert bucketing.buckets(table.to_batches()[0]).to_pylist() == frame.toArrow()["bucket"].to_pylist()
