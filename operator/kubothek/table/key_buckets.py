"""Rows divided by a hash of their key, so that equal keys of all tasks meet in one task."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from kubothek.in_memory_database import in_memory_database
from kubothek.table.carried import Carrier

_BUCKET: Final = "bucket"


class KeyBuckets:
    """Assigns rows to buckets in which equal keys meet. Not thread-safe: its database is one connection."""

    def __init__(self, schema: pa.Schema, key: tuple[str, ...], count: int) -> None:
        """``schema``  of the rows; equal keys are in one bucket of ``count``, also -0.0 and 0.0, and all NaN."""
        self._carrier = Carrier(pa.schema([schema.field(column) for column in key]))
        self._key = list(key)
        self._query = f"SELECT hash({', '.join(self._carrier.inside.names)}) % {count} AS {_BUCKET} FROM rows"  # noqa: S608
        self._database = in_memory_database(threads=1)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each bucket, in their present order."""
        self._database.register("rows", pa.Table.from_batches([self._carrier.carry(batch.select(self._key))]))
        found: Any = self._database.sql(self._query).to_arrow_table().column(_BUCKET).to_numpy().astype("int64")
        self._database.unregister("rows")
        order = found.argsort(kind="stable")
        moved, numbers = batch.take(pa.array(order)), found[order]
        starts = [0, *((numbers[1:] != numbers[:-1]).nonzero()[0] + 1).tolist(), len(numbers)]
        for start, end in pairwise(starts):
            if end > start:
                yield int(numbers[start]), moved.slice(start, end - start)
