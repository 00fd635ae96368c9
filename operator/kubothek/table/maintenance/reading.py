"""The rows of many files, in order: small files are fetched whole, large ones are streamed.

A small file costs a request, a footer and some dozen column chunks, however few its rows. To fetch it whole and decode
it alone takes two thirds of the time that it takes as a part of an Arrow dataset. A file that lacks the table's current
columns, does not exist or cannot be read is left to the dataset, which handles these cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, islice
from math import inf
from typing import Final

import pyarrow as pa

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.filesystem import local_path
from kubothek.table.layout import MIB
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance import decoding
from kubothek.table.operations.copying import Copying
from kubothek.table.scan.local_parquet import exact
from kubothek.table.scan.read import read_failure
from kubothek.table.untrusted_parquet import open_parquet_file

SMALL_BYTES: Final = MIB
"""Size below which a file is fetched whole."""
_FETCHES: Final = 8
"""Small files that are fetched at a time. They are decoded one by one: each core has a bundle."""
_HANDFUL: Final = 16
"""Files that one fetch reads in a row: handing over each small file costs more than reading it from a disk. Fewer if
there are few files, so that all threads have some, and not much more bytes than one large file."""
_QUERY: Final = 128
_QUERY_BYTES: Final = 8 * MIB
_QUERY_VALUES: Final = 1 << 22
"""Files that are decoded at once, with their bytes and values; one file may exceed these."""
_AHEAD_BYTES: Final = 64 * MIB
_MOST_AHEAD: Final = 16
_BATCHES_AHEAD: Final = 8
_ROWS_AT_ONCE: Final = 1 << 16
_BYTES_AT_ONCE: Final = 16 * MIB


def rows_of(
    copying: Copying, store: Store, files: Sequence[PartitionFile], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all columns except the partition columns, or ``columns``, in batches that are worth their overhead.

    In the order of the files, whatever batches these have; a few files are in memory at a time. The partition path of
    a file stays as it is, however another writer spelled its values. Raises VersionIncomplete if a file is gone,
    StoreError if one cannot be read.
    """
    payload = [name for name in copying.schema.names if name not in copying.layout.partition_on]
    schema = pa.schema([copying.schema.field(name) for name in (payload if columns is None else columns)])
    batches = (
        batch
        for small, group in groupby(files, lambda file: file.bytes < SMALL_BYTES)
        for batch in (_small if small else _streamed)(copying, store, list(group), schema)
    )
    return _joined(batches)


def _small(
    copying: Copying, store: Store, files: Sequence[PartitionFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    path = local_path(store)
    if path is None or not exact(schema):
        yield from _fetched(copying, store, files, schema)
        return
    for part in _parts(files, _QUERY, _QUERY_BYTES, _QUERY_VALUES // len(schema)):
        table = None
        if len(part) >= decoding.FEWEST:
            keys = [file.key for file in part]
            store.check_no_links(keys)
            table = decoding.decoded(list(map(path, keys)), schema)
        yield from _fetched(copying, store, part, schema) if table is None else table.to_batches()


def _fetched(
    copying: Copying, store: Store, files: Sequence[PartitionFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    with ThreadPoolExecutor(min(_FETCHES, len(files)), thread_name_prefix="fetch") as pool:
        remaining = _parts(files, max(1, min(_HANDFUL, len(files) // (2 * _FETCHES))), SMALL_BYTES)
        ahead: deque[tuple[list[PartitionFile], Future[list[bytes | None]]]] = deque()
        try:
            while True:
                for handful in islice(remaining, 2 * _FETCHES - len(ahead)):
                    ahead.append((handful, pool.submit(_get, store, handful)))
                if not ahead:
                    return
                handful, coming = ahead.popleft()
                for file, data in zip(handful, coming.result(), strict=True):
                    table = None if data is None else _decoded(data, schema)
                    yield from _streamed(copying, store, [file], schema) if table is None else table.to_batches()
        finally:
            pool.shutdown(cancel_futures=True)


def _parts(
    files: Sequence[PartitionFile], most: int, most_bytes: int, most_rows: float = inf
) -> Iterator[list[PartitionFile]]:
    """Yield parts of at most ``most`` files; only the last file of a part may exceed the bytes and rows."""
    part: list[PartitionFile] = []
    size = rows = 0
    for file in files:
        part.append(file)
        size, rows = size + file.bytes, rows + file.rows
        if len(part) == most or size >= most_bytes or rows >= most_rows:
            yield part
            part, size, rows = [], 0, 0
    if part:
        yield part


def _get(store: Store, files: Sequence[PartitionFile]) -> list[bytes | None]:
    """Return the content of each file; None for one that is gone."""
    found: list[bytes | None] = []
    for file in files:
        try:
            found.append(store.get(file.key))
        except ObjectNotFound:
            found.append(None)
    return found


def _decoded(data: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the columns of a file; None if it has others, or cannot be read."""
    try:
        with open_parquet_file(pa.BufferReader(data), pre_buffer=False) as file:  # it is in memory already
            all_of_them = file.metadata.num_columns == len(schema)
            found = file.read(columns=None if all_of_them else schema.names, use_threads=False)
    except (pa.ArrowException, OSError):
        return None
    found = found.replace_schema_metadata()
    same = found.schema.equals(schema) or (found.schema.names, found.schema.types) == (schema.names, schema.types)
    return found if same else None


def _streamed(
    copying: Copying, store: Store, files: Sequence[PartitionFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    dataset = copying.open(store, [file.key for file in files])
    largest = max(file.bytes for file in files)
    try:
        yield from dataset.scanner(
            columns=schema.names,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=max(1, min(_MOST_AHEAD, _AHEAD_BYTES // max(1, largest))),
            use_threads=False,  # each core has a bundle, and handing over small batches costs more than it saves
        ).to_batches()
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()  # thirty times faster than nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _as_one(held)
            held, rows, size = [], 0, 0
    if rows:
        yield _as_one(held)


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    schema = batches[0].schema
    table = pa.Table.from_batches([each if each.schema == schema else each.cast(schema) for each in batches])
    (joined,) = table.combine_chunks().to_batches()
    return joined
