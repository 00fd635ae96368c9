"""Batches of Parquet rows in bounded memory, even if few bytes of the file expand to many.

With dictionary and run-length encoding, a small file can hold values of any size. Texts stay dictionary-encoded until
their decoded size is known; then batches are cut so that each decodes to ``BATCH_BYTES`` at most, or to one row.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import SourceRefused
from kubothek.ingest.model import UNPACKING

BATCH_ROWS: Final = 1 << 16
BATCH_BYTES: Final = 64 << 20
ROW_BYTES: Final = 256 << 20
"""Maximum decoded bytes of one row."""

_Sizes = npt.NDArray[np.int64]
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}


def decoded_batches(
    name: str, raw: io.BufferedIOBase, file: pq.ParquetFile, group: int, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group, without dictionaries; ``raw`` has the bytes of the file, ``columns`` None is all.

    Raises SourceRefused for a row of more than ``ROW_BYTES``, and for columns that decode to more than
    :class:`~kubothek.ingest.model.Unpacking` permits.
    """
    rows = _batch_rows(name, file, group)
    encoded = [chunk.path_in_schema for chunk in _chunks(file, group) if _has_texts(chunk)]
    reader = pq.ParquetFile(cast("IO[bytes]", raw), metadata=file.metadata, read_dictionary=encoded)
    done = 0
    for batch in reader.iter_batches(rows, row_groups=[group], columns=columns):
        batch.validate(full=True)
        for piece in _pieces(name, batch, done):
            yield piece
            done += piece.num_rows


def _chunks(file: pq.ParquetFile, group: int) -> list[Any]:
    found: Any = file.metadata.row_group(group)
    return [found.column(number) for number in range(found.num_columns)]


def _has_texts(chunk: Any) -> bool:
    return bool(chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page)


def _batch_rows(name: str, file: pq.ParquetFile, group: int) -> int:
    """Return the number of rows to read at a time, from the mean row size in the footer."""
    found = file.metadata.row_group(group)
    row_bytes = 0
    for number, chunk in enumerate(_chunks(file, group)):
        UNPACKING.check(name, chunk.total_uncompressed_size, chunk.total_compressed_size)
        column = file.schema.column(number)
        width = _WIDTHS.get(chunk.physical_type, column.length or 8)
        decoded = max(chunk.num_values * width, chunk.total_uncompressed_size)
        if column.max_repetition_level:  # one row may hold all of the values
            UNPACKING.check(name, decoded, chunk.total_uncompressed_size)
        row_bytes += decoded // max(1, found.num_rows)
    if row_bytes > ROW_BYTES:
        raise _too_large(name, f"row group {group}", row_bytes)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))


def _pieces(name: str, batch: pa.RecordBatch, done: int) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
    sizes: Any = sum((_sizes(column) for column in batch.columns), start=np.zeros(batch.num_rows, np.int64))
    ends = np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        before = int(ends[start] - sizes[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
        if sizes[start] > ROW_BYTES:
            raise _too_large(name, f"row {done + start + 1} of a row group", int(sizes[start]))
        columns = batch.slice(start, stop - start).columns
        decoded = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(decoded, schema=schema)
        start = stop


def _too_large(name: str, where: str, size: int) -> SourceRefused:
    return SourceRefused(
        f"{name!r}, {where}: {size} bytes in one row, the limit is {ROW_BYTES}; keep large values in files of their own"
    )


def _sizes(values: Any) -> _Sizes | int:
    """Return the decoded bytes of the dictionary values in each row; 0 if they are few in total."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        if not _is_text(kind.value_type):
            return 0
        lengths = pc.fill_null(pc.binary_length(values.dictionary), 0).to_numpy().astype(np.int64)
        if int(lengths.max(initial=0)) * len(values) <= BATCH_BYTES // 16:
            return 0
        chosen: Any = pc.fill_null(values.indices, 0).to_numpy(zero_copy_only=False)
        return np.where(np.asarray(values.is_valid()), lengths[chosen], 0) if len(lengths) else 0
    if pa.types.is_struct(kind):
        return sum((_sizes(values.field(number)) for number in range(kind.num_fields)), start=0)
    if pa.types.is_fixed_size_list(kind):
        inner = _sizes(values.values)
        return inner if isinstance(inner, int) else inner.reshape(-1, kind.list_size).sum(axis=1)
    if pa.types.is_map(kind):
        inner = _sizes(values.keys) + _sizes(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _sizes(values.values)
    else:
        return 0
    if isinstance(inner, int):
        return inner
    totals = np.concatenate(([0], np.cumsum(inner)))
    offsets = values.offsets.to_numpy()
    return totals[offsets[1:]] - totals[offsets[:-1]]  # type: ignore[no-any-return]


def _plain(kind: Any) -> Any:
    """Return the type without dictionaries."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make: Any = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)), kind.list_size)
    return kind


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
