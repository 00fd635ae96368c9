"""Read the rows of work items from files, several files at once, in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from kubothek.cores import available_cores
from kubothek.storage.base import Store
from kubothek.table.changes.aligned import are_aligned, differing
from kubothek.table.changes.cancel import uncancelled
from kubothek.table.changes.files import open_changes
from kubothek.table.changes.parquet import FeedFile, FeedFiles
from kubothek.table.changes.plan import DELETE, INSERT, FileChanges
from kubothek.table.scan.read import read_failure

_FILES_AT_ONCE: Final = 4
_RUN: Final = 4
"""Files that one task reads: a file of some thousand rows takes less time than to start a task."""
_AHEAD: Final = 3
"""Most runs of files that are read before their rows are consumed."""
_LARGE_AT_ONCE: Final = 8
"""Files given to Arrow's dataset at a time."""
_BATCHES_AHEAD: Final = 8
_FILES_AHEAD: Final = 4

T = TypeVar("T")
R = TypeVar("R")


class _Side(NamedTuple):
    """A file of an item."""

    item: FileChanges
    kind: str
    key: str


class _Pair(NamedTuple):
    """Files of an item that may be replaced by each other: one and one, or all."""

    item: FileChanges
    removed: tuple[str, ...]
    added: tuple[str, ...]


def files_at_once(store: Store) -> int:
    """Return how many threads read files: more than there are cores only wait for a store that is not local."""
    return _FILES_AT_ONCE if store.reads_at_once > 1 else min(_FILES_AT_ONCE, available_cores())


class FeedReader:
    """Reads rows of a table, with the columns of a feed.

    ``schema``  in which its rows are read
    ``pool``    reads small files; it has :func:`files_at_once` threads

    The streams raise VersionIncomplete if a file is missing, StoreError if one cannot be read, AccessDenied for a
    symbolic link and PartitionInvalid for a path that does not fit the schema.
    """

    def __init__(self, store: Store, schema: pa.Schema, pool: Executor) -> None:
        self._store = store
        self._schema = schema
        self._files = FeedFiles(store, schema)
        self._pool = pool

    def rows(self, items: Sequence[FileChanges]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of removed files as ``delete`` and of added ones as ``insert``, item by item."""
        self._check(items)
        found = self._ahead(self._small, [side for item in items for side in _sides(item)])
        for is_small, group in groupby(found, key=lambda each: each[1] is not None):
            if is_small:
                for _, batches in group:
                    yield from batches or ()
            else:
                while some := [_part(*side) for side, _ in islice(group, _LARGE_AT_ONCE)]:
                    yield from self._scanned(some)

    def remainder(self, items: Sequence[FileChanges]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows, without some of those that an item both removes and adds. No column is nested."""
        self._check(items)
        found = self._ahead(self._differing, [pair for item in items for pair in _pairs(item)])
        for _, group in groupby(found, key=lambda each: id(each[0].item)):
            others = []
            for pair, batches in group:
                if batches is None:
                    others.append(pair)
                else:
                    yield from batches
            if others:
                yield from self._uncancelled(others)

    # --- files of the types of the table ----------------------------------------------------------------------------

    def _small(self, side: _Side) -> list[pa.RecordBatch] | None:
        """Return the rows of a file; None if Arrow's dataset has to read it."""
        with self._failures(side.item, side.key):
            found = self._files.open(side.key)
            if found is None or not found.is_small:
                return None
            return [self._batch(side.item, side.kind, found, *rows) for rows in found.whole()]

    def _differing(self, pair: _Pair) -> Iterable[pa.RecordBatch] | None:
        """Return the rows in which two files differ; None if their rows are not in the same places."""
        if len(pair.removed) != 1 or len(pair.added) != 1:
            return None
        with self._failures(pair.item, *pair.removed):
            old = self._files.open(pair.removed[0])
        with self._failures(pair.item, *pair.added):
            new = self._files.open(pair.added[0])
        if old is None or new is None or not are_aligned(old, new):
            return None
        batches = self._differences(pair, old, new)
        return list(batches) if old.is_small and new.is_small else batches

    def _differences(self, pair: _Pair, old: FeedFile, new: FeedFile) -> Iterator[pa.RecordBatch]:
        with self._failures(pair.item, *pair.removed, *pair.added):
            for before, after, rows in differing(old, new):
                yield self._batch(pair.item, DELETE, old, before, rows)
                yield self._batch(pair.item, INSERT, new, after, rows)

    def _batch(
        self, item: FileChanges, kind: str, file: FeedFile, columns: Mapping[str, Any], rows: int
    ) -> pa.RecordBatch:
        return self._files.batch(columns, file.constants, rows, (kind, item.version, item.time))

    def _ahead(self, act: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Yield each task with its result, in order; some tasks run ahead."""
        running: deque[Future[list[tuple[T, R]]]] = deque()
        left = iter(tasks)
        while run := list(islice(left, _RUN)):
            running.append(self._pool.submit(_results, act, run))
            if len(running) > _AHEAD:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()

    # --- any files ---------------------------------------------------------------------------------------------------

    def _uncancelled(self, pairs: Sequence[_Pair]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of pairs of one item, but for equal ones at the same place of all removed and added files."""
        item = pairs[0].item
        removed = [key for pair in pairs for key in pair.removed]
        added = [key for pair in pairs for key in pair.added]
        old, new = (self._scanned([_part(item, *side)]) for side in ((DELETE, *removed), (INSERT, *added)))
        return uncancelled(old, new, len(self._schema))

    def _scanned(self, items: Sequence[FileChanges]) -> Iterator[pa.RecordBatch]:
        dataset = open_changes(self._store, items, self._schema)
        scanner = dataset.scanner(batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD)
        with self._failures(items[0], *dataset.files[:1]):
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch

    def _check(self, items: Sequence[FileChanges]) -> None:
        self._store.check_no_links([key for item in items for key in (*item.removed, *item.added)])

    @contextmanager
    def _failures(self, item: FileChanges, *keys: str) -> Iterator[None]:
        """Raise VersionIncomplete or StoreError for a read of these files that fails."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            dataset = open_changes(self._store, [_part(item, DELETE, *keys)], self._schema)
            raise read_failure(self._store, dataset, error) from error


def _results(act: Callable[[T], R], tasks: Sequence[T]) -> list[tuple[T, R]]:
    return [(task, act(task)) for task in tasks]


def _sides(item: FileChanges) -> Iterator[_Side]:
    yield from (_Side(item, DELETE, key) for key in item.removed)
    yield from (_Side(item, INSERT, key) for key in item.added)


def _pairs(item: FileChanges) -> Iterator[_Pair]:
    """Yield the files in pairs, in their order: a rewrite keeps it. Other numbers of files are compared as a whole."""
    if len(item.removed) != len(item.added):
        yield _Pair(item, item.removed, item.added)
        return
    for old, new in zip(item.removed, item.added, strict=True):
        yield _Pair(item, (old,), (new,))


def _part(item: FileChanges, kind: str, *keys: str) -> FileChanges:
    """Return the item with these files only, on one side."""
    return replace(item, removed=keys, added=()) if kind == DELETE else replace(item, removed=(), added=keys)
