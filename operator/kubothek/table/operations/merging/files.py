"""The files of a merge, in parallel: each worker rewrites files with its own writer, in bounded memory.

Arrow and DuckDB do the work outside of Python's lock.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa

from kubothek.errors import RowsLost, StoreError
from kubothek.storage import Store
from kubothek.table.expressions.computed import Evaluator
from kubothek.table.files import MEMORY_BUDGET, PartitionedWriter
from kubothek.table.log import PartitionFile
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.merging.model import MergeAction
from kubothek.table.operations.merging.rows import Positions, Rules, changes_any, inserted_rows, merged_rows
from kubothek.table.operations.merging.search import FileMatches, Matches
from kubothek.table.operations.merging.source import MergeSource
from kubothek.table.operations.written import Gathered
from kubothek.table.scan.read import read_failure

_BATCHES_AHEAD: Final = 4
_INSERTS_AT_ONCE: Final = 1 << 18
"""Rows that one worker inserts together."""


@dataclass(slots=True)
class MergedFiles:
    """The result of a merge. The new files are not visible yet.

    ``removed``   labels of the files that are replaced
    ``added``     new files
    ``gathered``  index entries of ``added``, and their descriptions
    ``expected``  number of rows that the new files are to have
    """

    removed: list[str] = field(default_factory=list)
    added: list[PartitionFile] = field(default_factory=list)
    gathered: Gathered = field(default_factory=Gathered)
    expected: int = 0

    @classmethod
    def joined(cls, parts: Sequence[MergedFiles]) -> MergedFiles:
        """Return the joined results of several workers."""
        return cls(
            [label for part in parts for label in part.removed],
            [file for part in parts for file in part.added],
            Gathered.joined(part.gathered for part in parts),
            sum(part.expected for part in parts),
        )


def merge_files(
    copying: Copying,
    store: Store,
    rules: Rules,
    source: MergeSource,
    matches: Matches,
    *,
    all_files: bool,
    threads: int | None = None,
) -> MergedFiles:
    """Rewrite the files that a clause changes, and write the rows that are inserted; after an error delete all again.

    ``all_files``  also look for changes in files without matches
    ``threads``    how many at most; None = one for each core

    Raises VersionIncomplete if a file is gone, RowsLost, what :class:`PartitionedWriter` raises, and SchemaMismatch or
    InputError for a value that does not fit.
    """
    workers = max(1, min(threads or os.cpu_count() or 1, len(matches.files)))
    tasks = _Tasks(_tasks(rules, source, matches, all_files=all_files))
    done: list[MergedFiles] = []
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="merge") as pool:
            running = [
                pool.submit(_work, copying, store, rules, source, tasks, MEMORY_BUDGET // workers)
                for _ in range(workers)
            ]
        done = [each.result() for each in running if each.exception() is None]
        errors = [error for each in running if (error := each.exception()) is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, _Cancelled)), errors[0])
        merged = MergedFiles.joined(done)
        written = sum(file.rows for file in merged.added)
        if written != merged.expected:
            raise RowsLost(
                f"{merged.expected} rows of {copying.table.uuid!r} were to be written, but {written} were; try again"
            )
    except BaseException:
        with suppress(StoreError):
            store.delete([file.key for part in done for file in part.added])
        raise
    return merged


def _tasks(
    rules: Rules, source: MergeSource, matches: Matches, *, all_files: bool
) -> Iterator[FileMatches | Positions]:
    """Yield the files to look at, then the numbers of the source rows to insert."""
    if rules.changes_matches or rules.changes_others:
        yield from matches.by_file(all_files=all_files)
    if rules.inserts:
        yield from matches.missing(source, _INSERTS_AT_ONCE)


class _Tasks:
    """Tasks for several threads; none is left after an error of one."""

    def __init__(self, tasks: Iterator[FileMatches | Positions]) -> None:
        self._tasks = tasks
        self._lock = Lock()
        self.failed = False

    def next(self) -> FileMatches | Positions | None:
        """Return a task; None if there are no more."""
        with self._lock:
            return None if self.failed else next(self._tasks, None)


class _Cancelled(Exception):
    """Another worker failed."""


def _work(copying: Copying, store: Store, rules: Rules, source: MergeSource, tasks: _Tasks, memory: int) -> MergedFiles:
    done = MergedFiles()
    gatherer = copying.gatherer(store)
    try:
        with (
            closing(Evaluator()) as evaluator,
            copying.writer(store, gatherer, memory_budget=memory) as writer,
        ):
            while (task := tasks.next()) is not None:
                if isinstance(task, FileMatches):
                    _rewrite(copying, store, rules, source, task, writer, evaluator, done)
                else:
                    for rows in inserted_rows(rules, source.take(task), evaluator):
                        writer.write(rows)
                        done.expected += rows.num_rows
            if tasks.failed:
                raise _Cancelled
            done.added = writer.finish()
            done.gathered = gatherer.finish()
    except BaseException:
        tasks.failed = True
        raise
    return done


def _rewrite(
    copying: Copying,
    store: Store,
    rules: Rules,
    source: MergeSource,
    task: FileMatches,
    writer: PartitionedWriter,
    evaluator: Evaluator,
    done: MergedFiles,
) -> None:
    """Write the rows of a file as they are after the merge, unless no clause changes one."""
    always = (rule.where is None and rule.action is not MergeAction.NOTHING for rule in rules.matched[:1])
    is_sure = len(task.at) > 0 and any(always)
    if not is_sure and not _is_changed(copying, store, rules, source, task, evaluator):
        return
    done.removed.append(task.file.label)
    for rows, at, matching in _pieces(copying, store, task, source, rules.schema.names):
        merged = merged_rows(rules, rows, at, matching, evaluator)
        done.expected += rows.num_rows - merged.deleted
        writer.write(merged.rows)


def _is_changed(
    copying: Copying, store: Store, rules: Rules, source: MergeSource, task: FileMatches, evaluator: Evaluator
) -> bool:
    columns = sorted(rules.conditions) or [source.key[0]]
    pieces = _pieces(copying, store, task, source, columns)
    with closing(pieces):
        return any(changes_any(rules, rows, at, matching, evaluator) for rows, at, matching in pieces)


def _pieces(
    copying: Copying, store: Store, task: FileMatches, source: MergeSource, columns: Sequence[str]
) -> Generator[tuple[pa.Table, Positions, pa.Table], None, None]:
    """Yield the rows of a file in pieces: rows, positions of those with a match, and the source rows of these."""
    dataset = copying.open(store, [task.file.key])
    start = 0
    try:
        for batch in dataset.scanner(columns=list(columns), batch_readahead=_BATCHES_AHEAD).to_batches():
            end = start + batch.num_rows
            first, last = np.searchsorted(task.at, [start, end])
            yield pa.Table.from_batches([batch]), task.at[first:last] - start, source.take(task.numbers[first:last])
            start = end
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error
