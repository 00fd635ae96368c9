"""What a commit does, the same in process and with Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import minimalkv
import pyarrow as pa
import pytest
from plateau.io.eager import read_table

from kubothek.api.jobs import ExitCode, JobResult
from kubothek.ingest import reader
from kubothek.spark import session as spark_session
from kubothek.storage.file import FileStore
from tests.jobs.conftest import Here, with_spark
from tests.table.log.hashes import require_hashes

pytestmark = pytest.mark.slow

HEADER = "year,month,day,dep_delay,carrier,time_hour\n"
FLIGHTS = [
    f"2013,{1 + i % 3},{1 + i % 28},{'NA' if i % 7 == 0 else i},{'UA' if i % 2 else 'AA'},2013-01-01T{i % 24:02}:00:00Z"
    for i in range(1000)
]


def flights_csv(rows: list[str] = FLIGHTS) -> str:
    return HEADER + "\n".join(rows) + "\n"


def flight_rows(rows: list[str] = FLIGHTS) -> list[dict[str, Any]]:
    """The rows as they must come back, sorted as ``Here.rows`` sorts."""
    found = []
    for row in rows:
        year, month, day, delay, carrier, hour = row.split(",")
        found.append(
            {
                "year": int(year),
                "month": month,
                "day": int(day),
                "dep_delay": None if delay == "NA" else int(delay),
                "carrier": carrier,
                "time_hour": datetime.fromisoformat(hour).replace(tzinfo=None),
            }
        )
    return sorted(found, key=lambda row: tuple(repr(row[name]) for name in sorted(row)))


@pytest.mark.parametrize("known", [True, False, None])
def test_commit_job_probes_store_only_if_capabilities_are_unknown(
    here: Here, monkeypatch: pytest.MonkeyPatch, known: bool | None
) -> None:
    probe = Mock(wraps=here.store.probe)
    monkeypatch.setattr(FileStore, "probe", probe)
    here.put("in/a.csv", "x\n1\n")
    job = here.commit_job("in/a.csv")
    result, code = here.run({**job, "store": {**job["store"], "conditional_writes": known}})
    assert code == ExitCode.DONE, result
    assert probe.call_count == (known is None)


def test_commit_job_of_csv_file_writes_partitions(either: Here) -> None:
    either.put("in/flights.csv.gz", gzip.compress(flights_csv().encode()))
    result = either.commit("in/flights.csv.gz", table={"partition_on": ["month"]})
    assert either.sessions == (0 if either.from_bytes else 1)
    require_hashes(either.log)
    assert result.commit is not None
    assert result.dataset is not None
    assert (result.commit.version, result.commit.rows, result.commit.files) == (1, 1000, 3)
    assert result.commit.bytes == result.dataset.totals.bytes > 0
    assert (result.dataset.totals.partitions, result.dataset.totals.rows) == (3, 1000)
    assert result.dataset.owner == "cluster/default/flights"
    assert either.rows() == flight_rows()


def test_commit_jobs_of_json_lines_and_parquet_write_same_rows(either: Here) -> None:
    rows = [{"k": i % 3, "v": f"text {i}", "n": None if i % 2 else i / 2} for i in range(500)]
    either.put("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    either.put("b.parquet", pa.Table.from_pylist(rows))
    either.commit("a.jsonl", commit_id="a", format="JSONLines", table={"partition_on": ["k"]})
    result = either.commit("b.parquet", commit_id="b", format="Parquet", table={"partition_on": ["k"]})
    assert result.dataset is not None
    assert result.dataset.totals.rows == 1000
    expected = [{"k": str(row["k"]), "v": row["v"], "n": row["n"]} for row in rows for _ in range(2)]
    assert either.rows("k", "v") == sorted(expected, key=lambda row: (repr(row["k"]), repr(row["v"])))


def test_commit_job_of_many_files_and_partition_columns_keeps_all_rows(either: Here) -> None:
    names = [either.put(f"in/{part}.csv", flights_csv(FLIGHTS[part::10])) for part in range(10)]
    result = either.commit(*names, table={"partition_on": ["carrier", "month"]})
    assert result.commit is not None
    assert result.commit.rows == 1000
    assert sorted({label.rpartition("/")[0] for label in either.snapshot().head.files()}) == [
        f"carrier={carrier}/month={month}" for carrier in ("AA", "UA") for month in (1, 2, 3)
    ]
    assert either.rows() == flight_rows()


def test_commit_job_without_partitions_writes_one_file(either: Here) -> None:
    either.put("x.csv", flights_csv())
    result = either.commit("x.csv")
    assert result.commit is not None
    assert result.commit.files == 1


def test_commit_job_cuts_files_at_target_size(either: Here) -> None:
    noise = "".join(f"{i},{i * 7919 % 104729}{i * 104729 % 7919}\n" for i in range(30_000))
    either.put("x.csv", "a,b\n" + noise)
    result = either.commit("x.csv", table={"target_file_bytes": 30_000})
    assert result.commit is not None
    assert result.commit.files > 3
    assert result.commit.rows == 30_000


def test_commit_job_keeps_hostile_partition_values(either: Here) -> None:
    values = ["a/b", "100%", "p=q", "Grüße 💾", " ", "..", "'; DROP TABLE x", 'say "hi"\nthere', "x" * 60, "%2F", "NA"]
    body = "".join('"' + value.replace('"', '""') + f'",{i}\n' for i, value in enumerate(values))
    either.put("x.csv", f"p,i\n{body}")
    either.commit("x.csv", table={"partition_on": ["p"]})
    store = minimalkv.get_store_from_url(f"hfs://{either.root}")
    frame = read_table("flights", store=lambda: store).sort_values("i")
    assert list(frame["p"]) == values


def test_plateau_reads_rows_of_commit_job(either: Here) -> None:
    either.put("x.csv", flights_csv())
    either.commit("x.csv", table={"partition_on": ["month"]})
    store = minimalkv.get_store_from_url(f"hfs://{either.root}")
    frame = read_table("flights", store=lambda: store)
    assert len(frame) == 1000
    assert frame["dep_delay"].isna().sum() == sum(",NA," in row for row in FLIGHTS)
    assert set(frame["month"]) == {1, 2, 3}


def test_commit_job_splits_large_files_and_keeps_quoted_line_breaks(
    either: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SPLIT_BYTES", 1500)
    either.put("plain.csv", "a,b\n" + "".join(f"{i},x{i}\n" for i in range(1000)))
    either.put("quoted.csv", "a,b\n" + "".join(f'{i},"x\nx\nx\nx\nx\n{i}"\n' for i in range(1000, 1500)))
    either.commit("plain.csv", "quoted.csv")
    rows = either.rows("a")
    assert sorted(row["a"] for row in rows) == list(range(1500))
    assert {row["b"] for row in rows if row["a"] == 1499} == {"x\nx\nx\nx\nx\n1499"}


def test_commit_job_reports_progress_stages_in_order(either: Here) -> None:
    either.put("x.csv", flights_csv())
    either.commit("x.csv")
    stages = [progress["stage"] for progress in either.progress()]
    order = list(dict.fromkeys(stages))
    assert [stage for stage in order if stage != "Writing"] == ["Starting", "Reading", "Committing"]
    assert either.progress()[-1] == {"stage": "Committing", "tasks_done": 0, "tasks_total": 0, "rows": 1000}


def test_commit_job_gives_type_to_column_without_values(either: Here) -> None:
    either.put("1.csv", "a,b\n1,NA\n")
    either.put("2.csv", "a,b\n2,text\n")
    either.commit("1.csv", commit_id="1")
    either.commit("2.csv", commit_id="2")
    assert either.rows("a") == [{"a": 1, "b": None}, {"a": 2, "b": "text"}]


def test_second_commit_job_reads_source_in_types_of_table(either: Here) -> None:
    either.put("1.csv", "zip,v\n01234x,1.5\n")
    either.put("2.csv", "v,zip\n2,01234\n")
    either.commit("1.csv", commit_id="1")
    either.commit("2.csv", commit_id="2")
    assert either.rows("v")[1] == {"zip": "01234", "v": 2.0}


# --- bad input --------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, bytes | str | pa.Table], dict[str, Any], str, str]] = {
    # name: files, options of the job, reason, message
    "no such file": ({}, {}, "SourceNotFound", "there is no 'bad.csv' in file:"),
    "empty file": ({"bad.csv": b""}, {}, "SourceEmpty", "'bad.csv' is empty (0 bytes)"),
    "no rows": ({"bad.csv": "month,v\n"}, {}, "SourceEmpty", "the source has no rows: 'bad.csv'"),
    "wrong type": (
        {"bad.csv": "month,v\n1,1\n2,2\n3,oops\n"},
        {},
        "DataTypeMismatch",
        "'bad.csv', column 'v', row 3: 'oops' is no int64; correct the value",
    ),
    "wrong type in JSON": (
        {"bad.csv": '{"month": 1, "v": 1}\n{"month": 2, "v": "oops"}\n'},
        {"format": "JSONLines"},
        "DataTypeMismatch",
        "'bad.csv', column 'v', row 2: 'oops' is no int64",
    ),
    "value that does not fit in Parquet": (
        {"bad.csv": pa.table({"month": [1, 2], "v": [1.0, 2.5]})},
        {"format": "Parquet"},
        "DataTypeMismatch",
        "'bad.csv', column 'v', row 2: 2.5 is no int64",
    ),
    "too many values in a row": (
        {"bad.csv": "month,v\n1,1\n2,2,2\n"},
        {},
        "SchemaMismatch",
        "'bad.csv' row 2 has 3 values, the file has 2 columns",
    ),
    "null in the partition column": (
        {"bad.csv": "month,v\n1,1\nNA,2\n"},
        {},
        "PartitionInvalid",
        "'bad.csv', column 'month', row 2: no value in a partition column",
    ),
    "missing column": ({"bad.csv": "v\n1\n"}, {}, "SchemaMismatch", "missing: 'month'"),
    "unknown column": ({"bad.csv": "month,v,w\n1,1,1\n"}, {}, "SchemaMismatch", "not in the table: 'w'"),
    "damaged gzip": (
        {"bad.csv.gz": gzip.compress(b"month,v\n" + b"1,1\n" * 9)[:-9]},
        {"paths": ["bad.csv.gz"]},
        "SourceCorrupt",
        "'bad.csv.gz' is not a sound Gzip file",
    ),
    "declared type that is not the table's": (
        {"bad.csv": "month,v\n1,1\n"},
        {"columns": [{"name": "month", "type": "int64"}, {"name": "v", "type": "string"}]},
        "SchemaMismatch",
        "v       int64      string    another type",
    ),
    "URL outside of the list": (
        {},
        {"paths": (), "urls": ["http://169.254.169.254/latest"]},
        "SourceRefused",
        "host '169.254.169.254' is not on the operator's list of source hosts",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_commit_job_with_bad_input_fails_and_leaves_dataset_unchanged(either: Here, case: str) -> None:
    files, options, reason, message = BAD[case]
    table = {"partition_on": ["month"]}
    either.put("good.csv", "month,v\n1,1\n")
    either.commit("good.csv", commit_id="good", table=table)
    head, files_before = either.head(), set(either.root.glob("flights/**/*"))
    for name, data in files.items():
        either.put(name, data)
    job = either.commit_job("bad.csv", commit_id="bad", table=table)
    job["source"] |= options
    result, code = either.run(job)
    assert (result.outcome, result.reason, result.retryable, code) == ("Failed", reason, False, ExitCode.INVALID)
    assert message in result.message
    assert "Traceback" not in result.message
    assert either.head() == head
    assert set(either.root.glob("flights/**/*")) == files_before
    again, _ = either.run(job)
    assert again.message == result.message


def test_first_commit_job_without_partition_columns_in_source_is_refused(either: Here) -> None:
    either.put("x.csv", "a\n1\n")
    result, code = either.run(either.commit_job("x.csv", table={"partition_on": ["month", "a"]}))
    assert (result.reason, code) == ("PartitionInvalid", ExitCode.INVALID)
    assert "no column 'month' to partition on; the source has 'a'" in result.message
    assert either.head() is None


def test_commit_job_with_changed_partition_columns_is_refused(either: Here) -> None:
    either.put("x.csv", "a,b\n1,2\n")
    either.commit("x.csv", commit_id="1", table={"partition_on": ["a"]})
    head = either.head()
    result, code = either.run(either.commit_job("x.csv", commit_id="2", table={"partition_on": ["b"]}))
    assert (result.reason, code) == ("PartitionInvalid", ExitCode.INVALID)
    assert either.head() == head


def test_commit_job_that_violates_declared_schema_is_refused(either: Here) -> None:
    table = {"columns": [{"name": "a", "type": "int32", "nullable": False}, {"name": "b", "type": "string"}]}
    either.put("good.csv", "a,b\n1,x\n")
    either.put("null.csv", "a,b\n1,x\nNA,y\n")
    either.put("wide.csv", "a,b,c\n1,x,y\n")
    either.put("large.csv", f"a,b\n{2**70},x\n")
    reasons = {}
    for name in ("null.csv", "wide.csv", "large.csv", "good.csv"):
        result, _ = either.run(either.commit_job(name, commit_id=name, table=table))
        reasons[name] = result.reason
    assert reasons == {
        "null.csv": "DataTypeMismatch",
        "wide.csv": "SchemaMismatch",
        "large.csv": "DataTypeMismatch",
        "good.csv": "Succeeded",
    }
    assert either.rows() == [{"a": 1, "b": "x"}]


@pytest.mark.spark
def test_commit_job_error_is_equal_in_process_and_with_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """An error in the middle of a file that Spark reads in ranges has the row that a person can look up."""
    monkeypatch.setattr(reader, "SPLIT_BYTES", 1000)
    here = Here(tmp_path / "lake")
    here.put("x.csv", "a,b\n" + "".join(f"{i if i != 777 else 'oops'},y\n" for i in range(1000)))
    columns = [{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}]

    def message() -> JobResult:
        return here.run(here.commit_job("x.csv", columns=columns))[0]

    in_process = message()
    assert "'x.csv', column 'a', row 778: 'oops' is no int64" in in_process.message
    with_spark(here, request.getfixturevalue("spark"), monkeypatch)
    assert message() == in_process


@pytest.mark.parametrize(
    ("name", "rows"), [("new.parquet", pa.table({"a": [1], "b": ["x"]})), ("new.csv", "a,b\n1,x\n")]
)
def test_source_with_other_columns_is_refused_before_spark_starts(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, rows: pa.Table | str
) -> None:
    @contextmanager
    def running(*_: object) -> Iterator[None]:
        raise AssertionError("Spark was started")
        yield

    here.put("a.csv", "a\n1\n")
    here.commit("a.csv")
    monkeypatch.setattr(spark_session, "running", running)
    here.from_bytes = 0
    here.put(name, rows)
    kind = "Parquet" if name.endswith("parquet") else "CSV"
    result, _ = here.run(here.commit_job(name, commit_id="c2", format=kind))
    assert result.reason == "SchemaMismatch"
    assert result.message.endswith("or let the table evolve: schemaEvolution: Compatible")
    assert "not in the table: 'b'" in result.message
