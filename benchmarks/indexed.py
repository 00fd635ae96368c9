"""A secondary index: finding one row by it, and what a commit pays to keep it.

The column is indexed and not clustered: each file holds values from the whole range.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from plateau.io.eager import read_table, update_dataset_from_dataframes

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.systems.plateau import store_of
from benchmarks.systems.table import PART, READABLE, ROWS, SCHEMA, rows
from kubothek.catalog import Dataset
from kubothek.storage import Store
from kubothek.table.indexes import IndexChange, IndexCollector, IndexKind
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction
from kubothek.table.log.model import keys

UUID = "bench"
VALUES_A_FILE = 100


def run(place: Place, files: int, *, rounds: int, seconds: float) -> Iterator[Table]:
    """Look up another value each time, among those in files that exist, then commit new ones."""
    native, kartothek, theirs = place.root("native"), place.root("kartothek"), place.root("plateau")
    build(native, files, IndexKind.NATIVE)
    build(kartothek, files, IndexKind.KARTOTHEK)
    build(theirs, files, IndexKind.KARTOTHEK)
    cases: dict[str, Callable[[int], int]] = {
        "reference: orjson + pyarrow, native index file": partial(by_hand, native.lake().store, native=True),
        "kubothek, native index, warm": partial(ours, native.lake().dataset(UUID)),
        "kubothek, native index, cold": lambda value: ours(native.lake().dataset(UUID), value),
        "reference: orjson + pyarrow, Kartothek's index file": partial(by_hand, kartothek.lake().store, native=False),
        "kubothek, Kartothek's index, warm": partial(ours, kartothek.lake().dataset(UUID)),
        "plateau": partial(plateau, store_of(theirs)),
    }
    title = f"look up one of {files * VALUES_A_FILE:,} values in {files:,} files, {place.name}"
    yield compare(title, [_case(name, find, files) for name, find in cases.items()], rounds=rounds, seconds=seconds)
    commits = [
        Case("kubothek, native index, warm", partial(native.lake().dataset(UUID).append, rows(0))),
        Case("kubothek, Kartothek's index, warm", partial(kartothek.lake().dataset(UUID).append, rows(0))),
        Case("plateau", partial(plateaus_commit, store_of(theirs))),
    ]
    title = f"commit {ROWS:,} rows to a table with an index of {files * VALUES_A_FILE:,} values, {place.name}"
    yield compare(title, commits, rounds=rounds, seconds=seconds)


def _case(name: str, find: Callable[[int], int], files: int) -> Case:
    """A step of the case looks up the next value."""
    numbers = count()

    def step() -> None:
        number = next(numbers)
        value = values(number % READABLE, files)[number // READABLE % VALUES_A_FILE]
        if (found := find(value)) != 1:
            raise RuntimeError(f"{name}: {found} rows instead of one")

    return Case(name, step)


def values(file: int, files: int) -> list[int]:
    """The values in a file."""
    return list(range(file, files * VALUES_A_FILE, files))


def ours(dataset: Dataset, value: int) -> int:
    """Through the planner."""
    return dataset.scan(where=f"id = {value}").read_all().num_rows


def plateau(store: Callable[[], object], value: int) -> int:
    """Through plateau's planner."""
    return len(read_table(UUID, store, predicates=[[("id", "==", value)]]))


def plateaus_commit(store: Callable[[], object]) -> None:
    """With the index kept."""
    update_dataset_from_dataframes(
        [rows(0).to_pandas()], store=store, dataset_uuid=UUID, partition_on=[PART], secondary_indices=["id"]
    )


def by_hand(store: Store, value: int, *, native: bool) -> int:
    """What there is to do at least: the head, the index file, the data file."""
    head = orjson.loads(store.get(keys.head(UUID)))
    if native:
        (index,) = read_manifest(store, head["metadata"]["kubothek_index"]["id"]).files
        key, column, label = index.key, "value", "label"
    else:
        key, column, label = head["indices"]["id"], "id", "partition"
    with store.open(key) as source:
        found = pq.read_table(pa.PythonFile(source, mode="r"), columns=[label], filters=pc.field(column) == value)
    labels: list[Any] = found.column(label).to_pylist()
    names = labels if native else labels[0]
    data = [store.get(head["partitions"][name]["files"]["table"]) for name in names]
    return sum(pq.read_table(io.BytesIO(file), filters=pc.field("id") == value).num_rows for file in data)


def build(root: Root, files: int, kind: IndexKind) -> None:
    """A table of one file in each partition, of which only the first few exist, and its index."""
    store = root.lake().store
    collector = IndexCollector(store, UUID, {"id": pa.int64()})
    added = []
    for part in range(files):
        ids = pa.array(values(part, files), pa.int64())
        batch = pa.RecordBatch.from_arrays([ids.cast(pa.float64()), ids], names=["amount", "id"])
        label = f"{PART}={part}/{part:032x}"
        key = f"{UUID}/table/{label}.parquet"
        collector.observe(label, [batch])
        if part < READABLE:
            sink = io.BytesIO()
            pq.write_table(pa.Table.from_batches([batch]), sink)
            store.put(key, sink.getvalue())
        added.append(PartitionFile(label, key, VALUES_A_FILE, 1))
    started = DatasetLog(store, UUID).begin("build", "build")
    assert isinstance(started, Transaction), "the store is empty"
    started.commit(
        Change(
            operation=Operation.CREATE,
            added=tuple(added),
            schema=SCHEMA,
            partition_keys=(PART,),
            index=IndexChange(collected=collector.finish(), wanted={"id": kind}),
        )
    )
