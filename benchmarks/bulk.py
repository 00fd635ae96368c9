"""Committing many rows from Parquet files, beside Spark's own write, Delta Lake in Spark and deltalake-rs.

All read the same files and write Zstandard-compressed Parquet, deltalake-rs its default, Snappy (``benchmarks shapes``
has it with Zstandard): by (year, month), and Spark's writers also without partitions. Kubothek also keeps two indices,
checks every row against the schema, hashes each file and commits; Delta collects statistics and commits; Spark's own
write has no transaction. What a user's session writes runs in Spark as it comes, in processes of its own: a job's
session of ours is set up to start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from benchmarks.commits import INDEXED, PARTITION_ON, SourceFiles, Write, commit
from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.sparks import SparkProcess, delta_spark, plain_spark
from kubothek.cores import available_cores
from kubothek.ingest import Ingest, SourceReader, ingest_here
from kubothek.spark.session import running
from kubothek.spark.write import write_with_spark
from kubothek.storage import Store
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gatherer

BY_ROWS = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
"""As docs/spark.md advises: Spark does not add up the bytes of a batch at every row."""
FILES = 8
_YEARS = 10
_CUSTOMERS = 100_000


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """Tables of our ways to commit, then of DataFrame writes.

    Spark's other writes are there on a file system only: its S3 jars are in the images, not in the wheel.
    """
    source = place.root("source")
    make_source(source, rows)
    # The first round warms up Java's compiler, which is Spark's business and ours alike.
    measured = partial(compare, rounds=rounds, seconds=seconds, cpu=cpu_of_all)
    with ExitStack() as stack:
        session = stack.enter_context(running({"spark.master": "local[*]"}))
        cases = [
            Case("kubothek, with Spark", partial(ours, source, place, "spark", partial(with_spark, session))),
            Case("kubothek, one process", partial(ours, source, place, "here", here)),
            Case("floor: pyarrow.write_dataset", partial(by_hand, source, place)),
            Case("deltalake-rs", partial(delta, source, place)),
        ]
        if place.endpoint is None:
            plain = stack.enter_context(plain_spark())
            own = partial(in_spark, plain, "write_parquet", source, place, PARTITION_ON)
            cases.append(Case("Spark: write.partitionBy.parquet", own))
        yield measured(f"bulk commit of {rows:,} rows, 2 indices, {place.name}", cases)
    if place.endpoint is None:
        yield from data_frames(source, place, rows, measured)


def data_frames(source: Root, place: Place, rows: int, measured: Callable[[str, list[Case]], Table]) -> Iterator[Table]:
    """Tables of what a user's session writes, with and without partitions (bar: 1.2 × Spark's own)."""
    with plain_spark() as plain, delta_spark() as deltas:
        for kind, partition_on in (("by year and month", PARTITION_ON), ("without partitions", ())):
            given = source, place, partition_on
            cases = [
                Case("Spark: write.parquet", partial(in_spark, plain, "write_parquet", *given)),
                Case("kubothek, batches by rows", partial(data_frame, plain, *given, BY_ROWS)),
                Case("kubothek, Spark as it comes", partial(data_frame, plain, *given, {})),
                Case("Delta-Spark", partial(in_spark, deltas, "write_delta", *given)),
            ]
            yield measured(f"DataFrame write of {rows:,} rows {kind}, ours with 2 indices, {place.name}", cases)


def make_source(source: Root, rows: int) -> None:
    """Parquet files of rows in no order: each has rows of every partition."""
    random = np.random.default_rng(1)
    store = source.lake().store
    for number in range(FILES):
        size = rows // FILES + (number < rows % FILES)
        columns: dict[str, Any] = {
            "year": random.integers(2015, 2015 + _YEARS, size),
            "month": random.integers(1, 13, size),
            "carrier": pa.array([f"C{n:02d}" for n in range(20)]).take(random.integers(0, 20, size)),
            "customer": random.integers(0, _CUSTOMERS, size),
            "amount": random.normal(100, 30, size).round(2),
            "distance": random.integers(0, 5000, size),
        }
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        store.put(_file(number), memoryview(sink.getvalue()))


def _file(number: int) -> str:
    return f"source/{number}.parquet"


_numbers = count()


def ours(source: Root, place: Place, name: str, write: Write) -> None:
    """What a Commit does after its checks, in a session that has started."""
    commit(place.root(f"{name}-{next(_numbers)}"), files_of(source), write)


def files_of(source: Root) -> SourceFiles:
    """What :func:`make_source` wrote."""
    return SourceFiles(source, tuple(map(_file, range(FILES))))


def with_spark(
    session: SparkSession, store: Store, ingest: Ingest, reader: SourceReader, gatherer: Gatherer
) -> list[PartitionFile]:
    """Above ``Engine.spec.sparkFrom``."""
    return write_with_spark(session, ingest, reader, lambda done, tasks, rows: None, gatherer)


def here(store: Store, ingest: Ingest, reader: SourceReader, gatherer: Gatherer) -> list[PartitionFile]:
    """Below it."""
    return ingest_here(ingest, reader, store, lambda done, rows: None, gatherer, cores=available_cores())


def in_spark(spark: SparkProcess, verb: str, source: Root, place: Place, partition_on: Sequence[str]) -> None:
    """Run a writer that takes a directory: ``write_parquet`` or ``write_delta``."""
    target = place.root(f"in-spark-{next(_numbers)}")
    spark.ask(verb, f"file:{source.scratch}/source", f"file:{target.scratch}/table", partition_on)


def data_frame(
    spark: SparkProcess, source: Root, place: Place, partition_on: Sequence[str], settings: Mapping[str, str]
) -> None:
    """Spark reads, and its tasks write into a dataset with the two indices, in one commit."""
    lake = place.root(f"frame-{next(_numbers)}").lake()
    lake.create_dataset("bulk", partition_on, indices=INDEXED)
    spark.ask("write_kubothek", f"file:{source.scratch}/source", lake.store.url, "bulk", settings)


def by_hand(source: Root, place: Place) -> None:
    """No transaction either, and all cores."""
    target = place.root(f"by-hand-{next(_numbers)}")
    form: Any = ds.ParquetFileFormat()
    ds.write_dataset(
        files_of(source).dataset(),
        target.url.removeprefix("file://") if target.endpoint is None else target.url.removeprefix("s3://"),
        format=form,
        filesystem=target.arrow(),
        file_options=form.make_write_options(compression="zstd"),
        partitioning=ds.partitioning(pa.schema([(name, pa.int64()) for name in PARTITION_ON]), flavor="hive"),
    )


def delta(source: Root, place: Place) -> None:
    """A transaction, no indices."""
    target = place.root(f"delta-{next(_numbers)}")
    rows = files_of(source).dataset().scanner().to_reader()
    write_deltalake(f"{target.url}/bulk", rows, partition_by=list(PARTITION_ON))
