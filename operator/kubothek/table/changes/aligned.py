"""The rows that differ between a file and the file that replaces it, place by place.

A row-level update writes the rows of a file in their order. So a column that it did not change has the same bytes in
both files, which proves it equal without decoding. The others are decoded and compared, and the equal ones only as far
as there is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.changes.cancel import same_values
from kubothek.table.changes.parquet import BATCH_ROWS, FeedFile

_ROWS: Final = BATCH_ROWS
"""Most rows that are compared at once."""
_CHUNK_BYTES: Final = 64 << 20
"""Most bytes of a column chunk that are compared without decoding."""


def are_aligned(old: FeedFile, new: FeedFile) -> bool:
    """Return whether both files have the same columns, and rows in row groups of the same sizes."""
    if old.columns.keys() != new.columns.keys() or old.constants != new.constants or not old.columns:
        return False
    return _group_rows(old) == _group_rows(new)


def differing(old: FeedFile, new: FeedFile) -> Iterator[tuple[dict[str, Any], dict[str, Any], int]]:
    """Yield the decoded columns of the old and of the new rows at places where they differ, and their number.

    The files are aligned (:func:`are_aligned`), and no column is nested.
    """
    for group, rows in enumerate(_group_rows(old)):
        equal = [name for name in old.columns if _same_bytes(old, new, group, name)]
        if len(equal) == len(old.columns):
            continue
        unequal = [name for name in old.columns if name not in equal]
        others: Iterator[Mapping[str, Any]] | None = None
        read = 0  # batches of the others
        pairs = zip(old.decoded(group, unequal, _ROWS), new.decoded(group, unequal, _ROWS), strict=True)
        for number, (here, there) in enumerate(pairs):
            places = _differing_places(here, there)
            if not len(places):
                continue
            if others is None:
                last = places[-1].as_py() + 1
                others = old.decoded(group, equal, _ROWS if rows > _ROWS else last)
            both: dict[str, Any] = {}
            while read <= number:
                both, read = dict(next(others)), read + 1
            both = _taken(both, places)
            yield both | _taken(here, places), both | _taken(there, places), len(places)


def _group_rows(file: FeedFile) -> Sequence[int]:
    metadata = file.parquet.metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _differing_places(here: Mapping[str, Any], there: Mapping[str, Any]) -> pa.UInt64Array:
    same = reduce(pc.and_, (same_values(here[name], there[name]) for name in here))
    places: pa.UInt64Array = pc.indices_nonzero(pc.invert(same))
    return places


def _taken(columns: Mapping[str, Any], places: pa.UInt64Array) -> dict[str, Any]:
    return {name: column.take(places) for name, column in columns.items()}


def _same_bytes(old: FeedFile, new: FeedFile, group: int, name: str) -> bool:
    """Return whether a column chunk has the same bytes in both files, and so the same values."""
    here, there = old.columns[name], new.columns[name]
    ours, theirs = (f.parquet.metadata.row_group(group).column(at) for f, at in ((old, here), (new, there)))
    if (
        ours.total_compressed_size != theirs.total_compressed_size
        or ours.total_compressed_size > _CHUNK_BYTES
        or ours.compression != theirs.compression
        or ours.num_values != theirs.num_values
        or not old.parquet.schema.column(here).equals(new.parquet.schema.column(there))
    ):
        return False
    return old.encoded(group, here) == new.encoded(group, there)
