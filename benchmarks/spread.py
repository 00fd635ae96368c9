"""A ledger's ingest of many rows from files with Spark, beside that of one process and a table's commit of the same.

All read the same Parquet files and keep two indices. The ledger writes the rows twice, as slices and as files of its
table, and its slices follow each other in the order of event times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count

from pyspark.sql import SparkSession

from benchmarks import bulk
from benchmarks.commits import INDEXED, PARTITION_ON
from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from kubothek.odf.dataset import Table as View
from kubothek.odf.dataset import create
from kubothek.odf.distributed import StoredFile
from kubothek.odf.ingest import push_files
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepParquet
from kubothek.spark.ledger import RowsWithSpark
from kubothek.spark.session import running
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog

_SOURCE = AddPushSource(source_name="default", read=ReadStepParquet(), merge=MergeStrategyAppend())
_numbers = count()


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """One table."""
    source = place.root("source")
    bulk.make_source(source, rows)
    with running({"spark.master": "local[*]"}) as session:
        cases = [
            Case("table, with Spark", partial(bulk.ours, source, place, "table", partial(bulk.with_spark, session))),
            Case("ledger, with Spark", partial(pushed, source, place, session)),
            Case("ledger, one process", partial(pushed, source, place, None)),
        ]
        title = f"ingest of {rows:,} rows, 2 indices, {place.name}"
        yield compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


def pushed(source: Root, place: Place, session: SparkSession | None) -> None:
    """Create a ledger and push the files."""
    inbox, store = source.lake().store, place.root(f"ledger-{next(_numbers)}").lake().store
    files = [StoredFile(info.key, inbox.config, info) for info in inbox.list("source/")]
    snapshot = DatasetSnapshot(name="bulk", kind=DatasetKind.ROOT, metadata=(_SOURCE,))
    view = View(layout=Layout(partition_on=PARTITION_ON), indices=dict.fromkeys(INDEXED, IndexKind.NATIVE))
    root = create(store, DatasetLog(store, "bulk"), snapshot, OwnerKey.new(), table=view)
    if session is None:
        push_files(root, [file.content() for file in files])
        return
    rows = RowsWithSpark(
        session=lambda: nullcontext(session),
        files=files,
        step=_SOURCE.read,
        preprocess=None,
        report=lambda done, tasks, rows: None,
    )
    root.push(rows)
