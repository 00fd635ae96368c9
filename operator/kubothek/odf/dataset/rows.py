"""Rows that can be read again: after a conflict, a merge runs on the newer chain with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeAlias

import pyarrow as pa

Rows: TypeAlias = Callable[[], pa.RecordBatchReader]
"""Returns a new reader of all rows at each call."""
_IN_MEMORY: Final = 64 << 20


class Spooled:
    """The rows of a stream that can be read once, kept at the first read: in memory, or on disk if they are many.

    The file is deleted with this object.
    """

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._schema = rows.schema
        self._rows: pa.RecordBatchReader | None = rows
        self._held: list[pa.RecordBatch] = []
        self._file: Any = None

    def __call__(self) -> pa.RecordBatchReader:
        """Return all rows. The first call reads the stream to its end, and raises what it raises."""
        if self._rows is not None:
            self._keep(self._rows)
            self._rows = None
        if self._file is None:
            return pa.RecordBatchReader.from_batches(self._schema, self._held)
        reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return pa.RecordBatchReader.from_batches(self._schema, batches)

    def _keep(self, rows: pa.RecordBatchReader) -> None:
        size = 0
        for batch in rows:
            self._held.append(batch)
            size += batch.nbytes
            if size > _IN_MEMORY:
                self._spool(rows)
                return

    def _spool(self, rows: pa.RecordBatchReader) -> None:
        self._file = NamedTemporaryFile(prefix="kubothek-rows-")  # noqa: SIM115  # it lives as long as this object
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            pa.OSFile(str(Path(self._file.name)), "wb") as sink,
            pa.ipc.new_file(sink, self._schema, options=options) as writer,
        ):
            while self._held:
                writer.write_batch(self._held.pop(0))
            for batch in rows:
                writer.write_batch(batch)


def again(rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> Rows:
    """Return these rows in a form that can be read repeatedly; those of a stream are kept at the first read."""
    if isinstance(rows, pa.RecordBatchReader):
        return Spooled(rows)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return table.to_reader
