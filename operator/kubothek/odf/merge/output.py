"""The output of a merge: records in their order, not numbered yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from kubothek.odf.merge.batch import RETRACTS, Rows, fill
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, RETRACT
from kubothek.table.scratch import ROW, Scratch

_OP_TYPE: Final = pa.int32()
_OFFSET_TYPE: Final = pa.int64()
OFFSETS: Final = "r"
OPS: Final = "op"
"""Names of the columns in queries for rows with operations of their own."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The records ``[op, event_time, data…, __retracts]``, to be read once.

    ``counts``    the number of records of each operation
    ``keyed_by``  columns, ascending, for which :meth:`Seen.keyed_by` holds with these records; None: not known
    """

    rows: pa.RecordBatchReader
    counts: Mapping[int, int]
    keyed_by: tuple[str, ...] | None = None

    @property
    def rows_in_all(self) -> int:
        """The number of records."""
        return sum(self.counts.values())

    @property
    def retracts(self) -> bool:
        """Whether any of them retracts a record."""
        return bool(self.counts.get(RETRACT) or self.counts.get(CORRECT_FROM))


@dataclass(frozen=True, slots=True)
class Output:
    """Conversion of the records of a batch to output.

    ``op``      the name of the operation's column
    ``moment``  the event time of records that have none
    """

    op: str
    moment: datetime
    scratch: Scratch

    def appended(self, rows: Rows, chosen: str | None = None, count: int | None = None) -> Merged:
        """Return records of the batch as additions, in the order of their event times.

        ``chosen``  a table with the numbers ``n`` of the records to return; None = all
        ``count``   their number
        """
        number = rows.count if chosen is None or count is None else count
        batches: Iterable[pa.RecordBatch]
        if number == rows.count and rows.ordered:
            batches = rows.held.select(rows.carrier.inside.names).to_batches()
        else:
            where = "" if number == rows.count else f"SEMI JOIN {chosen} USING ({ROW})"
            query = f"SELECT {rows.columns} FROM {rows.table} {where} ORDER BY {_TIME} ASC NULLS FIRST, {ROW}"  # noqa: S608
            batches = self.scratch.rows(query)
        return self._merged(rows, batches, _additions, {APPEND: number})

    def passed(self, rows: pa.RecordBatchReader, count: int) -> Merged:
        """Return all these records as additions, in their present order."""
        schema = self._schema(rows.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                first, *others = batch.columns
                op, retracts = _additions(batch, 0)
                yield pa.RecordBatch.from_arrays([op, fill(first, self.moment), *others, retracts], schema=schema)

        return Merged(pa.RecordBatchReader.from_batches(schema, batches()), {APPEND: count} if count else {})

    def mixed(self, rows: Rows, query: str, counts: Mapping[int, int]) -> Merged:
        """Return the rows of a query: the batch's columns, then ``op``, then the offset of the retracted record."""
        return self._merged(rows, self.scratch.rows(query), _given, counts)

    def _merged(
        self, rows: Rows, batches: Iterable[pa.RecordBatch], extra: _Extra, counts: Mapping[int, int]
    ) -> Merged:
        schema = self._schema(rows.carrier.schema)
        found = {op: count for op, count in counts.items() if count}
        return Merged(pa.RecordBatchReader.from_batches(schema, self._shaped(rows, batches, extra, schema)), found)

    def _schema(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([pa.field(self.op, _OP_TYPE, nullable=False), *rows, pa.field(RETRACTS, _OFFSET_TYPE)])

    def _shaped(
        self, rows: Rows, batches: Iterable[pa.RecordBatch], extra: _Extra, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        width = len(rows.carrier.schema)
        for batch in batches:
            first, *others = rows.carrier.restore(batch.columns[:width])
            op, retracts = extra(batch, width)
            yield pa.RecordBatch.from_arrays([op, fill(first, self.moment), *others, retracts], schema=schema)


_TIME: Final = "c0"
_Extra = Callable[[pa.RecordBatch, int], tuple[Any, Any]]


def _additions(batch: pa.RecordBatch, _: int) -> tuple[Any, Any]:
    return pa.repeat(pa.scalar(APPEND, _OP_TYPE), batch.num_rows), pa.nulls(batch.num_rows, _OFFSET_TYPE)


def _given(batch: pa.RecordBatch, width: int) -> tuple[Any, Any]:
    return batch.column(width).cast(_OP_TYPE), batch.column(width + 1).cast(_OFFSET_TYPE)
