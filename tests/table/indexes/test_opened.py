"""Index files that are kept open for the next lookup, on a store that takes its time."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.indexes import native
from kubothek.table.indexes.entries import LABEL, VALUE, entries
from kubothek.table.indexes.object_cache import OpenedFile
from tests.table.indexes.model import UUID
from tests.table.log.memory import MemoryStore

ROWS = 200_000


class Slow(io.BytesIO):
    """Other threads run while this one seeks, as they do while it asks a server."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = super().seek(offset, whence)
        time.sleep(0.0002)
        return position


class SlowStore(MemoryStore):
    def open(self, key: str) -> io.BufferedIOBase:
        return Slow(self.get(key))


def test_opened_index_file_read_by_many_threads_returns_correct_rows() -> None:
    store = SlowStore()
    values = pa.array([f"{n:08}-{n * 2654435761 % 2**32:08x}" for n in range(ROWS)])
    (written,) = native.write_files(store, UUID, "x", [entries(values, "only")])
    assert written.bytes > 1 << 20
    file = OpenedFile(store, written.key)

    def find(number: int) -> int:
        return file.read([LABEL], pc.field(VALUE) == values[number]).num_rows

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(find, range(0, ROWS, ROWS // 40))) == [1] * 40
