"""A small table for tests of commits: real Parquet files, written and read without the table layer."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Change, Claim, Committed, DatasetLog, Operation, PartitionFile, Snapshot, Transaction

UUID = "flights"
SCHEMA = pa.schema([("x", pa.int64())])
CLAIM = Claim("cluster/ns/flights", "incarnation-1", adopts=True)


def write(store: Store, label: str, values: Sequence[int] = (1,), uuid: str = UUID) -> PartitionFile:
    """A data file under its label; ``p=1/a`` lies in the directory of partition ``p=1``."""
    data = parquet(tuple(values))
    key = f"{uuid}/table/{label}.parquet"
    store.put(key, data)
    return PartitionFile(label, key, len(values), len(data))


@cache
def parquet(values: tuple[int, ...]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), sink)
    return sink.getvalue()


def started(log: DatasetLog, commit_id: str, digest: str = "d") -> Transaction:
    """A transaction that must not have happened before."""
    transaction = log.begin(commit_id, digest)
    assert isinstance(transaction, Transaction), transaction
    return transaction


def appending(*files: PartitionFile, by: str = "") -> Change:
    return Change(operation=Operation.APPEND, added=files, schema=SCHEMA, by=by)


def append(log: DatasetLog, store: Store, commit_id: str, values: Sequence[int] = (1,)) -> Committed:
    """Append one file, named by the commit, as a whole attempt of a job would."""
    transaction = started(log, commit_id)
    file = write(store, f"{commit_id}-{id(transaction):x}", values, log.uuid)
    transaction.note_written(file.key)
    return transaction.commit(appending(file))


def values_of(store: Store, snapshot: Snapshot) -> list[int]:
    """All values of the table, in the order in which readers meet them."""
    return [value for key in snapshot.head.files().values() for value in values_in(store.get(key))]


@cache
def values_in(parquet: bytes) -> list[int]:
    return [int(value) for value in pq.read_table(io.BytesIO(parquet)).column("x").to_numpy()]


def present(store: Store, uuid: str = UUID) -> list[int]:
    """All values of the present version."""
    return values_of(store, DatasetLog(store, uuid).snapshot())


def operations(log: DatasetLog) -> list[str]:
    """What history shows, oldest first."""
    return [str(record.operation) for record in log.history()][::-1]


def ids(log: DatasetLog) -> list[str]:
    """The ids in history, oldest first."""
    return [record.id for record in log.history()][::-1]


def append_many(config: StoreConfig, writer: int, count: int) -> int:
    """What one of many concurrent processes does: appends ``count`` times; returns how often it was rebased."""
    store = open_store(config)
    log = DatasetLog(store, UUID, claim=CLAIM)
    return sum(append(log, store, f"{writer}-{n}", [writer * 1000 + n]).rebased for n in range(count))


def replays(config: StoreConfig, commit_ids: Sequence[str]) -> Iterator[object]:
    """Begins each commit once more."""
    log = DatasetLog(open_store(config), UUID, claim=CLAIM)
    with ThreadPoolExecutor(4) as pool:
        yield from pool.map(lambda commit_id: log.begin(commit_id, "d"), commit_ids)


def keys_below(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]
