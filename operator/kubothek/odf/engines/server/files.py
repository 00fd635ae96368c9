"""Parquet files of the volume as streams of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kubothek.odf.engines.server.volume import PathRefused, Volume
from kubothek.table.untrusted_parquet import open_parquet_file

_arrow_file: Final[Any] = pa.PythonFile  # nor that this is one that a fragment may have
_FILES_AT_ONCE: Final = 64
_READ_AHEAD: Final = 8
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, RuntimeError, OverflowError)


def schema_of(volume: Volume, path: str) -> pa.Schema:
    """Return the columns of a file; a UUID is 16 bytes. Raises PathRefused."""
    with volume.open(path) as file:
        try:
            found: pa.Schema = open_parquet_file(file, arrow_extensions_enabled=False).schema_arrow
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error
    return found.remove_metadata()


def extent(volume: Volume, path: str, offset: str, system_time: str) -> tuple[int, int, int] | None:
    """Return the first and last offset of a slice, and its system time in milliseconds; None if it has no records.

    Raises PathRefused.
    """
    with volume.open(path) as file:
        try:
            table = pq.read_table(file, columns=[offset, system_time])
            if not table.num_rows:
                return None
            ends: Any = pc.min_max(table.column(offset)).as_py()
            time = pc.max(table.column(system_time).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())).as_py()
        except (*_UNREADABLE, KeyError) as error:
            raise _unreadable(path, error) from error
    if ends["min"] is None or time is None:
        raise PathRefused(f"{path} has records without offset or system time")
    return int(ends["min"]), int(ends["max"]), int(time)


def records(
    volume: Volume, paths: Sequence[str], schema: pa.Schema, where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, in order, with these columns; missing columns are NULL. Raises PathRefused."""
    form = ds.ParquetFileFormat()
    for start in range(0, len(paths), _FILES_AT_ONCE):
        some = paths[start : start + _FILES_AT_ONCE]
        with ExitStack() as stack:
            files = [stack.enter_context(volume.open(path)) for path in some]
            try:
                fragments = [form.make_fragment(_arrow_file(file)) for file in files]
                dataset = ds.FileSystemDataset(fragments, schema, form)
                yield from dataset.scanner(
                    columns=schema.names, filter=where, batch_readahead=_READ_AHEAD, fragment_readahead=1
                ).to_batches()
            except _UNREADABLE as error:
                raise _unreadable(", ".join(some[:3]), error) from error


def _unreadable(path: str, error: Exception) -> PathRefused:
    return PathRefused(f"{path} is no Parquet file that can be read: {error}")
