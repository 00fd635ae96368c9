"""Kubothek: the Python door, with the dataset opened anew each time, and with one handle kept."""

from __future__ import annotations

from benchmarks.places import Root
from benchmarks.systems.table import NAME, PART, READABLE, ROWS, SCHEMA, System, parquet, rows
from kubothek.catalog import Dataset
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction


def commit_partitions(store: Store, uuid: str, partitions: int) -> None:
    """One commit that names a file for each partition."""
    files = []
    for part in range(partitions):
        label = f"{PART}={part}/{part:032x}"
        key, data = f"{uuid}/table/{label}.parquet", parquet(0, with_part=False)
        if part < READABLE:
            store.put(key, parquet(part, with_part=False))
        files.append(PartitionFile(label, key, ROWS, len(data)))
    started = DatasetLog(store, uuid).begin("build", "build")
    assert isinstance(started, Transaction)
    started.commit(
        Change(operation=Operation.CREATE, added=tuple(files), schema=SCHEMA, partition_keys=(PART,)),
    )


class Kubothek(System):
    """``warm``: one Dataset object serves every call, as in a process that commits again and again."""

    def __init__(self, root: Root, *, warm: bool) -> None:
        self._root = root
        self._warm = warm
        self._kept: Dataset | None = None

    def build(self, partitions: int) -> None:
        commit_partitions(self._root.lake().store, NAME, partitions)

    def append(self) -> None:
        self._dataset().append(rows(0))

    def plan(self, part: int) -> int:
        return len(self._dataset().plan(_where(part)).files)

    def read(self, part: int) -> int:
        return self._dataset().scan(where=_where(part)).read_all().num_rows

    def _dataset(self) -> Dataset:
        if self._warm and self._kept:
            return self._kept
        self._kept = self._root.lake().dataset(NAME)
        return self._kept


def _where(part: int) -> str:
    return f"{PART} = {part}"
