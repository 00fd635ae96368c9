"""Many rows as one: a compressed Arrow batch (IPC without its schema, which both sides know), and what is known of it.

The first column says where in the input a row was: the number of its piece and its number in it, so that rows can be
put in their order again wherever they have been. The second one is the event time.
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
"""Uncompressed size of a blob, about."""
_ROW_BITS: Final = 40
_NO_TIME: Final = np.iinfo(np.int64).min
"""Stands for no event time: those come first."""
_SAMPLE: Final = 32

Integers: TypeAlias = npt.NDArray[np.int64]
Place: TypeAlias = tuple[int, int]
"""Of a row in the order of a ledger: its event time in its own unit, and where in the input it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of a blob without a look into it.

    ``ordered``        its rows are in their order
    ``first``,``last`` the least and the greatest place
    ``sample``         some places, evenly spread, in their order
    """

    rows: int
    bytes: int
    ordered: bool
    first: Place
    last: Place
    sample: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob, and what is known of it."""

    summary: Summary
    payload: bytes


def with_places(batches: Iterable[pa.RecordBatch], schema: pa.Schema, piece: int) -> Iterator[pa.RecordBatch]:
    """The rows of a piece with the column :data:`AT` before all others; ``schema`` has it as well."""
    start = piece << _ROW_BITS
    for batch in batches:
        at = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([at, *batch.columns], schema=schema)
        start += batch.num_rows


def blobs_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Blob]:
    """The same rows in blobs, in the order in which they come."""
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
    """Rows on their way."""
    return zstandard.ZstdCompressor(level=1).compress(memoryview(batch.serialize()))


def unpack(payload: Any, schema: pa.Schema) -> pa.RecordBatch:
    """The inverse of :func:`pack`, of rows of this schema."""
    data = zstandard.ZstdDecompressor().decompress(memoryview(payload))
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def places_of(batch: pa.RecordBatch | pa.Table) -> tuple[Integers, Integers]:
    """Event times as numbers, and where in the input the rows were."""
    times: Any = batch.column(1)
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    numbers = times.view(pa.int32() if pa.types.is_date32(times.type) else pa.int64()).cast(pa.int64())
    return pc.fill_null(numbers, int(_NO_TIME)).to_numpy(zero_copy_only=False), batch.column(0).to_numpy()


def is_ordered(times: Integers, at: Integers) -> bool:
    """Whether rows are in their order: by event time, then as they came."""
    later = times[1:] > times[:-1]
    return bool(np.all(later | ((times[1:] == times[:-1]) & (at[1:] > at[:-1]))))


def order_of(times: Integers, at: Integers) -> npt.NDArray[np.intp]:
    """What puts rows into their order."""
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
