"""Writing data files: rows in any order in, target-sized Parquet files per partition out, in bounded memory.

Files are ``<uuid>/<table>/<partition path>/<uuid4 hex>.parquet`` without the partition columns, in stored
types (kartothek-facts 1.4). Nothing here is visible to readers until a commit names the files.
"""

from __future__ import annotations

import uuid as uuids
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.lake.commits import keys
from kubothek.lake.commits.changes import PartitionFile
from kubothek.lake.errors import InputError
from kubothek.lake.schema import conform
from kubothek.lake.store.base import Store
from kubothek.lake.table.partitioning import check_partition_keys, split

MIB: Final = 1 << 20
TARGET_FILE_BYTES: Final = 128 * MIB
MEMORY_BUDGET: Final = 256 * MIB

_Codec = Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
_CODECS: Final[dict[str, _Codec]] = {
    "NONE": "none",
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "LZ4": "lz4",
    "ZSTD": "zstd",
}
"""What kartothek and plateau read (kartothek-facts 1.4)."""

_ROW_GROUP_BYTES: Final = 64 * MIB
_ROW_GROUP_ROWS: Final = 1 << 20
_OPEN_FILE_BYTES: Final = 2 * MIB
"""What an open Parquet writer costs beside its data: the last column's dictionary encoder, measured."""
_COLUMN_BYTES: Final = 256
"""What a buffered piece of one column costs beside its data, roughly."""
_UPLOADS_AT_ONCE: Final = 8


class ParquetPart:
    """One data file, encoded in memory one row group at a time."""

    def __init__(self, schema: pa.Schema, codec: _Codec) -> None:
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, version="2.4", compression=codec, coerce_timestamps="us")

    @property
    def size(self) -> int:
        """Encoded bytes so far."""
        return self._sink.tell()

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Append the rows as one row group."""
        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows

    def finish(self) -> pa.Buffer:
        """The whole file."""
        self._writer.close()
        return self._sink.getvalue()


@dataclass
class _Partition:
    """What is in memory of one partition: buffered rows, after an open file with earlier ones."""

    path: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    buffered: int = 0
    part: ParquetPart | None = None

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self.buffered + (self.part.size + _OPEN_FILE_BYTES if self.part else 0)


class PartitionedWriter:
    """Writes tables into files per partition. Not thread-safe; uploads run beside the encoding.

    ``schema``             stored schema of the rows, see :mod:`kubothek.lake.schema`
    ``partition_keys``     columns that go into the path instead of the file
    ``table``              name of the table in the dataset, as its head has it
    ``target_file_bytes``  a file is closed when it reaches this size
    ``compression``        NONE, SNAPPY, GZIP, BROTLI, LZ4 or ZSTD
    ``memory_budget``      bytes for rows, unfinished files and files on their way; when they exceed it, the
                           largest partitions are written early: rows grouped by partition make the best files

    Raises PartitionInvalid or InputError before anything is written. Use it as a context manager: leaving
    early cancels what is still to be uploaded; what was uploaded is unreferenced and left to the collector.
    """

    def __init__(
        self,
        store: Store,
        uuid: str,
        schema: pa.Schema,
        partition_keys: Sequence[str] = (),
        *,
        table: str = keys.DEFAULT_TABLE,
        target_file_bytes: int = TARGET_FILE_BYTES,
        compression: str = "ZSTD",
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        check_partition_keys(schema, partition_keys)
        if compression not in _CODECS:
            raise InputError(f"compression {compression!r}: use one of {', '.join(_CODECS)}")
        if target_file_bytes < 1:
            raise InputError(f"target file size {target_file_bytes}: it must be at least 1 byte")
        self._store = store
        self._prefix = keys.data_prefix(uuid, table)
        self._schema = schema
        self._payload = pa.schema([f for f in schema if f.name not in partition_keys])
        self._keys = tuple(partition_keys)
        self._target = target_file_bytes
        self._codec = _CODECS[compression]
        self._budget = memory_budget
        self._step = max(1, min(_ROW_GROUP_BYTES, target_file_bytes, memory_budget // 4))
        self._partitions: dict[str, _Partition] = {}
        self._held = 0
        self._files: list[PartitionFile] = []
        self._uploads: deque[tuple[Future[str], int]] = deque()
        self._in_flight = 0
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="upload")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    # --- rows in ---

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add rows of any partitions, with all columns of the schema.

        Raises SchemaMismatch, DataTypeMismatch, PartitionInvalid; failures of earlier uploads surface here too.
        """
        for batch in self._slices(conform(_as_table(data), self._schema)):
            for path, rows in split(batch, self._keys):
                self._add(path, rows)

    def write_partition(self, path: str, data: pa.Table | pa.RecordBatch) -> None:
        """Add rows that belong to one partition path, as :func:`~.partitioning.split` gave them."""
        for batch in self._slices(conform(_as_table(data), self._payload)):
            self._add(path, batch)

    def finish(self) -> list[PartitionFile]:
        """Write what is left and wait until all is stored; the files in the order they were finished in."""
        for partition in list(self._partitions.values()):
            self._publish(partition)
        self._wait(0)
        self._pool.shutdown()
        return self._files

    def _slices(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The table in contiguous pieces, several to a row group."""
        pieces = max(1, 4 * table.nbytes // self._step)
        rows = max(1, min(_ROW_GROUP_ROWS, table.num_rows // pieces))
        for start in range(0, table.num_rows, rows):
            yield from table.slice(start, rows).combine_chunks().to_batches()

    def _add(self, path: str, batch: pa.RecordBatch) -> None:
        partition = self._partitions.get(path)
        if partition is None:
            partition = self._partitions[path] = _Partition(path)
        size = batch.nbytes + _COLUMN_BYTES * batch.num_columns
        partition.batches.append(batch)
        partition.rows += batch.num_rows
        partition.buffered += size
        self._held += size
        if partition.buffered >= self._step or partition.rows >= _ROW_GROUP_ROWS:
            self._encode(partition)
        if self._held + self._in_flight > self._budget:
            self._relieve()

    # --- files out ---

    def _relieve(self) -> None:
        """Bring memory down to half the budget by writing the largest partitions now."""
        goal = self._budget // 2
        for partition in sorted(self._partitions.values(), key=lambda p: p.held, reverse=True):
            if self._held <= goal:
                break
            self._publish(partition)
        self._wait(goal)

    def _encode(self, partition: _Partition) -> None:
        """Turn the buffered rows into a row group, and the file into an upload if it is large enough."""
        before = partition.held
        partition.part = partition.part or ParquetPart(self._payload, self._codec)
        partition.part.write(partition.batches)
        partition.batches, partition.rows, partition.buffered = [], 0, 0
        self._held += partition.held - before
        if partition.part.size >= self._target:
            self._publish(partition)

    def _publish(self, partition: _Partition) -> None:
        """Finish the partition's file and send it off. The one place that every finished file passes."""
        if partition.batches:
            self._encode(partition)
        self._partitions.pop(partition.path, None)
        if partition.part is None:
            return
        self._held -= partition.held
        part, partition.part = partition.part, None
        content = part.finish()
        name = uuids.uuid4().hex
        label = f"{partition.path}/{name}" if partition.path else name
        key = f"{self._prefix}{label}.parquet"
        self._files.append(PartitionFile(label, key, part.rows, content.size))
        self._wait(max(0, self._budget // 2 - content.size))
        self._in_flight += content.size
        self._uploads.append((self._pool.submit(self._store.put, key, memoryview(content)), content.size))

    def _wait(self, goal: int) -> None:
        """Until at most ``goal`` bytes are on their way; raises what an upload raised."""
        while self._uploads and (self._in_flight > goal or self._uploads[0][0].done()):
            upload, size = self._uploads.popleft()
            upload.result()
            self._in_flight -= size


def _as_table(data: pa.Table | pa.RecordBatch) -> pa.Table:
    return data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
