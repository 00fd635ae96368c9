"""The benchmarks run, every system finds what it wrote, and the tables say so. Figures are not judged here."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from shutil import which
from types import ModuleType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import kubothek
from benchmarks import (
    bulk,
    chains,
    changes,
    collection,
    compaction,
    cubes,
    exports,
    gateway,
    indexed,
    latencies,
    latency,
    ledger,
    memory,
    merge,
    skipping,
    tables,
    transform,
    verify,
)
from benchmarks.exports import Requests
from benchmarks.harness import Case, Series, Table, compare
from benchmarks.places import Place, place
from benchmarks.sparks import SparkProcess, delta_spark
from benchmarks.systems import spark_process

pytestmark = pytest.mark.slow

PARTITIONS = 100


def rows(table: Table | memory.Memory | collection.Peaks) -> list[str]:
    """The first cells of a rendered table."""
    lines = [line for line in table.render().splitlines() if line.startswith("| ")]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines[1:]]


def test_benchmark_rounds_are_interleaved_after_uncounted_warmup() -> None:
    ran: list[str] = []
    compare("", [Case("a", lambda: ran.append("a")), Case("b", lambda: ran.append("b"))], rounds=2, seconds=1)
    assert ran == ["a", "b"] * 3


def test_benchmark_case_beyond_time_limit_skips_remaining_rounds() -> None:
    table = compare("", [Case("a", lambda: None)], rounds=5, seconds=0)
    assert [len(series.wall) for series in table.series] == [0]


def test_benchmark_table_shows_minimum_median_and_ratio_to_first() -> None:
    ours, theirs = Series("ours", [0.002, 0.001], [0.001, 0.001]), Series("theirs", [0.004, 1.0, 0.006], [0.5] * 3)
    lines = Table("work", [ours, theirs], 0.5).render().splitlines()
    assert lines[0] == "### work"
    assert lines[6:] == [
        "| ours | 1.0 ms | 1.5 ms | 1.0 ms | 1.0 | 1.0 | 2 |",
        "| theirs | 4.0 ms | 6.0 ms | 500.0 ms | 4.0 | 4.0 | 3 |",
    ]


@pytest.mark.slow
def test_benchmark_of_changes_reads_both_feeds() -> None:
    with place("fs") as where:
        found = list(changes.run(where, rounds=1, seconds=5))
    assert [rows(table) for table in found] == [["Kubothek", "deltalake-rs"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fs", pytest.param("s3", marks=pytest.mark.s3)])
def test_benchmark_systems_all_plan_read_and_commit(name: str) -> None:
    with place(name) as where:
        found = list(tables.run(where, PARTITIONS, rounds=1, seconds=5))
    assert [table.title.split(" at ")[0] for table in found] == [
        "plan one partition",
        "read one partition",
        "commit 1,000 rows to one partition",
    ]
    assert all(rows(table) == list(tables.SYSTEMS) for table in found)


@pytest.mark.slow
def test_benchmark_lookups_find_row_and_commits_maintain_indices() -> None:
    with place("fs") as where:
        lookups, commits = indexed.run(where, PARTITIONS, rounds=1, seconds=5)
    assert (len(rows(lookups)), len(rows(commits))) == (6, 3)


@pytest.mark.slow
def test_benchmark_exports_are_measured_beside_commits() -> None:
    with place("fs") as where:
        found = [table for table in exports.run(where, PARTITIONS, rounds=1, seconds=5) if isinstance(table, Table)]
    commits, whole, readers = found
    assert rows(commits) == [
        "commit of 1,000 rows",
        "export after an own commit",
        "export after an own removal",
        "export by another process",
    ]
    assert rows(whole) == ["export of everything"]
    assert rows(readers) == [
        f"{name}: {work}" for work in ("load", "plan one partition", "plan everything") for name in ("its own", "ours")
    ]


def test_benchmark_exports_of_two_sizes_are_compared_in_one_run() -> None:
    with place("fs") as where:
        found = [*exports.run_growth(where, [3, PARTITIONS], rounds=1, seconds=5)]
    assert [rows(table) for table in found] == [["3 partitions", "100 partitions"]] * 2


def test_benchmark_catalogues_load_same_table() -> None:
    with place("fs") as where:
        loads, exported = exports.run_versions(where, 3, rounds=1, seconds=5)
    assert rows(loads) == [
        "pyiceberg's SQL catalogue",
        "REST",
        "REST, snapshots=refs",
        "REST, snapshots=all, not parsed",
        "REST, snapshots=refs, not parsed",
    ]
    assert rows(exported) == ["commit of 1,000 rows", "export after an own commit"]


def test_benchmark_exports_count_requests_of_s3() -> None:
    with place("s3") as where:
        requests = next(found for found in exports.run(where, 10, rounds=1, seconds=5) if isinstance(found, Requests))
    assert [len(made) for _, made in requests.made[:2]] == [7, 3]


@pytest.mark.slow
def test_benchmark_memory_is_measured_in_separate_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SYSTEMS", {"kubothek, warm": tables.SYSTEMS["kubothek, warm"]})
    with place("fs") as where:
        found = memory.run(where, PARTITIONS)
    (start, planned, committed) = found.peaks["kubothek, warm"]
    assert 10 < start < committed
    assert start <= planned <= committed < 2000
    assert rows(found) == ["kubothek, warm"]


class SparkHere(SparkProcess):
    """The session of the tests in place of a process; it has no Delta Lake, so its Delta tables are Parquet files."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, verb: str, *given: Any) -> None:
        spark_process.VERBS["write_parquet" if verb == "write_delta" else verb](self._session, *given)


@pytest.mark.spark
def test_benchmark_bulk_writes_write_all_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "running", lambda _conf: nullcontext(spark))
    monkeypatch.setattr(bulk, "plain_spark", lambda: SparkHere(spark))
    monkeypatch.setattr(bulk, "delta_spark", lambda: SparkHere(spark))
    monkeypatch.setattr(bulk, "_YEARS", 2)
    with place("fs") as where:
        commits, parted, whole = bulk.run(where, 10_000, rounds=1, seconds=30)
        tables_written = sorted(where.scratch.glob("in-spark-*/table"))
        written = [ds.dataset(each, partitioning="hive").count_rows() for each in tables_written]
        lakes = [kubothek.open(path.as_uri()) for path in where.scratch.glob("frame-*")]
        counts = [lake.sql("SELECT count(*) AS n FROM bulk").to_arrow()["n"].to_pylist() for lake in lakes]
    assert rows(commits)[-1] == "Spark: write.partitionBy.parquet"
    assert len(rows(commits)) == 5
    assert [rows(table) for table in (parted, whole)] == [
        ["Spark: write.parquet", "kubothek, batches by rows", "kubothek, Spark as it comes", "Delta-Spark"]
    ] * 2
    assert written == [10_000] * 10
    assert counts == [[10_000]] * 8


@pytest.mark.spark
def test_benchmark_delta_spark_merges_and_restores(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(100), "value": [0] * 100}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"id": range(90, 110), "value": [1] * 20}), tmp_path / "source.parquet")
    target = str(tmp_path / "table")
    with delta_spark() as spark:
        spark.ask("write_delta", str(tmp_path / "rows.parquet"), target, [])
        spark.ask("keep", str(tmp_path / "source.parquet"), "source")
        spark.ask("merge_delta", "source", target, "id")
        merged = DeltaTable(target).to_pyarrow_table()
        spark.ask("restore_delta", target, 0)
        restored = DeltaTable(target).to_pyarrow_table()
        with pytest.raises(RuntimeError, match="Spark process: restore_delta failed; its error is above"):
            spark.ask("restore_delta", target, 99)
    assert (merged.num_rows, pc.sum(merged["value"]).as_py()) == (110, 20)
    assert (restored.num_rows, pc.sum(restored["value"]).as_py()) == (100, 0)


@pytest.mark.spark
def test_benchmark_cube_queries_return_same_row_count(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubes, "running", lambda _conf: nullcontext(spark))
    monkeypatch.setattr(cubes, "_VALUES_OF_I", 2)
    with place("fs") as where:
        found = list(cubes.run(where, cubes.Size(4, 80), rounds=1, seconds=30))
    assert [len(rows(table)) for table in found] == [2] * 3 + [3] * 4
    assert [table.title.split(":")[0] for table in found][3:] == [
        "query one cell",
        "query one value of an index",
        "query a tenth of the partitions",
        "query everything",
    ]


def without_spark(monkeypatch: pytest.MonkeyPatch, work: ModuleType) -> None:
    """Starting a session takes longer than all else, and tests/spark has it do this work."""
    monkeypatch.setattr(work, "started", lambda: nullcontext((None, Series("start", [1.0], [1.0]))))


@pytest.mark.slow
def test_benchmark_skipping_opens_matching_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "_COMMIT_ROWS", 1000)
    with place("fs") as where:
        reads, commits, many, plans = skipping.run(where, 1, 50, rounds=1, seconds=5)
    assert isinstance(reads, skipping.Reads)
    assert isinstance(many, skipping.Reads)
    for table, queries in ((reads, skipping.QUERIES), (many, skipping.MANY_QUERIES)):
        assert [line.query for line in table.lines] == [name for name in queries for _ in range(4)]
        ours = {line.query: line for line in table.lines if line.system == "kubothek"}
        assert all(ours[name].opened == ours[name].matching for name in queries if name != "several columns")
    assert isinstance(commits, Table)
    assert isinstance(plans, Table)
    assert rows(commits)[:2] == ["without", "MinMax on all columns"]
    assert rows(plans) == [f"kubothek, {name}" for name in skipping.MANY_QUERIES]


@pytest.mark.slow
def test_benchmark_compactions_leave_one_file_per_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch, compaction)
    monkeypatch.setattr(compaction, "with_spark", lambda root, _: compaction.ours(root))
    made: list[int] = []
    for name in ("ours", "delta", "floor"):
        inner = getattr(compaction, name)
        monkeypatch.setattr(compaction, name, lambda *given, inner=inner: made.append(inner(*given)))
    with place("fs") as where:
        (found,) = compaction.run(where, 24, rows=10, rounds=1)
    assert len(rows(found)) == 5
    assert made == [8] * 8


@pytest.mark.slow
@pytest.mark.s3
def test_benchmark_collections_delete_exactly_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch, collection)
    with place("s3") as where:
        (found,) = collection.run(where, 300, 200, rounds=1)
        left = {root.name: sum("-live.parquet" in path.name for path in root.rglob("*")) for root in _roots(where)}
        garbage = [path for root in _roots(where) for path in root.rglob("*-garbage-*")]
    assert len(rows(found)) == 6
    assert left == {"ours": 300, "delta": 300, "floor": 300}
    assert garbage == []


def _roots(where: Place) -> list[Path]:
    assert where.disk is not None
    return [path for path in where.disk.iterdir() if path.name != ".sgwtmp"]


@pytest.mark.slow
def test_benchmark_collection_memory_is_measured_in_separate_process() -> None:
    with place("fs") as where:
        found = collection.memory(where, [(100, 300)])
    assert rows(found) == ["100, 300"]
    assert all(10 < start <= after < 2000 for start, after in found.peaks.values())


@pytest.mark.slow
def test_benchmark_merges_have_row_per_history_size() -> None:
    with place("fs") as where:
        found = list(merge.run(where, [10_000, 30_000], rounds=1))
    strategies = ["Ledger", "Ledger", "UpsertStream", "UpsertStream", "ChangelogStream"]
    assert [table.title.split(" of ")[0] for table in found] == [f"{strategy} merge" for strategy in strategies]
    merged, both = ["into 10,000", "into 30,000"], ["into 10,000", "decoding 10,000", "into 30,000", "decoding 30,000"]
    assert all(rows(table) == (both if "anywhere" in table.title else merged) for table in found)


def test_benchmark_derivative_updates_have_row_per_history_size(tmp_path: Path) -> None:
    histories = [transform.History.of(tmp_path / str(records), records) for records in (1_000, 20_000)]
    assert rows(transform.updates(histories, rounds=1, seconds=5)) == ["update on 1,000", "update on 20,000"]


def test_benchmark_ledger_compares_table_and_ledger_systems() -> None:
    with place("fs") as where:
        found = list(ledger.run(where, 1000, rounds=1))
    assert [rows(table) for table in found] == [["table", "ledger with its table", "ledger alone"]] * 2


def test_benchmark_gateway_compares_pull_download_and_query() -> None:
    with place("fs") as where:
        pulls, *linked, load, query = gateway.run(where, [1], rounds=1, clients=3)
    assert isinstance(pulls, Table)
    assert isinstance(query, Table)
    assert rows(query) == ["in this process", "in a worker that waits", "in a worker, at once again"]
    hashed = "download, synced, sha3_256 of hashlib"
    curl = [f"curl, {how}" for how in ("one by one, not synced", "8 at once, not synced", "8 at once, then sync")]
    over_links = ["download, synced", "download, not synced", hashed, "pull", *(curl if which("curl") else ())]
    assert rows(pulls) == [*over_links, "smart pull"]
    assert [rows(each) for each in linked if isinstance(each, Table)] == [over_links] * (len(gateway.LINKS) - 1)
    assert isinstance(load, gateway.Load)
    assert [row[:2] for row in load.rows] == [("gateway", 60)]


def test_benchmark_directory_is_deleted_afterwards() -> None:
    with place("fs") as where:
        scratch: Path = where.root("x").scratch
        assert scratch.is_dir()
    assert not scratch.exists()


def test_benchmark_pull_of_unchanged_long_chain_costs_one_request() -> None:
    with place("fs") as where:
        (pulls,) = chains.run(where, 70)
    # Over https the head and its block are asked for; that block's number says to go on by the smart protocol.
    assert [(way.requests, way.again_requests) for way in pulls.rows] == [(0, 0), (2, 1), (1, 1)]


@pytest.mark.slow
def test_benchmark_chain_verification_has_table_per_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_MEASUREMENTS", 1000)
    monkeypatch.setattr(verify, "_MONTHS", 1)
    with place("fs") as where:
        found = list(verify.run(where, 1, rounds=1, seconds=5))
    assert [table.title.split(" of ")[1] for table in found] == [
        "measurements, fs",
        "flights, a slice a month, fs",
        "flights, a slice a year, fs",
    ]
    assert all(rows(table)[1] == "kubothek, one core" for table in found)


def test_benchmark_latencies_are_reported_by_stage_and_ratio() -> None:
    found, cold = latencies.Latencies(), latency.COLD.title
    for begun in (0.0, 100.0):
        stages = {"apply": 0.5, "decided": 0.6, "pod": 0.8, "started": 3.0, "imported": 2.5, "committed": 9.0}
        moments = {"begun": begun} | {name: begun + at for name, at in stages.items()}
        found.add(cold, "1.3 ×", moments | {"Ready": begun + 8.0 + begun / 100})
        found.add(latency.SUBMIT, "", {"begun": begun, "apply": begun + 0.5, "Ready": begun + 6.0})
    found.fail("another", "it did not come\nand so on")
    text = latency.render(found)
    assert "| 0.50 | 0.10 | 0.20 | – | 2.20 | 0.00 | 6.00 | 0.00 | **8.50 s** | 9.00 | 8.00 | 9.00 | 2 |" in text
    assert "| 0.50 | – | – | – | – | – | – | 5.50 | **6.00 s** |" in text
    assert "**1.42** by the medians, 1.33 by the least (bar: 1.3)" in text
    assert "another: **not measured to the end**: it did not come\n" in text
