"""Reading many small files fast: each in one piece, several ahead.

Arrow's dataset reader asks the store three times for each file, and takes longer for a file of a few hundred
rows. It reads what it alone can: large files, and those that another writer stored in other types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.lake.commits import PartitionFile
from kubothek.lake.operations.copying import Copying
from kubothek.lake.store import Store
from kubothek.lake.table.filesystem import arrow_filesystem
from kubothek.lake.table.layout import MIB

_WHOLE_BYTES: Final = 4 * MIB
"""Files up to this size are read in one piece."""
_FILES_AHEAD: Final = 8
_AHEAD_BYTES: Final = 64 * MIB
_BATCHES_AHEAD: Final = 8


def read_files(copying: Copying, store: Store, files: Sequence[PartitionFile]) -> Iterator[pa.RecordBatch]:
    """The rows of these files, in order, without the partition columns. Raises OSError and Arrow's errors."""
    wanted = pa.schema([field for field in copying.schema if field.name not in copying.layout.partition_on])
    for small, some in groupby(files, key=lambda file: file.bytes <= _WHOLE_BYTES):
        if small:
            yield from _read_whole(copying, store, list(some), wanted)
        else:
            yield from _read_streaming(copying, store, list(some), wanted)


def _read_whole(
    copying: Copying, store: Store, files: Sequence[PartitionFile], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    filesystem = arrow_filesystem(store)

    def read(file: PartitionFile) -> pa.Table | None:
        with filesystem.open_input_file(file.key) as source:
            found = pq.ParquetFile(pa.BufferReader(source.read_buffer()))
        return found.read(use_threads=False) if found.schema_arrow.equals(wanted) else None

    ahead: deque[tuple[PartitionFile, Future[pa.Table | None]]] = deque()
    left = iter(files)
    with ThreadPoolExecutor(_FILES_AHEAD, thread_name_prefix="read") as pool:
        try:
            while True:
                for file in left:
                    ahead.append((file, pool.submit(read, file)))
                    if len(ahead) >= _FILES_AHEAD:
                        break
                if not ahead:
                    return
                file, reading = ahead.popleft()
                table = reading.result()
                if table is None:
                    yield from _read_streaming(copying, store, [file], wanted)
                else:
                    yield from table.replace_schema_metadata(wanted.metadata).to_batches()
        finally:
            pool.shutdown(cancel_futures=True)


def _read_streaming(
    copying: Copying, store: Store, files: Sequence[PartitionFile], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    largest = max(file.bytes for file in files)
    yield from (
        copying.open(store, [file.key for file in files])
        .scanner(
            columns=wanted.names,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=max(1, min(_FILES_AHEAD, _AHEAD_BYTES // max(1, largest))),
        )
        .to_batches()
    )
