"""Many rows as one value: a compressed Arrow batch (IPC without its schema, which both sides know), with a summary.

The first column is the position of a row in the input: the number of its piece, and its number in the piece. It serves
to restore the order of rows after any shuffle. The second column is the event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

AT: Final = "__at"
BLOB_BYTES: Final = 8 << 20
"""The approximate uncompressed size of a blob."""
_ROW_BITS: Final = 40
_NO_TIME: Final = np.iinfo(np.int64).min
"""Represents a missing event time, which sorts first."""
_SAMPLE: Final = 32

Integers: TypeAlias = npt.NDArray[np.int64]
Place: TypeAlias = tuple[int, int]
"""The place of a row in the order of a ledger: its event time in its own unit, and its position in the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a blob, which is known without unpacking it.

    ``ordered``        whether its rows are in order
    ``first``,``last`` the least and the greatest place
    ``sample``         some places, evenly spread, in order
    """

    rows: int
    bytes: int
    ordered: bool
    first: Place
    last: Place
    sample: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob and its summary."""

    summary: Summary
    payload: bytes


def with_places(batches: Iterable[pa.RecordBatch], schema: pa.Schema, piece: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with :data:`AT` as the first column; ``schema`` has it as well."""
    start = piece << _ROW_BITS
    for batch in batches:
        at = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([at, *batch.columns], schema=schema)
        start += batch.num_rows


def blobs_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Blob]:
    """Yield the same rows in blobs, in the order in which they come."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        step = max(1, batch.num_rows * BLOB_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            held.append(batch.slice(start, step))
            size += held[-1].nbytes
            if size >= BLOB_BYTES:
                yield _packed(held, schema)
                held, size = [], 0
    if held:
        yield _packed(held, schema)


def pack(batch: pa.RecordBatch) -> bytes:
    """Pack rows for transport."""
    return zstandard.ZstdCompressor(level=1).compress(memoryview(batch.serialize()))


def unpack(payload: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Unpack the rows of :func:`pack`, which have this schema."""
    data = zstandard.ZstdDecompressor().decompress(memoryview(payload))
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def places_of(batch: pa.RecordBatch | pa.Table) -> tuple[Integers, Integers]:
    """Return event times as numbers, and the positions of the rows in the input."""
    times: Any = batch.column(1)
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    numbers = times.view(pa.int32() if pa.types.is_date32(times.type) else pa.int64()).cast(pa.int64())
    return pc.fill_null(numbers, int(_NO_TIME)).to_numpy(zero_copy_only=False), batch.column(0).to_numpy()


def is_ordered(times: Integers, at: Integers) -> bool:
    """Return whether rows are in order: by event time, then by position in the input."""
    later = times[1:] > times[:-1]
    return bool(np.all(later | ((times[1:] == times[:-1]) & (at[1:] > at[:-1]))))


def order_of(times: Integers, at: Integers) -> npt.NDArray[np.intp]:
    """Return the indices that sort rows into order."""
    return np.lexsort((at, times))


def _packed(batches: list[pa.RecordBatch], schema: pa.Schema) -> Blob:
    batch = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()[0]
    times, at = places_of(batch)
    ordered = is_ordered(times, at)
    if not ordered:
        order = order_of(times, at)
        times, at = times[order], at[order]
    chosen = np.linspace(0, len(at) - 1, min(_SAMPLE, len(at))).astype(np.int64)
    sample = tuple(zip(times[chosen].tolist(), at[chosen].tolist(), strict=True))
    summary = Summary(
        rows=batch.num_rows, bytes=batch.nbytes, ordered=ordered, first=sample[0], last=sample[-1], sample=sample
    )
    return Blob(summary, pack(batch))
