"""Sums of floating-point numbers that do not depend on their order: exact, and rounded once.

A double is a whole number m times a power of two. Those powers are divided into bins of 32. DuckDB adds the whole
numbers m times 2^(place in the bin) of each bin exactly. This module adds up the bins, for all groups at once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NAN, INFINITE, NEGATIVE = 100, 101, 102
"""Bins for values that a sum cannot hold; the sum of such a bin is their number."""
_BITS: Final = 32
_UNIT: Final = 1075
"""Bin 0 counts from exponent 0, so its unit is 2^-1075; the least unit of a double's m is 2^-1074, of exponent 1."""
_MASK: Final = np.int64((1 << _BITS) - 1)
_CHUNK: Final = 1 << 14


def bins(value: str, weight: str, source: str, columns: str) -> str:
    """Return a query for the bins of each group: the ``columns``, ``bin``, ``acc``."""
    bits = (
        f"SELECT {columns}, {weight} AS w, CAST(CAST(CAST({value} AS DOUBLE) AS BIT) AS BIGINT) AS b "
        f"FROM {source} WHERE {value} IS NOT NULL"
    )
    parts = f"SELECT {columns}, w, b, (b >> 52) & 2047 AS e, b & 4503599627370495 AS f FROM ({bits})"
    special = f"CASE WHEN f <> 0 THEN {NAN} WHEN b >= 0 THEN {INFINITE} ELSE {NEGATIVE} END"
    whole = "(f + CASE WHEN e = 0 THEN 0 ELSE 4503599627370496 END)::HUGEINT"
    shift = "(1::BIGINT << (greatest(e, 1) & 31)::INTEGER)::HUGEINT"
    return (
        f"SELECT {columns}, (CASE WHEN e = 2047 THEN {special} ELSE greatest(e, 1) >> 5 END)::SMALLINT AS bin, "
        f"sum(CASE WHEN e = 2047 THEN w::HUGEINT ELSE w * (CASE WHEN b < 0 THEN -1 ELSE 1 END) * {whole} * {shift} END)"
        f"::DECIMAL(38, 0) AS acc FROM ({parts}) GROUP BY ALL HAVING acc <> 0"
    )


def rounded(table: pa.Table) -> pa.Table:
    """Return ``(id, value)`` for ``(id, bin, acc)`` in the order of ids: the double nearest to each exact sum."""
    table = table.combine_chunks()
    ids = table.column(0).to_numpy()
    firsts = np.flatnonzero(np.r_[True, np.diff(ids) != 0]) if len(ids) else np.zeros(0, np.int64)
    values = np.zeros(len(firsts))
    ends = np.r_[firsts[1:], len(ids)].astype(np.int64)
    for start in range(0, len(firsts), _CHUNK):
        end = min(start + _CHUNK, len(firsts))
        rows = slice(int(firsts[start]), int(ends[end - 1]))
        group = np.repeat(np.arange(end - start), ends[start:end] - firsts[start:end])
        values[start:end] = _round(group, end - start, table.slice(rows.start, rows.stop - rows.start))
    return pa.table({"__id": pa.array(ids[firsts], pa.int64()), "value": pa.array(values, pa.float64())})


def _round(group: npt.NDArray[np.int64], groups: int, table: pa.Table) -> npt.NDArray[np.float64]:
    bin_ = table.column(1).to_numpy().astype(np.int64)
    words = _words(table.column(2).combine_chunks())
    finite = bin_ < NAN
    low = int(bin_[finite].min()) if finite.any() else 0
    width = (int(bin_[finite].max()) if finite.any() else 0) - low + 6
    limbs = np.zeros((groups, width), np.int64)
    for place in range(4):
        np.add.at(limbs, (group[finite], bin_[finite] - low + place), words[finite, place])
    found = _nearest(limbs, low)
    for kind, value in ((INFINITE, np.inf), (NEGATIVE, -np.inf)):
        there = np.zeros(groups, bool)
        there[group[bin_ == kind]] = True
        found = np.where(there, np.where(np.isinf(found) & (found != value), np.nan, value), found)
    found[group[bin_ == NAN]] = np.nan
    return found


def _words(column: Any) -> npt.NDArray[np.int64]:
    """Return four words of 32 bits for each number, the last with its sign."""
    raw = np.frombuffer(column.buffers()[1], np.uint32).reshape(-1, 4)[column.offset : column.offset + len(column)]
    words = raw.astype(np.int64)
    words[:, 3] = raw[:, 3].astype(np.int32)
    return words


def _carried(limbs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Carry: each word is in [0, 2^32) except the last, which has the sign."""
    done = limbs.copy()
    for place in range(done.shape[1] - 1):
        done[:, place + 1] += done[:, place] >> _BITS
        done[:, place] &= _MASK
    return done


def _nearest(limbs: npt.NDArray[np.int64], low: int) -> npt.NDArray[np.float64]:
    """Return the sums, rounded half to even. A sum below the least normal number is a double already."""
    negative = _carried(limbs)[:, -1] < 0
    whole = _carried(np.where(negative[:, None], -limbs, limbs))
    groups, width = whole.shape
    padded = np.concatenate([np.zeros((groups, 2), np.int64), whole], axis=1).astype(np.uint64)
    top = width + 1 - np.argmax(padded[:, ::-1] != 0, axis=1)
    top = np.maximum(top, 2)
    rows = np.arange(groups)
    high, middle, last = (padded[rows, top - back] for back in (0, 1, 2))
    size = np.frexp(high.astype(np.float64))[1].astype(np.uint64)  # number of bits, 0 if all is 0
    gap = np.uint64(_BITS) - size
    lead = np.where(size == 0, np.uint64(0), ((high << np.uint64(_BITS) | middle) << gap) | (last >> size))
    below = np.arange(width + 2)[None, :] < (top - 2)[:, None]
    rest = (last & ((np.uint64(1) << size) - np.uint64(1))) != 0
    sticky = rest | ((padded != 0) & below).any(axis=1)
    kept, cut, half = lead >> np.uint64(11), lead & np.uint64(0x7FF), np.uint64(0x400)
    up = (cut > half) | ((cut == half) & (sticky | (kept & np.uint64(1)).astype(bool)))
    exponent = _BITS * (low + top - 2) + size.astype(np.int64) - 53 - _UNIT
    with np.errstate(over="ignore"):
        found = np.ldexp((kept + up.astype(np.uint64)).astype(np.float64), exponent)
    signed: npt.NDArray[np.float64] = np.where(negative, -found, found)
    return signed
