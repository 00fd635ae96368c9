"""The values of an indexed column in a file, as two numbers independent of order: index and data must agree.

It detects faults, not forgery: a program that can write indices can write data as well, and data files have hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kubothek.table.indexes.entries import LABEL, VALUE
from kubothek.table.indexes.types import indexable
from kubothek.table.maintenance.content import row_hashes


class Values(NamedTuple):
    """The number of distinct values, and the sum of their hashes modulo 2**64."""

    number: int = 0
    total: int = 0


def values_in(column: pa.ChunkedArray[Any], stored: pa.DataType) -> Values:
    """Return the values of a file, as an index has them: each once, without NULL and NaN."""
    found = indexable(column, stored).unique()
    return Values(len(found), int(_hashes(found).sum(dtype=np.uint64)))


def values_by_label(entries: pa.Table) -> dict[str, Values]:
    """Return the values of index entries, by the label of the file."""
    if not entries.num_rows:
        return {}
    entries = entries.unify_dictionaries().combine_chunks()
    labels: Any = entries.column(LABEL).chunk(0)
    values = entries.column(VALUE).chunk(0)
    codes = np.asarray(labels.indices.to_numpy(zero_copy_only=False))
    hashes = _hashes(values)
    order = np.argsort(codes, kind="stable")
    found, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    totals = np.add.reduceat(hashes[order], starts)
    names = labels.dictionary.to_pylist()
    return {
        names[code]: Values(int(count), int(total)) for code, count, total in zip(found, counts, totals, strict=True)
    }


def added(parts: Iterable[Mapping[str, Values]]) -> dict[str, Values]:
    """Return the sum of several parts of one index, no two of which hold the same entry."""
    found: dict[str, Values] = {}
    for part in parts:
        for label, more in part.items():
            have = found.get(label, Values())
            found[label] = Values(have.number + more.number, (have.total + more.total) % (1 << 64))
    return found


def _hashes(values: Any) -> Any:
    return row_hashes(pa.RecordBatch.from_arrays([values], names=[VALUE]))
