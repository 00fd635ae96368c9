"""The rows of a bundle in the order of a clustering: sorted in pieces, which wait on a local disk and are merged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.table.clustering import Clustering
from kubothek.table.layout import MIB
from kubothek.table.maintenance.z_order import Curve
from kubothek.table.sorting import SortedRuns

PIECE_BYTES: Final = 64 * MIB
"""So much is sorted at once, in memory."""
_BLOCK_BYTES: Final = MIB

All = Callable[[], Iterator[pa.RecordBatch]]
"""Reads the rows."""
Some = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads these columns of the rows."""


def in_order(
    rows: All, columns: Some, count: int, clustering: Clustering, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows, of which there are ``count``, in order; those of the same place as they came.

    Takes a piece and a little of each other one in memory, and all of them compressed on disk, if they are several.
    Reads the columns of a curve twice.
    """
    if not clustering.curve:
        yield from _sorted(rows(), clustering.by, piece_bytes)
        return
    curve = Curve.through(columns(clustering.by), count, clustering.by)
    for batch in _sorted((_placed(batch, curve) for batch in rows()), None, piece_bytes):
        yield batch.select(batch.schema.names[:-1])


def _placed(batch: pa.RecordBatch, curve: Curve) -> pa.RecordBatch:
    """With the places as the last column."""
    columns: list[Any] = [*batch.columns, curve.places(batch)]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, _place(batch.schema.names)])


def _place(names: Sequence[str]) -> str:
    """A name that no column has."""
    return max(names, key=len) + "_"


def _sorted(batches: Iterator[pa.RecordBatch], by: Sequence[str] | None, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """By these columns, or by the last one."""
    held: list[pa.RecordBatch] = []
    size = 0
    runs: SortedRuns | None = None
    names = tuple(by or ())
    with tempfile.TemporaryFile(prefix="kubothek-order-") as disk:
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            names = names or (batch.schema.names[-1],)
            if size >= piece_bytes:
                runs = runs or SortedRuns(names, _BLOCK_BYTES, disk)
                runs.add(held)
                held, size = [], 0
        runs = runs or SortedRuns(names, size)  # a single piece need not wait for others
        if held:
            runs.add(held)
        while runs.rows:
            yield from runs.pop().combine_chunks().to_batches()
