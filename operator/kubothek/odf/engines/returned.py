"""Validation of an engine's output (EN-16, EN-17, DT-07).

The file is a private copy, so it cannot change between validation and use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import EngineMisbehaved
from kubothek.odf.derived.running import Task
from kubothek.odf.problems import Severity
from kubothek.odf.spec.engine_messages import TransformResponseSuccess
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.columns import column_problems
from kubothek.odf.validation.row_checks import RowChecks
from kubothek.odf.validation.slice_columns import SliceColumns
from kubothek.odf.validation.state import Vocabulary
from kubothek.table.untrusted_parquet import UNREADABLE, open_parquet_file

_MILLISECOND: Final = 10**6
_ROWS: Final = 1 << 16


def returned_rows(task: Task, answer: TransformResponseSuccess, file: Path | None) -> pa.RecordBatchReader:
    """Return the rows ``[op, event_time, data…]`` of an engine.

    ``file``  with its output; None: there is none, and the reader has neither rows nor columns

    Raises EngineMisbehaved unless the rows are the requested records: with consecutive offsets, operations of a ledger,
    the system time of the request, and valid columns of a slice.
    """
    interval, names = answer.new_offset_interval, task.vocabulary
    if file is None:
        if interval is not None:
            raise _wrong(f"it says that it made records {interval.start} to {interval.end}, and left no file of them")
        return pa.RecordBatchReader.from_batches(pa.schema([]), ())
    if interval is None:
        raise _wrong("it left a file of records, and does not say which they are")
    if interval.start != task.next_offset or interval.end < interval.start:
        raise _wrong(f"its records {interval.start} to {interval.end} do not begin with {task.next_offset}")
    try:
        with file.open("rb") as opened:
            _require_sound(SliceColumns(opened), names, interval.start, interval.end, task.system_time)
            parquet = open_parquet_file(str(file), arrow_extensions_enabled=False)
    except UNREADABLE as error:
        raise _wrong(f"its file of records cannot be read: {error}") from error
    wanted = [names.op, names.event_time, *(name for name in parquet.schema_arrow.names if name not in names.names)]
    fields = [parquet.schema_arrow.field(name).remove_metadata() for name in wanted]
    schema = pa.schema([pa.field(names.op, pa.int32(), nullable=False), *fields[1:]])
    return pa.RecordBatchReader.from_batches(schema, _batches(parquet, wanted, schema))


def _require_sound(columns: SliceColumns, names: Vocabulary, first: int, last: int, system_time: Timestamp) -> None:
    """Check the records against the response. Raises EngineMisbehaved, and what Arrow raises."""
    for problem in column_problems(columns.schema, names):
        if problem.severity is Severity.ERROR:
            raise _wrong(f"its records: {problem}")
    if columns.rows != last - first + 1:
        raise _wrong(f"its file has {columns.rows} records, and it says that they are {first} to {last}")
    checks = RowChecks(names, first)
    for rows in columns.batches([columns.schema.get_field_index(name) for name in names.names[:3]]):
        checks.update(rows)
    for problem in checks.finish():
        raise _wrong(f"its records: {problem}")
    asked = system_time.nanoseconds // _MILLISECOND
    if {checks.first_time, checks.last_time} != {asked}:
        raise _wrong(f"its records do not have the system time {system_time} that they were asked to have")


def _batches(parquet: Any, wanted: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for batch in parquet.iter_batches(_ROWS, use_threads=False):
            columns = [batch.column(name).cast(field.type) for name, field in zip(wanted, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except UNREADABLE as error:
        raise _wrong(f"its file of records cannot be read: {error}") from error


def returned_watermark(task: Task, answer: TransformResponseSuccess, *, remembers: bool) -> Timestamp | None:
    """Return the watermark after a run: the engine's, or the previous one if that is later and ``remembers`` is false.

    ``remembers``  whether it received a checkpoint

    Raises EngineMisbehaved for a watermark that goes back, or exceeds those of all inputs.
    """
    told, before = answer.new_watermark, task.previous_watermark
    if before is not None and (told is None or told < before):
        if not remembers:
            return before
        raise _wrong(f"its watermark is {told}, after {before}: a watermark does not go back (DT-07)")
    marks = [each.watermarks[-1][1] if each.watermarks else each.previous_watermark for each in task.batch.inputs]
    highest = max((mark for mark in (*marks, before) if mark is not None), default=None)
    if told is not None and (highest is None or told > highest):
        raise _wrong(f"its watermark is {told}, and no input has one beyond {highest}")
    return told


def _wrong(what: str) -> EngineMisbehaved:
    return EngineMisbehaved(f"the engine does not keep the contract: {what}")
