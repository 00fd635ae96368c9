"""The benchmarks of bulk commits: every system writes every shape, and stages run on what a commit had."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import kubothek
from benchmarks import bulk, bulk_memory, libraries, shapes, stages
from benchmarks.commits import begun
from benchmarks.harness import Series, Table
from benchmarks.places import place
from benchmarks.systems.writers import DIRECTORY, WRITERS

pytestmark = pytest.mark.slow

_ROWS = 600


def cells(rendered: str) -> list[list[str]]:
    """The rows of a rendered table, without its head."""
    lines = [line for line in rendered.splitlines() if line.startswith("| ")]
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[1:]]


def parquet_rows(path: Path) -> int:
    return ds.dataset(path, format="parquet").count_rows()


def delta_rows(path: Path) -> int:
    return DeltaTable(str(path)).to_pyarrow_table().num_rows


def our_rows(path: Path) -> int:
    return kubothek.open(path.as_uri()).dataset("bulk").rows


COUNTS: dict[str, tuple[str, Callable[[Path], int]]] = {
    "ours-*": ("", our_rows),
    "delta-*": (DIRECTORY, delta_rows),
    "iceberg-*": (f"{DIRECTORY}/data", parquet_rows),
    "duck-*": (DIRECTORY, parquet_rows),
    "arrow-*": (DIRECTORY, parquet_rows),
}


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda shape: shape.name)
def test_benchmark_shape_is_written_whole_by_every_system(shape: shapes.Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_WIDE", 12)
    monkeypatch.setattr(shapes, "SHAPES", [replace(shape, partitions=min(shape.partitions, 5))])
    with place("fs") as where:
        table, summary = shapes.run(where, _ROWS, rounds=1, seconds=5)
        rows = {
            name: {count(path / directory) for path in where.scratch.glob(name)}
            for name, (directory, count) in COUNTS.items()
        }
    assert rows == {name: {_ROWS // shape.share} for name in COUNTS}
    assert isinstance(table, Table)
    assert [series.name for series in table.series] == [shapes.OURS, *WRITERS]
    ((name, _, *found),) = cells(summary.render())
    assert name == shape.name
    assert ["×" in cell for cell in found] == [False, True, True, True, True]


def test_benchmark_shape_sorted_source_has_each_partition_in_few_files() -> None:
    by_name = {shape.name: shape for shape in shapes.SHAPES}
    files = {}
    with place("fs") as where:
        for number, name in enumerate(("unsorted", "sorted by partition", "CSV.gz")):
            source = shapes.make_source(where.root(f"{number}"), by_name[name], 24_000)
            single = [replace(source, names=(each,)).dataset().to_table() for each in source.names]
            files[name] = [rows.group_by(["year", "month"]).aggregate([]).num_rows for rows in single]
    assert min(files["unsorted"]) == min(files["CSV.gz"]) == 120
    assert max(files["sorted by partition"]) <= 17


@pytest.mark.spark
def test_benchmark_stages_run_on_rows_and_files_of_commit(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "running", lambda _conf: nullcontext(spark))
    monkeypatch.setattr(bulk, "_YEARS", 1)
    monkeypatch.setattr(libraries, "which", lambda _name: None)
    with place("fs") as where:
        here, in_tasks, floors, whole, by_library = stages.run(where, 4_000, rounds=1)
    assert all(isinstance(table, stages.Stages) for table in (here, in_tasks, floors, whole))
    assert [len(cells(table.render())) for table in (here, in_tasks, floors, whole)] == [14, 4, 6, 7]
    megabytes = {name: size for table in (here, in_tasks) for name, _, _, size in getattr(table, "lines", ())}
    assert megabytes["read and validate"] == megabytes["read tasks"]
    assert megabytes["hash"] == megabytes["sync"]
    assert [row[1] for row in cells(by_library.render())] == ["perf does not run here"] * 2


def test_benchmark_stage_time_excludes_contained_stage() -> None:
    whole, part = Series("both", [3.0, 2.5], [2.0, 2.0]), Series("part", [1.0, 1.5], [0.5, 1.0])
    both = stages.Stage("both", lambda: None, 30.0, less="part")
    line = stages.line_of(both, {"both": whole, "part": part})
    assert cells(stages.Stages("", 0.0, [line]).render()) == [["both", "1.50 s", "1.50 s", "30", "20", "20"]]


def test_benchmark_recorded_row_groups_have_all_rows() -> None:
    with place("fs") as where:
        source = where.root("source")
        bulk.make_source(source, 4_000)
        with begun(where.root("target"), bulk.files_of(source)) as started:
            recorded = stages.Recorded.of(started)
    assert sum(batch.num_rows for _, batches in recorded.row_groups for batch in batches) == 4_000
    assert [file.bytes for file in recorded.files] == [content.size for content in recorded.contents]


def test_benchmark_peaks_of_commits_are_measured_in_fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_memory, "_TIMES", (2,))
    with place("fs") as where:
        found = bulk_memory.run(where, 1_000)
        counts = [our_rows(path) for path in where.scratch.glob("target-*") if (path / "bulk").is_dir()]
    assert counts == [2_000]
    assert list(found.peaks) == [(2_000, bulk_memory.OURS), (2_000, "deltalake-rs")]
    assert all(10 < start <= after < 2000 for start, after in found.peaks.values())


def test_benchmark_peaks_have_ratio_to_fewest_rows() -> None:
    found = bulk_memory.Peaks("", {(10, "ours"): (90.0, 100.0), (100, "ours"): (90.0, 1250.0)})
    assert cells(found.render()) == [
        ["10", "ours", "90 MiB", "100 MiB", "1.0"],
        ["100", "ours", "90 MiB", "1,250 MiB", "12.5"],
    ]


REPORT = """# Samples  Shared Object
#
  499;libarrow.so.2600
 998;_internal.abi3.so
  249;[kernel.kallsyms]
  250;[vdso]
  499;libarrow_dataset.so.2600

"""


def test_benchmark_perf_report_is_summed_by_library() -> None:
    found = libraries.seconds_of(REPORT)
    assert found == {
        "deltalake (Rust)": 2.0,
        "Arrow": 2.0,
        libraries.OTHERS: 250 / 499,
        "kernel: page faults, files": 249 / 499,
    }


def test_benchmark_without_perf_has_no_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worked: list[int] = []
    monkeypatch.setattr(libraries, "which", lambda _name: None)
    assert libraries.cpu_by_library(lambda: worked.append(1)) is None
    failing = tmp_path / "perf"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(libraries, "which", lambda _name: os.fspath(failing))
    assert libraries.cpu_by_library(lambda: worked.append(1)) is None
    assert worked == []
