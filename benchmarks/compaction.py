"""Many small files into eight, beside deltalake's optimize and the least that pyarrow can do.

All start from the same files, in eight partitions. Kubothek reads what it wrote again, and proves that no row changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.sparks import started
from kubothek.spark.compact import compact_with_spark
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction
from kubothek.table.maintenance import CompactionRequest, compact

NAME: Final = "bench"
_PARTITIONS: Final = 8
_numbers = count()


def run(place: Place, files: int, *, rows: int = 500, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """One table: ``files`` of ``rows`` rows each."""
    contents = [_parquet(number, rows) for number in range(files)]
    roots: dict[str, Root] = {}
    build_ours, build_delta, build_floor = (
        partial(build, roots, place, contents, rows) for build in (_build_ours, _build_delta, _build_floor)
    )
    cases = [
        Case("kubothek", lambda: ours(roots["ours"]), build_ours),
        Case("deltalake-rs optimize", lambda: delta(roots["delta"]), build_delta),
        Case("floor: pyarrow read + write", lambda: floor(roots["floor"]), build_floor),
    ]
    title = f"compact {files:,} files of {rows:,} rows, 20 columns, into {_PARTITIONS}, {place.name}"
    with started() as (session, start):
        cases.insert(1, Case("kubothek, with Spark", lambda: with_spark(roots["ours"], session), build_ours))
        table = compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)
        yield Table(table.title, [*table.series, start], table.load)


def ours(root: Root) -> int:
    """Plan, rewrite, prove, commit; the number of files that came of it."""
    return root.lake().dataset(NAME).compact().added.files


def with_spark(root: Root, session: SparkSession) -> int:
    """The same in Spark's workers."""
    store = root.lake().store
    compactor = compact_with_spark(session)
    return compact(
        store, DatasetLog(store, NAME), CompactionRequest(), commit_id="compact", digest="", compactor=compactor
    ).added.files


def delta(root: Root) -> int:
    """The same without a proof."""
    return int(DeltaTable(f"{root.url}/{NAME}").optimize.compact()["numFilesAdded"])


def floor(root: Root) -> int:
    """Read each partition and write it, without a commit."""
    base = f"{root.url.removeprefix('file://').removeprefix('s3://')}/{NAME}/table"
    for part in range(_PARTITIONS):
        rows = ds.dataset(f"{base}/part={part}", filesystem=root.arrow(), format="parquet").to_table()
        with root.arrow().open_output_stream(f"{base}/part={part}/floor") as sink:
            pq.write_table(rows, sink, compression="zstd")
        root.arrow().delete_file(f"{base}/part={part}/floor")
    return _PARTITIONS


def _build_ours(roots: dict[str, Root], place: Place, contents: list[bytes], rows: int) -> None:
    root = roots["ours"] = place.root(f"ours-{next(_numbers)}")
    store, files = root.lake().store, []
    for number, data in enumerate(contents):
        label = _label(number)
        key = f"{NAME}/table/{label}.parquet"
        store.put(key, data)
        files.append(PartitionFile(label, key, rows, len(data)))
    started = DatasetLog(store, NAME).begin("build", "build")
    assert isinstance(started, Transaction)
    schema = pa.schema([("part", pa.int64()), *_rows(0, 1).schema])
    started.commit(Change(operation=Operation.CREATE, added=tuple(files), schema=schema, partition_keys=("part",)))


def _build_floor(roots: dict[str, Root], place: Place, contents: list[bytes], rows: int) -> None:
    if "floor" not in roots:
        _build_ours(roots, place, contents, rows)
        roots["floor"] = roots["ours"]


def _build_delta(roots: dict[str, Root], place: Place, contents: list[bytes], rows: int) -> None:
    root = roots["delta"] = place.root(f"delta-{next(_numbers)}")
    store = root.lake().store
    schema = pa.schema([("part", pa.int64()), *_rows(0, 1).schema])
    table = DeltaTable.create(f"{root.url}/{NAME}", schema, partition_by=["part"])
    actions: list[AddAction | RemoveAction] = []
    for number, data in enumerate(contents):
        path = f"{_label(number)}.parquet"
        store.put(f"{NAME}/{path}", data)
        part = str(number % _PARTITIONS)
        actions.append(AddAction(path, len(data), {"part": part}, 0, True, f'{{"numRecords":{rows}}}'))
    table.create_write_transaction(actions, "append", schema, ["part"])


def _label(number: int) -> str:
    return f"part={number % _PARTITIONS}/{number:032x}"


@cache
def _parquet(number: int, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(_rows(number, rows), sink, compression="zstd", version="2.4")
    return sink.getvalue().to_pybytes()


def _rows(number: int, rows: int) -> pa.Table:
    """An id, eight numbers with two decimals, four texts and six integers."""
    random = np.random.default_rng(number)
    columns: dict[str, Any] = {"id": np.arange(number * rows, (number + 1) * rows)}
    columns |= {f"f{n}": random.normal(100, 30, rows).round(2) for n in range(8)}
    columns |= {f"s{n}": pa.array([f"C{value:03d}" for value in random.integers(0, 500, rows)]) for n in range(4)}
    columns |= {f"i{n}": random.integers(0, 5000, rows) for n in range(6)}
    return pa.table(columns)
