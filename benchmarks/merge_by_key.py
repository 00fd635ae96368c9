"""Upserts of 10,000 rows by key, beside the merges of deltalake-rs and of Delta Lake in Spark.

The keys are in a tenth of the files, or over all. The tables have the same rows in as many files, without partitions
and indices. Nine of ten rows are updates, and are in memory before. Each round starts from the same version: all
systems roll back before it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.sparks import SparkProcess, delta_spark
from kubothek.catalog import Dataset

NAME: Final = "bench"
SOURCE: Final = 10_000
FILES: Final = 100


def run(place: Place, rows: int, *, rounds: int = 5, seconds: float = 300) -> Iterator[Table]:
    """Tables for both kinds of keys, in a table of ``rows`` rows. Spark is there on a file system only."""
    root = place.root("merge")
    ours, delta = _build(root, rows)
    random = np.random.default_rng(7)
    some = np.arange(rows // FILES * 40, rows // FILES * 50)
    with ExitStack() as stack:
        spark = stack.enter_context(delta_spark()) if place.endpoint is None else None
        for title, among in (("a tenth of the files", some), ("all files", np.arange(rows))):
            known = random.choice(among, SOURCE * 9 // 10, replace=False)
            source = _rows(np.concatenate([known, np.arange(rows, rows + SOURCE // 10)]), 1)
            cases = [
                Case("kubothek", partial(ours.upsert, source, key="id"), lambda: ours.rollback("start")),
                Case("deltalake-rs", partial(_merge, delta, source), lambda: _restore(delta)),
            ]
            if spark is not None:
                cases.append(_in_spark(spark, root, source))
            title = f"upsert {SOURCE:,} rows into {rows:,}, keys in {title}, {place.name}"
            yield compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


def _in_spark(spark: SparkProcess, root: Root, source: pa.Table) -> Case:
    """Return the merge into a table of the same data files as deltalake-rs's, with a log of its own."""
    target, rows = root.disk / "delta-spark", root.disk / "source.parquet"
    if not target.exists():
        shutil.copytree(root.disk / "delta", target)
    pq.write_table(source, rows)
    spark.ask("keep", str(rows), "source")
    return Case(
        "Delta-Spark",
        partial(spark.ask, "merge_delta", "source", str(target), "id"),
        partial(spark.ask, "restore_delta", str(target), FILES - 1),
    )


def _merge(root: Root, source: pa.Table) -> None:
    merger = DeltaTable(f"{root.url}/delta").merge(
        source, predicate="target.id = source.id", source_alias="source", target_alias="target"
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _restore(root: Root) -> None:
    table = DeltaTable(f"{root.url}/delta")
    if table.version() >= FILES:
        table.restore(FILES - 1)


def _build(root: Root, rows: int) -> tuple[Dataset, Root]:
    """Make both tables, each with :data:`FILES` files of neighbouring keys."""
    dataset = root.lake().create_dataset(NAME)
    for number in range(FILES):
        part = _rows(np.arange(rows // FILES * number, rows // FILES * (number + 1)), 0)
        dataset.append(part)
        write_deltalake(f"{root.url}/delta", part, mode="append")
    dataset.tag("start")
    return dataset, root


def _rows(ids: npt.NDArray[np.int64], seed: int) -> pa.Table:
    """An id, a time, two numbers with two decimals, a count, and two texts, one of them of few values."""
    random, count = np.random.default_rng([seed, int(ids[0])]), len(ids)
    columns: dict[str, Any] = {
        "id": ids,
        "at": pa.array(1_700_000_000_000_000 + ids * 1_000, pa.timestamp("us")),
        "price": np.round(random.random(count) * 1_000, 2),
        "discount": np.round(random.random(count), 2),
        "count": random.integers(0, 100, count),
        "name": np.char.add("name-", random.integers(0, 1_000_000, count).astype(str)),
        "kind": random.choice(["north", "south", "east", "west"], count),
    }
    return pa.table(columns)
