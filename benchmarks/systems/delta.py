"""deltalake-rs: Delta Lake without Spark."""

from __future__ import annotations

from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.places import Root
from benchmarks.systems.table import NAME, PART, READABLE, ROWS, SCHEMA, System, parquet, rows


class Delta(System):
    """``warm``: one DeltaTable object is kept, which knows the log and reads what is new of it."""

    def __init__(self, root: Root, *, warm: bool) -> None:
        self._root = root
        self._url = f"{root.url}/{NAME}"
        self._warm = warm
        self._kept: DeltaTable | None = None

    def build(self, partitions: int) -> None:
        store = self._root.lake().store
        for part in range(READABLE):
            store.put(f"{NAME}/{_path(part)}", parquet(part, with_part=False))
        table = DeltaTable.create(self._url, SCHEMA, partition_by=[PART])
        sizes = [len(parquet(part, with_part=False)) for part in range(READABLE)]
        actions: list[AddAction | RemoveAction] = [
            AddAction(_path(part), sizes[part % READABLE], {PART: str(part)}, 0, True, f'{{"numRecords":{ROWS}}}')
            for part in range(partitions)
        ]
        table.create_write_transaction(actions, "append", SCHEMA, [PART])
        self._open().create_checkpoint()

    def append(self) -> None:
        write_deltalake(self._table(), rows(0), mode="append")

    def plan(self, part: int) -> int:
        return len(self._table().file_uris(file_pruning_predicate=[(PART, "=", part)]))

    def read(self, part: int) -> int:
        return self._table().to_pyarrow_table(filters=[(PART, "=", part)]).num_rows

    def _table(self) -> DeltaTable:
        if self._warm:
            self._kept = self._kept or self._open()
            return self._kept
        return self._open()

    def _open(self) -> DeltaTable:
        return DeltaTable(self._url)


def _path(part: int) -> str:
    return f"{PART}={part}/{part:032x}.parquet"
