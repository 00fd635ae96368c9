"""A Ledger strategy in many processes: rows with the same key meet, and the first stays if its key was never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from kubothek.odf.dataset.ingesting import history_of
from kubothek.odf.merge.batch import Rows
from kubothek.odf.merge.ledger import unseen
from kubothek.odf.spec.layout import Layout
from kubothek.odf.validation.state import ChainState
from kubothek.odf.view import seen_of
from kubothek.storage import Store
from kubothek.table.log import Snapshot
from kubothek.table.log.model import keys
from kubothek.table.scratch import ROW, Scratch


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
