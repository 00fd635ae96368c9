"""The rows of a change feed as a stream, in bounded memory.

Rows of files that were only added or only removed stream from the files. Removed and added files of one commit are
compared by DuckDB, which spills to disk what exceeds its memory limit. Items are computed some at a time, because one
statement for many small commits takes a fraction of the time of a statement for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.errors import StoreError
from kubothek.storage.base import Store
from kubothek.table.changes.cancel import comparable, uncancelled
from kubothek.table.changes.files import open_changes
from kubothek.table.changes.plan import COMMIT_VERSION, Changes, FileChanges, with_feed_columns
from kubothek.table.changes.relation import difference
from kubothek.table.scan.read import read_failure
from kubothek.table.scratch import MEMORY, Scratch
from kubothek.table.time_zones import in_zones

_FILES: Final = 1024
_BYTES: Final = 256 << 20
"""Most files, and bytes of added files, that one statement compares, unless a single item has more."""
_BATCHES_AHEAD: Final = 8
_FILES_AHEAD: Final = 4


def changed_rows(
    store: Store, changes: Changes, items: Sequence[FileChanges] | None = None, *, memory: str = MEMORY
) -> pa.RecordBatchReader:
    """Return the rows of a feed, in order of versions, in the schema ``changes.schema``.

    ``items``   those of ``changes`` to compute, in their order; None = all
    ``memory``  limit of the database that compares rows, in DuckDB's notation

    The stream raises VersionIncomplete if a file is missing, StoreError if one cannot be read, MergeTooLarge if rows
    exceed the memory limit and the disk.
    """
    batches = _batches(store, changes, changes.items if items is None else items, memory)
    return pa.RecordBatchReader.from_batches(changes.schema, batches)


def _batches(store: Store, changes: Changes, items: Sequence[FileChanges], memory: str) -> Iterator[pa.RecordBatch]:
    shown = changes.schema
    with _Comparison(store, changes, memory) as comparison:
        for some in _portions(items):
            streamed = _streamed(store, [item for item in some if not item.compared], changes.stored)
            with closing(comparison.rows([item for item in some if item.compared])) as compared:
                for batch in heapq.merge(streamed, compared, key=_version):
                    yield in_zones(batch, shown)


def _portions(items: Iterable[FileChanges]) -> Iterator[list[FileChanges]]:
    """Divide items into portions that one statement compares."""
    portion: list[FileChanges] = []
    files = size = 0
    for item in items:
        more = len(item.removed) + len(item.added)
        if portion and (files + more > _FILES or size + item.bytes > _BYTES):
            yield portion
            portion, files, size = [], 0, 0
        portion.append(item)
        files, size = files + more, size + item.bytes
    if portion:
        yield portion


def _version(batch: pa.RecordBatch) -> int:
    """Return the version of a batch, all of whose rows have the same one."""
    version: int = batch.column(COMMIT_VERSION)[0].as_py()
    return version


def _streamed(store: Store, items: Sequence[FileChanges], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of items that need no comparison."""
    if not items:
        return
    yield from _scanned(store, open_changes(store, items, schema))


def _scanned(store: Store, dataset: ds.FileSystemDataset) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of the files. Raises VersionIncomplete, StoreError."""
    try:
        for batch in dataset.scanner(batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD).to_batches():
            if batch.num_rows:
                yield batch
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


class _Comparison:
    """Compares rows in a database, which is made when it is first needed."""

    def __init__(self, store: Store, changes: Changes, memory: str) -> None:
        self._store = store
        self._schema = pa.schema([each.with_type(_stand_in(each.type)) for each in changes.stored])
        self._shown = with_feed_columns(changes.stored)
        self._key = [changes.stored.get_field_index(name) for name in changes.key]
        self._memory = memory
        self._held = ExitStack()

    def __enter__(self) -> _Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def rows(self, items: Sequence[FileChanges]) -> Generator[pa.RecordBatch]:
        """Yield the changed rows, by version; no batch has rows of two versions."""
        if not items:
            return
        scratch = self._scratch
        source = scratch.register("compared", self._source(items))
        try:
            query = difference(source, scratch.columns(source), self._key, ordered=True)
            for batch in scratch.rows(query):
                yield from self._by_version(batch)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise StoreError(f"cannot compare rows of the table in {self._store.url}: {error}") from error
        finally:
            scratch.forget(source)

    @cached_property
    def _scratch(self) -> Scratch:
        return self._held.enter_context(Scratch(self._memory, needs="the changes of one commit need"))

    def _source(self, items: Sequence[FileChanges]) -> pa.RecordBatchReader:
        """Return the rows to compare, once: without those that a rewrite left in their places, if Arrow can tell."""
        schema = with_feed_columns(self._schema)
        return pa.RecordBatchReader.from_batches(schema, (batch for item in items for batch in self._of(item)))

    def _of(self, item: FileChanges) -> Iterator[pa.RecordBatch]:
        old, new = (self._scan(each) for each in (replace(item, added=()), replace(item, removed=())))
        return uncancelled(old, new, len(self._schema)) if comparable(self._schema) else chain(old, new)

    def _scan(self, item: FileChanges) -> Iterator[pa.RecordBatch]:
        return _scanned(self._store, open_changes(self._store, [item], self._schema))

    def _by_version(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip(batch.columns, self._shown, strict=True)
        ]
        typed = pa.RecordBatch.from_arrays(columns, schema=self._shown)
        versions = typed.column(COMMIT_VERSION).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist(), typed.num_rows]
        for start, end in pairwise(bounds):
            if start < end:
                yield typed.slice(start, end - start)


def _stand_in(data_type: Any) -> pa.DataType:
    """Return the type in which DuckDB compares values of a type: its intervals are no durations."""
    types = pa.types
    if types.is_duration(data_type):
        return pa.int64()
    if types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_stand_in(data_type.value_type)))
    if types.is_struct(data_type):
        return pa.struct([each.with_type(_stand_in(each.type)) for each in data_type])
    found: pa.DataType = data_type
    return found
