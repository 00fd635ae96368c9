"""Committing many rows from Parquet files into a partitioned table, beside Spark's own partitioned write.

All read the same files and write Zstandard-compressed Parquet, by (year, month). Kubothek also keeps two indices,
checks every row against the schema and commits; Spark's write has no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.sparks import cpu_of_all
from kubothek.ingest import Ingest, SourceReader, decide_schemas, ingest_here
from kubothek.ingest.model import Format, Source
from kubothek.spark.session import running
from kubothek.spark.write import write_with_spark
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog, PartitionFile, Transaction
from kubothek.table.operations import Written, append
from kubothek.table.operations.written import Gatherer, Gathering

PARTITION_ON = ("year", "month")
INDEXED = ("carrier", "customer")
_FILES = 8
_YEARS = 10
_CUSTOMERS = 100_000

Write = Callable[[Store, Ingest, SourceReader, Gatherer], list[PartitionFile]]


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """One table. Spark's rows are there on a file system only: its S3 jars are in the images, not in the wheel."""
    source = place.root("source")
    make_source(source, rows)
    with running({"spark.master": "local[*]"} | SPARKS_OWN) as session:
        cases = [
            Case("kubothek, with Spark", partial(ours, source, place, "spark", partial(with_spark, session))),
            Case("kubothek, one process", partial(ours, source, place, "here", here)),
            Case("floor: pyarrow.write_dataset", partial(by_hand, source, place)),
            Case("deltalake-rs", partial(delta, source, place)),
        ]
        if place.endpoint is None:
            cases.append(Case("spark: write.partitionBy.parquet", partial(sparks_own, session, source, place)))
            cases.append(Case("kubothek, DataFrame write", partial(data_frame, session, source, place)))
        title = f"bulk commit of {rows:,} rows, 2 indices, {place.name}"
        # The first round warms up Java's compiler, which is Spark's business and ours alike.
        yield compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


SPARKS_OWN = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Our sessions do without code generation, as fat rows gain nothing by it; Spark's own write does."""


def make_source(source: Root, rows: int) -> None:
    """Parquet files of rows in no order: each has rows of every partition."""
    random = np.random.default_rng(1)
    store = source.lake().store
    for number in range(_FILES):
        size = rows // _FILES + (number < rows % _FILES)
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
    store = place.root(f"{name}-{next(_numbers)}").lake().store
    layout = Layout(partition_on=PARTITION_ON)
    files = Source(Format.PARQUET, source.lake().store.config, paths=tuple(map(_file, range(_FILES))))
    started = DatasetLog(store, "bulk").begin("bulk", "bulk")
    assert isinstance(started, Transaction), "the store is empty"
    with SourceReader(files) as reader:
        plan = reader.plan()
        reading, stored = decide_schemas(
            declared=None,
            table=None,
            contract=None,
            partition_on=PARTITION_ON,
            infer=partial(reader.infer_schema, plan),
        )
        ingest = Ingest(
            source=files,
            plan=plan,
            reading=reading,
            store=store.config,
            uuid="bulk",
            table="table",
            stored=stored,
            layout=layout,
            gathering=Gathering(INDEXED),
        )
        gatherer = ingest.gatherer(store)
        written = write(store, ingest, reader, gatherer)
    started.commit(
        append(
            Written(
                tuple(written),
                stored,
                PARTITION_ON,
                layout.to_json(),
                gathered=gatherer.finish(),
                wanted=dict.fromkeys(INDEXED, IndexKind.NATIVE),
            )
        )
    )


def with_spark(
    session: SparkSession, store: Store, ingest: Ingest, reader: SourceReader, gatherer: Gatherer
) -> list[PartitionFile]:
    """Above ``Engine.spec.sparkFrom``."""
    return write_with_spark(session, ingest, reader, lambda done, tasks, rows: None, gatherer)


def here(store: Store, ingest: Ingest, reader: SourceReader, gatherer: Gatherer) -> list[PartitionFile]:
    """Below it."""
    return ingest_here(ingest, reader, store, lambda done, rows: None, gatherer)


def sparks_own(session: SparkSession, source: Root, place: Place) -> None:
    """No transaction, no indices, no schema check."""
    target = place.root(f"sparks-own-{next(_numbers)}")
    frame = session.read.parquet(f"file:{source.scratch}/source")
    frame.write.partitionBy(*PARTITION_ON).option("compression", "zstd").parquet(f"file:{target.scratch}/table")


def data_frame(session: SparkSession, source: Root, place: Place) -> None:
    """Spark reads, and its tasks write into a dataset with the two indices, in one commit."""
    lake = place.root(f"frame-{next(_numbers)}").lake()
    lake.create_dataset("bulk", PARTITION_ON, indices=INDEXED)
    frame = session.read.parquet(f"file:{source.scratch}/source")
    frame.write.format("kubothek").mode("append").options(path=lake.store.url, uuid="bulk").save()


def by_hand(source: Root, place: Place) -> None:
    """No transaction either, and all cores."""
    target = place.root(f"by-hand-{next(_numbers)}")
    form: Any = ds.ParquetFileFormat()
    ds.write_dataset(
        _rows(source),
        target.url.removeprefix("file://") if target.endpoint is None else target.url.removeprefix("s3://"),
        format=form,
        filesystem=target.arrow(),
        file_options=form.make_write_options(compression="zstd"),
        partitioning=ds.partitioning(pa.schema([(name, pa.int64()) for name in PARTITION_ON]), flavor="hive"),
    )


def delta(source: Root, place: Place) -> None:
    """A transaction, no indices."""
    target = place.root(f"delta-{next(_numbers)}")
    write_deltalake(f"{target.url}/bulk", _rows(source).scanner().to_reader(), partition_by=list(PARTITION_ON))


def _rows(source: Root) -> ds.Dataset:
    root = source.url.removeprefix("file://").removeprefix("s3://")
    return ds.dataset(f"{root}/source", filesystem=source.arrow(), format="parquet")
