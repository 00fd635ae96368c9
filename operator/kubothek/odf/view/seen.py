"""Lookups of merge strategies in a ledger's records: in its table if that suffices, else in the slices.

The table holds the records that are not retracted; if none was ever retracted, it holds the whole chain. The cost of a
lookup is proportional to the keys looked up, not to the existing records: see :mod:`.keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from kubothek.odf.view.history import History
from kubothek.odf.view.keys import KeySearch, in_table, rows_of_keys, table_rows
from kubothek.odf.view.state import standing
from kubothek.odf.view.types import as_in_slices, common_to
from kubothek.storage import Store
from kubothek.table.log import Snapshot
from kubothek.table.scan.read import scan
from kubothek.table.scratch import Scratch


class ChainSeen:
    """Lookups in the slices alone, for a ledger without a table. A lookup reads the key columns of all records."""

    def __init__(self, history: History, scratch: Scratch, keyed_by: tuple[str, ...] | None = None) -> None:
        self._history = history
        self._scratch = scratch
        self._keyed_by = keyed_by

    @property
    def empty(self) -> bool:
        """See :class:`~kubothek.odf.merge.Seen`."""
        return not self._history.records

    @property
    def schema(self) -> pa.Schema | None:
        """See :class:`~kubothek.odf.merge.Seen`."""
        return None if self._history.schema is None else self._history.columns

    def keys(self, keys: pa.Table) -> Any:
        """See :class:`~kubothek.odf.merge.Seen`."""
        search = KeySearch(keys, self._scratch)
        search.look_through(self._history.scan(keys.schema.names), self._history.as_read(keys.schema.names))
        return pa.array(search.found)

    def keyed_by(self, key: Sequence[str]) -> bool:
        """See :class:`~kubothek.odf.merge.Seen`."""
        return self.empty or self._keyed_by == tuple(sorted(key))

    @property
    def standing(self) -> int | None:
        """See :class:`~kubothek.odf.merge.Seen`."""
        return None

    def state(self) -> pa.RecordBatchReader:
        """See :class:`~kubothek.odf.merge.Seen`."""
        names = [self._history.vocabulary.offset, *self._history.columns.names]
        return pa.RecordBatchReader.from_batches(
            self._history.as_read(names), standing(self._history, names, self._scratch)
        )

    def state_of(self, keys: pa.Table) -> pa.RecordBatchReader:
        """See :class:`~kubothek.odf.merge.Seen`."""
        state = self.state()
        held = self._scratch.hold(state, state.schema).select(state.schema.names)  # reading it takes the scratch
        return rows_of_keys(held.to_reader(), keys, self._scratch).to_reader()

    def records(self) -> pa.RecordBatchReader:
        """See :class:`~kubothek.odf.merge.Seen`."""
        names = [self._history.vocabulary.offset, self._history.vocabulary.op, *self._history.columns.names]
        return pa.RecordBatchReader.from_batches(self._history.as_read(names), self._history.scan(names))


class TableSeen(ChainSeen):
    """Lookups in the table of this snapshot, which is the view of this chain."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        history: History,
        scratch: Scratch,
        keyed_by: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(history, scratch, keyed_by)
        self._store = store
        self._snapshot = snapshot

    def keys(self, keys: pa.Table) -> Any:
        """See :class:`~kubothek.odf.merge.Seen`."""
        search = KeySearch(keys, self._scratch)
        in_table(self._store, self._snapshot, search)
        if not self._whole:
            # Retracted records count as seen (MS-03), and are in slices only.
            names = keys.schema.names
            search.look_through(self._history.scan(names, self._history.takes_back()), self._history.as_read(names))
        return pa.array(search.found)

    @property
    def standing(self) -> int | None:
        """See :class:`~kubothek.odf.merge.Seen`."""
        totals = self._snapshot.totals
        return None if totals is None else totals.rows

    def state(self) -> pa.RecordBatchReader:
        """See :class:`~kubothek.odf.merge.Seen`."""
        names = [self._history.vocabulary.offset, *self._history.columns.names]
        schema = self._history.as_read(names)
        return pa.RecordBatchReader.from_batches(schema, self._from_table(schema))

    def state_of(self, keys: pa.Table) -> pa.RecordBatchReader:
        """See :class:`~kubothek.odf.merge.Seen`."""
        schema = self._history.as_read([self._history.vocabulary.offset, *self._history.columns.names])
        return table_rows(self._store, self._snapshot, keys, schema, self._scratch).to_reader()

    def _from_table(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = common_to(schema.names, self._snapshot.schema)
        for batch in scan(self._store, self._snapshot, names):
            yield as_in_slices(batch, schema)

    @property
    def _whole(self) -> bool:
        """Whether the table has a row for each record, so that none was ever retracted."""
        return self.standing == self._history.records


def seen_of(
    store: Store,
    snapshot: Snapshot,
    history: History,
    scratch: Scratch,
    *,
    table: bool = True,
    keyed_by: tuple[str, ...] | None = None,
) -> ChainSeen:
    """Return the lookups; ``table`` says whether the ledger has one, ``keyed_by`` what is known of the keys in it."""
    if not table or snapshot.schema is None:
        return ChainSeen(history, scratch, keyed_by)
    return TableSeen(store, snapshot, history, scratch, keyed_by)
