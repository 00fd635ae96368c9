"""Collect index entries in the pass that writes data files, or in one that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.indexes.entries import sort_labelled
from kubothek.table.indexes.model import Collected, IndexFile
from kubothek.table.indexes.native import write_files
from kubothek.table.indexes.types import indexable
from kubothek.table.ordered_calls import OrderedCalls

MEMORY_BUDGET: Final = 24 << 20
"""Sorting briefly takes several times as much."""
_PIECE_BYTES: Final = 256
"""Approximate memory of a small array in addition to its data."""
_THREADS: Final = 2
"""That sort and store entries of one column each, while more rows are observed."""
_CODE_BYTES: Final = 4
"""Of the label of a value."""


class IndexCollector:
    """Observer of rows during a write; it stores which values each file has.

    ``columns``        stored type by name of the columns to index
    ``memory_budget``  bytes of entries in memory; when exceeded, they are stored as a sorted file, and as many may
                       come meanwhile

    It stores files in the form of native indices, whatever the kind of the final index. They are invisible until a
    commit names them; garbage collection deletes those of a failed commit. Not thread-safe.
    """

    def __init__(
        self, store: Store, uuid: str, columns: Mapping[str, pa.DataType], *, memory_budget: int = MEMORY_BUDGET
    ) -> None:
        self._store = store
        self._uuid = uuid
        self._columns = dict(columns)
        self._budget = memory_budget
        self._labels: set[str] = set()
        self._held: dict[str, list[tuple[str, pa.Array[Any]]]] = {column: [] for column in columns}
        self._bytes = 0
        self._storing: OrderedCalls[tuple[str, tuple[IndexFile, ...]]] = OrderedCalls(_THREADS, "index")
        self._files: dict[str, tuple[IndexFile, ...]] = dict.fromkeys(columns, ())

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Record rows that go into the file of this label, which may get more."""
        self.note(label)
        for column in self._columns:
            self.observe_values(label, column, pa.chunked_array([batch.column(column) for batch in batches]))

    def note(self, label: str) -> None:
        """Record that the file of this label exists, whatever its values."""
        self._labels.add(label)

    def observe_values(self, label: str, column: str, values: pa.ChunkedArray[Any]) -> None:
        """Record values of one column that go into the file of this label."""
        found = indexable(values, self._columns[column])
        if len(found):
            self._held[column].append((label, found))
            self._bytes += found.nbytes + _CODE_BYTES * len(found) + _PIECE_BYTES
        if self._bytes > self._budget:
            self._store_held()

    def add(self, other: Collected) -> None:
        """Add the entries that another collector of the same columns collected in another task."""
        self._labels |= other.labels
        for column, files in other.files.items():
            self._files[column] += files

    def finish(self) -> Collected:
        """Store the entries in memory, and return all observed entries."""
        self._store_held()
        self._take_stored()
        self._storing.stop()
        return Collected(frozenset(self._labels), dict(self._files))

    def _store_held(self) -> None:
        """Start to store the entries in memory, once those before are stored."""
        self._take_stored()
        for column, held in self._held.items():
            if held:
                self._storing.add(partial(self._store_entries, column, tuple(held)), self._bytes)
                held.clear()
        self._bytes = 0

    def _store_entries(
        self, column: str, held: Sequence[tuple[str, pa.Array[Any]]]
    ) -> tuple[str, tuple[IndexFile, ...]]:
        return column, write_files(self._store, self._uuid, column, [sort_labelled(held)])

    def _take_stored(self) -> None:
        try:
            while self._storing:
                column, files = self._storing.take()
                self._files[column] += files
        except BaseException:
            self._storing.stop()
            raise
