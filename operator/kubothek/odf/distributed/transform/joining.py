"""Joining of the results of a run's parts, to the same bytes as in one process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.distributed.transform.work import ROWS, STATE, Left
from kubothek.odf.transform.checkpoint import Reader, Writer, rewrite
from kubothek.odf.transform.output import ORDER
from kubothek.odf.transform.places import Mapped
from kubothek.odf.transform.state import by_segment


def rows_of(file: Path, table: str = ROWS) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table in the file of a part, in their order."""
    reader = Reader(Mapped(file))
    if (stored := reader.tables.get(table)) is not None:
        yield from (batch for _, batch in reader.segments(table, range(stored.index.num_rows)))


Parts = Sequence[tuple[Left, Path]]
"""The results of one step, in the order of their keys, each with its local file."""


def join_states(steps: Sequence[Parts], before: Reader | None, path: Path, header: Mapping[str, Any]) -> None:
    """Write the new checkpoint from the parts of all steps, in their order."""
    with Writer(path) as writer:
        for parts in steps:
            for number in range(len(parts[0][0].tables)):
                _join_table(writer, before, parts, number)
        writer.finish(header)


def _join_table(writer: Writer, before: Reader | None, parts: Parts, number: int) -> None:
    """Write a table of a step. Changed segments of which no part gives the rows keep the rows of ``before``."""
    tables = [left.tables[number] for left, _ in parts]
    name, columns = tables[0].name, tables[0].columns
    changed = {segment for table in tables for segment in table.segments}
    if before is None or name not in before.tables:
        rows = _in_place(parts, name, None)
    else:
        given = {segment for table in tables for segment in table.given}
        others = before.segments(name, sorted(changed - given))
        rows = merge(_in_place(parts, name, changed), others, key=itemgetter(0))
    rewrite(writer.table(name, columns), before, name, changed, rows)


def _in_place(parts: Parts, table: str, changed: set[int] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of all parts, without those of segments that no part changes; None: the table is new."""
    for _, file in parts:
        for batch in rows_of(file, STATE + table):
            yield from (each for each in by_segment(batch) if changed is None or each[0] in changed)


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge streams that are in the order of :data:`~kubothek.odf.transform.output.ORDER`, and drop that column.

    Rows of one key are in one stream, in their order already.
    """
    heads = [head for stream in streams if (head := _Head(stream)).there]
    while heads:
        until = min(head.last for head in heads)
        taken = [rows for head in heads if (rows := head.take(until)).num_rows]
        heads = [head for head in heads if head.there]
        if len(taken) == 1:
            yield taken[0].drop_columns([ORDER])
            continue
        table = pa.Table.from_batches(taken).combine_chunks()
        order: Any = pc.sort_indices(table.column(ORDER))  # a stable sort
        yield from table.take(order).drop_columns([ORDER]).combine_chunks().to_batches()


class _Head:
    """The next rows of a stream."""

    def __init__(self, stream: Iterator[pa.RecordBatch]) -> None:
        self._stream = stream
        self._next()

    def _next(self) -> None:
        self._rows = next((batch for batch in self._stream if batch.num_rows), None)

    @property
    def there(self) -> bool:
        """Whether there are any."""
        return self._rows is not None

    @property
    def last(self) -> bytes:
        """The sort key of the last of them."""
        return self._at(-1)

    def _at(self, number: int) -> bytes:
        assert self._rows is not None, "it is asked before"
        rows = self._rows
        found: bytes = rows.column(ORDER)[number % rows.num_rows].as_py()
        return found

    def take(self, until: bytes) -> pa.RecordBatch:
        """Remove and return those with sort keys up to ``until``."""
        assert self._rows is not None, "it is asked before"
        rows = self._rows
        count = bisect_right(range(rows.num_rows), until, key=self._at)
        self._rows = rows.slice(count)
        if count == rows.num_rows:
            self._next()
        return rows.slice(0, count)
