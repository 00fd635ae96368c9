"""The floor: the head as one JSON object and the data file, with orjson and pyarrow and nothing else.

No history, no marker, no schema check, no exactly-once: what every writer of the format has to do at least.
"""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.places import Root
from benchmarks.systems.ours import commit_partitions
from benchmarks.systems.table import NAME, PART, System, rows
from kubothek.table.log.model import keys


class Floor(System):
    """Reads the head, puts one file into it, and swaps it, through the same store as Kubothek."""

    def __init__(self, root: Root) -> None:
        self._store = root.lake().store
        self._appended = 0

    def build(self, partitions: int) -> None:
        commit_partitions(self._store, NAME, partitions)

    def append(self) -> None:
        self._appended += 1
        sink = pa.BufferOutputStream()
        pq.write_table(rows(0).drop_columns([PART]), sink, compression="zstd")
        label = f"{PART}=0/{self._appended:032x}"
        key = f"{NAME}/table/{label}.parquet"
        self._store.put(key, memoryview(sink.getvalue()))
        data, info = self._store.get_with_info(keys.head(NAME))
        head = orjson.loads(data)
        head["partitions"][label] = {"files": {"table": key}}
        self._store.put_if_match(keys.head(NAME), orjson.dumps(head), info.etag)

    def plan(self, part: int) -> int:
        return len(self._keys(part))

    def read(self, part: int) -> int:
        return sum(pq.read_table(pa.BufferReader(self._store.get(key))).num_rows for key in self._keys(part))

    def _keys(self, part: int) -> list[str]:
        partitions = orjson.loads(self._store.get(keys.head(NAME)))["partitions"]
        start = f"{PART}={part}/"
        return [value["files"]["table"] for label, value in partitions.items() if label.startswith(start)]
