"""The position of each row on a Z-curve: rows that are close in all of its columns get close positions.

A column counts by the rank of its values in a sample, not by the values themselves. So columns of all sortable types
combine, however their values are distributed. The bits of the ranks are interleaved, the first column's first. NULL
sorts before all values, NaN after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BITS: Final = 10
"""Maximum bits of each rank: a partition has far fewer files than so many columns can distinguish."""
_SAMPLE: Final = 1 << 17


@dataclass(frozen=True)
class Curve:
    """The curve through the values of some columns.

    ``cuts``  by column: ascending values; the rank of a value is the number of cuts that are not above it
    ``bits``  of each rank; those of all columns fit in 63
    """

    cuts: dict[str, pa.Array[Any]]
    bits: int

    @classmethod
    def through(cls, rows: Iterable[pa.RecordBatch], count: int, columns: Sequence[str]) -> Self:
        """Return the curve of ``count`` rows with these columns; keeps a sample of them, so memory is bounded."""
        step = -(-count // _SAMPLE) or 1
        seen, kept = 0, []
        for batch in rows:
            places = np.arange(-seen % step, batch.num_rows, step)
            kept.append(batch.select(list(columns)).take(places))
            seen += batch.num_rows
        bits = min(_BITS, 63 // len(columns))
        sample = {
            name: pa.concat_arrays([batch.column(name) for batch in kept]) if kept else pa.nulls(0) for name in columns
        }
        return cls({name: _cuts(values, (1 << bits) - 2) for name, values in sample.items()}, bits)

    def places(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return the position of each row, as uint64."""
        ranks = [self._rank(batch.column(name), cuts) for name, cuts in self.cuts.items()]
        found = np.zeros(batch.num_rows, np.uint64)
        for bit in range(self.bits - 1, -1, -1):
            for rank in ranks:
                found = found << np.uint64(1) | rank >> np.uint64(bit) & np.uint64(1)
        return pa.array(found)

    def _rank(self, column: pa.Array[Any], cuts: pa.Array[Any]) -> npt.NDArray[np.uint64]:
        """Return 0 for NULL; else 1 or more, spread over all bits, so that columns of few values use the first bits."""
        encoded = column.dictionary_encode()
        values = encoded.dictionary
        # The sort is stable, so a cut comes before the values that are equal to it.
        order = pc.array_sort_indices(pa.concat_arrays([cuts, values])).to_numpy()
        below = np.cumsum(order < len(cuts), dtype=np.uint64)
        mine = order >= len(cuts)
        ranks = np.zeros(len(values) + 1, np.uint64)
        ranks[order[mine] - len(cuts)] = below[mine] + np.uint64(1)
        codes = encoded.indices.fill_null(len(values)).to_numpy()
        scale = np.uint64((1 << self.bits) - 1)
        spread: npt.NDArray[np.uint64] = ranks[codes] * scale // np.uint64(len(cuts) + 1)
        return spread


def _cuts(sample: pa.Array[Any], most: int) -> pa.Array[Any]:
    """Return at most ``most`` distinct values, without the smallest, that divide the sample into equal parts."""
    values = sample.drop_null()
    ordered = values.take(pc.array_sort_indices(values))
    wanted = np.unique(np.arange(1, most + 1) * len(ordered) // (most + 1))
    found = ordered.take(pa.array([0, *wanted] if len(ordered) else [], pa.int64())).unique()
    return found.slice(1)
