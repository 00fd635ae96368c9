"""A Ledger strategy in many processes: rows with the same key meet, and the first stays if its key was never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from kubothek.in_memory_database import in_memory_database
from kubothek.odf.dataset.ingesting import history_of
from kubothek.odf.merge.batch import Rows
from kubothek.odf.merge.ledger import unseen
from kubothek.odf.spec.layout import Layout
from kubothek.odf.validation.state import ChainState
from kubothek.odf.view import seen_of
from kubothek.storage import Store
from kubothek.table.carried import Carrier
from kubothek.table.log import Snapshot
from kubothek.table.log.model import keys
from kubothek.table.scratch import ROW, Scratch

_BUCKET: Final = "bucket"


class Buckets:
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


@dataclass(frozen=True, slots=True)
class Unseen:
    """A version of a dataset and its chain, in which keys are looked up; plain data."""

    uuid: str
    snapshot: Snapshot
    state: ChainState
    table: bool
    key: tuple[str, ...]

    def of(self, store: Store, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the new rows in input order; ``rows`` are all rows with some keys, in that order.

        Raises MergeTooLarge, StoreError.
        """
        with Scratch() as scratch:
            history = history_of(store, Layout(keys.chain(self.uuid)), self.state)
            given = Rows.of(rows, scratch)
            seen = seen_of(store, self.snapshot, history, scratch, table=self.table)
            chosen, _ = unseen(given, self.key, seen, scratch)
            query = f"SELECT {given.columns} FROM {given.table} SEMI JOIN {chosen} USING ({ROW}) ORDER BY {ROW}"  # noqa: S608
            for batch in scratch.rows(query):
                columns = given.carrier.restore(batch.columns)
                yield pa.RecordBatch.from_arrays(columns, schema=given.carrier.schema)
