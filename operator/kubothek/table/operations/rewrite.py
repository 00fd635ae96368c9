"""Row-level changes: copies of the files that hold matching rows, with these rows changed or left out.

A file is read in two steps. The first reads the columns of the filter only and counts; a file without matches stays.
The second streams the file's rows into new files of the table's layout, so an updated row moves to its new partition.
Several files share a writer, so small files do not stay small.

:mod:`kubothek.spark.rewrite` does the same on many machines with :func:`rewrite_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import RowsLost
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.expressions.computed import Compiled, Evaluator
from kubothek.table.log import PartitionFile
from kubothek.table.operations.assignments import computed, patched
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.filters import surely
from kubothek.table.operations.written import Gathered
from kubothek.table.scan.plan import PlannedFile
from kubothek.table.scan.read import read_failure

_BATCHES_AHEAD: Final = 8
_MATCHES: Final = "__matches"
"""A name that no column can have."""


@dataclass(frozen=True, slots=True)
class Rewrite(Copying):
    """The change of the matching rows; sent to executors.

    ``where``   bound to ``schema``
    ``values``  new values of matching rows, by column, in its type or as expressions; None = matching rows are removed
    """

    where: Predicate
    values: tuple[tuple[str, Any], ...] | None

    @property
    def expressions(self) -> dict[str, Compiled]:
        """The values that are computed from the row."""
        return {name: value for name, value in self.values or () if isinstance(value, Compiled)}

    @property
    def matches(self) -> pc.Expression:
        """Whether a row matches; never null."""
        return surely(self.where.expression())


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a rewrite. The new files are not visible yet.

    ``removed``   labels of the files that held matches
    ``added``     files that replace them
    ``matched``   number of matching rows
    ``kept``      number of other rows in these files
    ``gathered``  index entries of ``added``, and their descriptions
    """

    removed: tuple[str, ...] = ()
    added: tuple[PartitionFile, ...] = ()
    matched: int = 0
    kept: int = 0
    gathered: Gathered = field(default_factory=Gathered)


Rewriter = Callable[[Rewrite, Sequence[PlannedFile]], Rewritten]
"""Rewrites files, in this process or with Spark."""


def rewrite_here(store: Store, report: Callable[[int, int, int], None] = lambda done, total, rows: None) -> Rewriter:
    """Return a rewriter in this process; ``report`` gets files done, files in all, and matching rows so far."""

    def run(rewrite: Rewrite, files: Sequence[PlannedFile]) -> Rewritten:
        return rewrite_files(rewrite, store, files, lambda done, rows: report(done, len(files), rows))

    return run


def rewrite_files(
    rewrite: Rewrite,
    store: Store,
    files: Sequence[PlannedFile],
    report: Callable[[int, int], None] = lambda done, rows: None,
) -> Rewritten:
    """Rewrite those files that hold matches, one by one, in bounded memory.

    Raises VersionIncomplete if a file is gone, what :class:`PartitionedWriter` raises, and RowsLost if the number of
    rows written is wrong.
    """
    removed = []
    matched = kept = 0
    gatherer = rewrite.gatherer(store)
    with rewrite.writer(store, gatherer) as writer:
        for done, file in enumerate(files):
            hits, rows = count_matches(rewrite, store, file)
            if hits:
                removed.append(file.label)
                matched, kept = matched + hits, kept + rows - hits
                if rewrite.values is not None or hits < rows:
                    for batch in _stream(rewrite, store, file):
                        writer.write(batch)
            report(done + 1, matched)
        added = tuple(writer.finish())
    result = Rewritten(tuple(removed), added, matched, kept, gatherer.finish())
    require_all_rows(rewrite, result)
    return result


def require_all_rows(rewrite: Rewrite, done: Rewritten) -> None:
    """Raise RowsLost unless the new files have exactly as many rows as were to be written."""
    written = sum(file.rows for file in done.added)
    expected = done.kept if rewrite.values is None else done.kept + done.matched
    if written != expected:
        raise RowsLost(f"{expected} rows of {rewrite.table.uuid!r} were to be rewritten, but {written} were; try again")


def count_matches(rewrite: Rewrite, store: Store, file: PlannedFile) -> tuple[int, int]:
    """Return how many rows of the file match, and how many it has; reads the columns of the filter.

    Raises VersionIncomplete if it is gone.
    """
    dataset = rewrite.open(store, [file.key])
    try:
        rows = dataset.count_rows()
        return (rows if file.all_rows else dataset.count_rows(filter=rewrite.matches)), rows
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _stream(rewrite: Rewrite, store: Store, file: PlannedFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows as they are after the change, a few batches in memory at a time."""
    dataset = rewrite.open(store, [file.key])
    names = rewrite.schema.names
    if rewrite.values is None:
        columns, kept = {name: pc.field(name) for name in names}, ~rewrite.matches
    else:
        values = {
            name: pc.if_else(rewrite.matches, pa.scalar(value, rewrite.schema.field(name).type), pc.field(name))
            for name, value in rewrite.values
            if not isinstance(value, Compiled)
        }
        columns, kept = {name: values.get(name, pc.field(name)) for name in names}, None
    if rewrite.expressions:
        columns = {name: pc.field(name) for name in names} | {_MATCHES: rewrite.matches}
    try:
        scanner = dataset.scanner(columns=cast("Any", columns), filter=kept, batch_readahead=_BATCHES_AHEAD)
        batches = scanner.to_batches()
        yield from _computed(rewrite, batches) if rewrite.expressions else batches
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _computed(rewrite: Rewrite, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows with new values; all expressions see the values before the change."""
    literals = {name: value for name, value in rewrite.values or () if not isinstance(value, Compiled)}
    with closing(Evaluator()) as evaluator:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            at = np.flatnonzero(rows.column(_MATCHES).to_numpy())
            rows = rows.drop_columns([_MATCHES])
            matching = rows.take(cast("Any", pa.array(at)))
            values: dict[str, Any] = {
                name: pa.repeat(pa.scalar(value, rewrite.schema.field(name).type), len(at))
                for name, value in literals.items()
            }
            values |= computed(rewrite.expressions, matching, rewrite.schema, evaluator)
            yield from patched(rows, [(at, values)]).combine_chunks().to_batches()
