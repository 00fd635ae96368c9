"""Cuts in the order of an ingest, so that each range can be written on its own: pure functions over summaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from kubothek.odf.distributed.blobs import Integers, Place, Summary, places_of


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges in the order of event times.

    ``cuts``    the least place of each range but the first, ascending
    ``counts``  rows of each range; None: not counted
    """

    cuts: tuple[Place, ...]
    counts: tuple[int, ...] | None

    def __len__(self) -> int:
        return len(self.cuts) + 1

    @property
    def starts(self) -> tuple[int, ...]:
        """The number of the first row of each range, from 0, and the number of all rows."""
        assert self.counts is not None, "the records are counted"
        return tuple(accumulate(self.counts, initial=0))

    def counted(self, counts: Sequence[int]) -> Self:
        """Return the same ranges with these numbers of rows."""
        return replace(self, counts=tuple(counts))

    def numbers(self, times: Integers, at: Integers) -> Integers:
        """Return the range of each of these rows: the number of cuts at or before it."""
        moments = np.array([cut[0] for cut in self.cuts], np.int64)
        places = np.array([cut[1] for cut in self.cuts], np.int64)
        least = np.searchsorted(moments, times, "left")
        most = np.searchsorted(moments, times, "right")
        found = least.astype(np.int64)
        tied = np.flatnonzero(least != most)
        for start in np.unique(least[tied]):  # cuts between rows of one event time
            rows = tied[least[tied] == start]
            found[rows] = start + np.searchsorted(places[start : most[rows[0]]], at[rows], "right")
        return found

    def divided(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range, in their present order."""
        numbers = self.numbers(*places_of(batch))
        first = int(numbers[0]) if len(numbers) else 0
        if np.all(numbers == first):
            yield first, batch
            return
        order = np.argsort(numbers, kind="stable")
        ends = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
        moved = batch.take(order)
        for start, end in pairwise(ends):
            yield int(numbers[order[start]]), moved.slice(start, end - start)

    def counts_of(self, batch: pa.RecordBatch) -> Integers:
        """Return how many of these rows each range has."""
        return np.bincount(self.numbers(*places_of(batch)), minlength=len(self)).astype(np.int64)


def plan_ranges(blobs: Sequence[Summary], size: int) -> Ranges:
    """Return ranges of about ``size`` bytes in memory, with counts if the blobs are ordered and do not overlap."""
    in_order = sorted(blobs, key=lambda blob: blob.first)
    follows = all(one.last < other.first for one, other in pairwise(in_order))
    if not follows or not all(blob.ordered for blob in blobs):
        return Ranges(_by_sample(in_order, size), None)
    cuts: list[Place] = []
    counts = [0]
    held = 0
    for blob in in_order:
        if held and held + blob.bytes > size:
            cuts.append(blob.first)
            counts.append(0)
            held = 0
        counts[-1] += blob.rows
        held += blob.bytes
    return Ranges(tuple(cuts), tuple(counts))


def _by_sample(blobs: Sequence[Summary], size: int) -> tuple[Place, ...]:
    weighted = sorted((place, blob.bytes / len(blob.sample)) for blob in blobs for place in blob.sample)
    cuts: list[Place] = []
    held = 0.0
    for place, weight in weighted:
        if held and held + weight > size:
            cuts.append(place)
            held = 0.0
        held += weight
    return tuple(cuts)
