"""Fat rows: many rows of one partition and bucket as one row of Spark, which moves it without decoding it.

A fat row has a partition path, a bucket if the table has buckets, the number of rows, and the rows without partition
columns. These are one Arrow record batch (IPC without the schema, which both sides know), compressed with zstd. A fat
row without path and payload only counts rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import zstandard

from kubothek.table.partitioning import Group, copied

FatRow = tuple[Group | None, int, bytes | None]
"""Partition path and bucket, number of rows, rows."""

SPARK_SCHEMA: Final = "path string, bucket int, rows bigint, payload binary"
GROUP: Final = ("path", "bucket")
"""The columns that group fat rows."""
FAT_ROW_BYTES: Final = 8 << 20
"""Uncompressed size at which the rows of a group are emitted."""
HELD_BYTES: Final = 96 << 20
"""Total size of smaller groups that a packer holds before it emits all of them."""


class Packer:
    """Builder of fat rows from the rows of groups."""

    def __init__(self) -> None:
        self._pieces: dict[Group, list[pa.RecordBatch]] = {}
        self._sizes: dict[Group, int] = {}
        self._added = 0
        self._compressor = zstandard.ZstdCompressor(level=1)

    def add(self, group: Group, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows of a group; yield fat rows that are large enough."""
        size = rows.nbytes
        step = max(1, -(-rows.num_rows * FAT_ROW_BYTES // max(1, size)))
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            self._pieces.setdefault(group, []).append(piece)
            self._sizes[group] = self._sizes.get(group, 0) + size * piece.num_rows // rows.num_rows
            if self._sizes[group] >= FAT_ROW_BYTES:
                yield fat_rows([self._pack(group)])
        self._added += size
        if self._added > HELD_BYTES:  # what is held keeps alive what it was divided from, also what is emitted
            self._pieces = {group: [copied(pieces)] for group, pieces in self._pieces.items()}
            self._added = 0
        if sum(self._sizes.values()) > HELD_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield everything that is held."""
        packed: list[FatRow] = []
        size = 0
        for group in list(self._pieces):
            packed.append(self._pack(group))
            size += len(packed[-1][2] or b"")
            if size > FAT_ROW_BYTES:
                yield fat_rows(packed)
                packed, size = [], 0
        if packed:
            yield fat_rows(packed)

    def _pack(self, group: Group) -> FatRow:
        del self._sizes[group]
        table = pa.Table.from_batches(self._pieces.pop(group))
        rows = table.combine_chunks().to_batches()[0]
        return group, rows.num_rows, self._compressor.compress(memoryview(rows.serialize()))


def fat_rows(rows: Sequence[FatRow]) -> pa.RecordBatch:
    """Return fat rows as a record batch for Spark."""
    groups, counts, payloads = zip(*rows, strict=True)
    columns: list[pa.Array[Any]] = [
        pa.array([group and group.path for group in groups], pa.string()),
        pa.array([group and group.bucket for group in groups], pa.int32()),
        pa.array(counts, pa.int64()),
        pa.array(payloads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*GROUP, "rows", "payload"])


class Unpacker:
    """Decoder of fat rows; ``schema`` is that of the rows without partition columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._decompressor = zstandard.ZstdDecompressor()

    def unpack(self, batch: pa.RecordBatch) -> Iterator[tuple[Group | None, int, pa.RecordBatch | None]]:
        """Yield group, number of rows and rows of each fat row; only one is in memory at a time."""
        for path, bucket, rows, payload in zip(*batch.columns, strict=True):
            content = payload.as_buffer()
            unpacked = None
            if content is not None:
                data = pa.py_buffer(self._decompressor.decompress(memoryview(content)))
                unpacked = pa.ipc.read_record_batch(data, self._schema)
            group = Group(path.as_py(), bucket.as_py()) if path.is_valid else None
            yield group, rows.as_py(), unpacked
