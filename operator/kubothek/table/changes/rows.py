"""The rows of a change feed as a stream, in bounded memory.

Rows of files that were only added or only removed stream from the files. Removed and added files of one commit are
compared by DuckDB, which spills to disk what exceeds its memory limit. Items are computed some at a time, because one
statement for many small commits takes a fraction of the time of a statement for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from kubothek.errors import StoreError
from kubothek.storage.base import Store
from kubothek.table.changes.cancel import comparable
from kubothek.table.changes.plan import COMMIT_VERSION, Changes, FileChanges, with_feed_columns
from kubothek.table.changes.read import FeedReader, files_at_once
from kubothek.table.changes.relation import difference
from kubothek.table.changes.unmixed import unmixed_changes
from kubothek.table.scratch import MEMORY, Scratch
from kubothek.table.time_zones import in_zones

_FILES: Final = 1024
_BYTES: Final = 256 << 20
"""Most files, and bytes of added files, that one statement compares, unless a single item has more."""
_FEW_BYTES: Final = 32 << 20
"""Most bytes of rows that are compared without a database."""


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


def compared_rows(store: Store, schema: pa.Schema, items: Sequence[FileChanges]) -> Iterator[pa.RecordBatch]:
    """Yield the removed and added rows of items that are compared, without some of those that are equal.

    ``schema``  of the table, in which its rows are read

    Raises what the stream of :func:`changed_rows` raises for files.
    """
    with ThreadPoolExecutor(files_at_once(store), thread_name_prefix="changes") as pool:
        yield from _to_compare(FeedReader(store, schema, pool), schema, items)


def _to_compare(reader: FeedReader, schema: pa.Schema, items: Sequence[FileChanges]) -> Iterator[pa.RecordBatch]:
    return reader.remainder(items) if comparable(schema) else reader.rows(items)


def _batches(store: Store, changes: Changes, items: Sequence[FileChanges], memory: str) -> Iterator[pa.RecordBatch]:
    shown = changes.schema
    with (
        ThreadPoolExecutor(files_at_once(store), thread_name_prefix="changes") as pool,
        _Comparison(store, changes, memory, pool) as comparison,
    ):
        reader = FeedReader(store, changes.stored, pool)
        for some in portions(items):
            streamed = reader.rows([item for item in some if not item.compared])
            with closing(comparison.rows([item for item in some if item.compared])) as compared:
                for batch in heapq.merge(streamed, compared, key=_version):
                    yield batch if batch.schema.equals(shown) else in_zones(batch, shown)


def portions(items: Iterable[FileChanges]) -> Iterator[list[FileChanges]]:
    """Divide items, in their order, into portions that one statement compares."""
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


class _Comparison:
    """Compares rows in a database, which is made when it is first needed."""

    def __init__(self, store: Store, changes: Changes, memory: str, pool: Executor) -> None:
        self._store = store
        self._schema = pa.schema([each.with_type(_stand_in(each.type)) for each in changes.stored])
        self._shown = with_feed_columns(changes.stored)
        self._key = [changes.stored.get_field_index(name) for name in changes.key]
        self._memory = memory
        self._reader = FeedReader(store, self._schema, pool)
        self._held = ExitStack()

    def __enter__(self) -> _Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def rows(self, items: Sequence[FileChanges]) -> Generator[pa.RecordBatch]:
        """Yield the changed rows, by version; no batch has rows of two versions."""
        if not items:
            return
        batches = _to_compare(self._reader, self._schema, items)
        first, is_all = _first(batches)
        if is_all and comparable(self._schema):
            few = pa.Table.from_batches(first, with_feed_columns(self._schema))
            if (changed := unmixed_changes(few, self._key)) is not None:
                for batch in changed.combine_chunks().to_batches():
                    yield from self._by_version(batch)
                return
        yield from self._compared(chain(first, batches))

    def _compared(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows of these by means of the database."""
        scratch = self._scratch
        source = scratch.register(
            "compared", pa.RecordBatchReader.from_batches(with_feed_columns(self._schema), batches)
        )
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


def _first(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """Return batches up to a number of bytes, and whether these are all."""
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        found.append(batch)
        size += batch.nbytes
        if size > _FEW_BYTES:
            return found, False
    return found, True


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
