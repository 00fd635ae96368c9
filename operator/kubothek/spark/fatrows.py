"""Fat rows: many rows of one partition as one row of Spark, which moves them without looking into them.

A fat row is a partition path, the number of rows, and the rows without partition columns as one Arrow record batch (IPC
without its schema, which both sides know), compressed with zstd. A row without path and payload only counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import zstandard

FatRow = tuple[str | None, int, bytes | None]
"""Partition path, number of rows, rows."""

SPARK_SCHEMA: Final = "path string, rows bigint, payload binary"
FAT_ROW_BYTES: Final = 8 << 20
"""Uncompressed size at which the rows of a partition are sent off."""
HELD_BYTES: Final = 96 << 20
"""What a packer holds of partitions that are smaller, before it sends them all off."""


class Packer:
    """Collects the rows of partitions into fat rows."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[pa.RecordBatch]] = {}
        self._sizes: dict[str, int] = {}
        self._compressor = zstandard.ZstdCompressor(level=1)

    def add(self, path: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of a partition; gives what became large enough to be sent off."""
        step = max(1, rows.num_rows * FAT_ROW_BYTES // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            self._pieces.setdefault(path, []).append(piece)
            self._sizes[path] = self._sizes.get(path, 0) + piece.nbytes
            if self._sizes[path] >= FAT_ROW_BYTES:
                yield fat_rows([self._pack(path)])
        if sum(self._sizes.values()) > HELD_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Everything that is held."""
        packed: list[FatRow] = []
        size = 0
        for path in list(self._pieces):
            packed.append(self._pack(path))
            size += len(packed[-1][2] or b"")
            if size > FAT_ROW_BYTES:
                yield fat_rows(packed)
                packed, size = [], 0
        if packed:
            yield fat_rows(packed)

    def _pack(self, path: str) -> FatRow:
        del self._sizes[path]
        table = pa.Table.from_batches(self._pieces.pop(path))
        rows = table.combine_chunks().to_batches()[0]
        return path, rows.num_rows, self._compressor.compress(memoryview(rows.serialize()))


def fat_rows(rows: Sequence[FatRow]) -> pa.RecordBatch:
    """Fat rows as Spark takes them."""
    paths, counts, payloads = zip(*rows, strict=True)
    columns: list[pa.Array[Any]] = [
        pa.array(paths, pa.string()),
        pa.array(counts, pa.int64()),
        pa.array(payloads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["path", "rows", "payload"])


class Unpacker:
    """Gives the rows of fat rows back, of partitions whose rows have this schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._decompressor = zstandard.ZstdDecompressor()

    def unpack(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, int, pa.RecordBatch | None]]:
        """Path, number of rows and rows of each; the rows of one at a time are in memory."""
        for path, rows, payload in zip(*batch.columns, strict=True):
            content = payload.as_buffer()
            unpacked = None
            if content is not None:
                data = pa.py_buffer(self._decompressor.decompress(memoryview(content)))
                unpacked = pa.ipc.read_record_batch(data, self._schema)
            yield path.as_py(), rows.as_py(), unpacked
