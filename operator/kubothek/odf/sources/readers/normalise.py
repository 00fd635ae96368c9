"""Rows of any source in the columns and types of a ledger (WR-01, WR-02, WR-04)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SchemaMismatch
from kubothek.odf.sources.readers.coerce import to_utc
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import Vocabulary

MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Normalised:
    """``rows`` are [event time, data…]; ``event_time_given`` is whether the source had an event time column."""

    rows: pa.RecordBatchReader
    event_time_given: bool


def normalise(
    rows: pa.RecordBatchReader, *, vocabulary: Vocabulary, event_time: Timestamp, operations: bool = False
) -> Normalised:
    """Convert all timestamps to UTC milliseconds, and give rows without an event time that of the source.

    An event time of type DATE stays one. A column of operations is data if ``operations``. Raises SchemaMismatch for
    columns named like system columns, duplicate names, and an event time of another type.
    """
    given = vocabulary.event_time in rows.schema.names
    _check(rows.schema, vocabulary, operations=operations)
    first = rows.schema.field(vocabulary.event_time) if given else pa.field(vocabulary.event_time, MILLISECONDS)
    others = [field for field in rows.schema if field.name != vocabulary.event_time]
    fields = [first.with_nullable(True), *others]
    schema = pa.schema([pa.field(f.name, _target(f.type), f.nullable) for f in fields])
    return Normalised(pa.RecordBatchReader.from_batches(schema, _batches(rows, schema, event_time, given=given)), given)


def latest_event_time(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> Timestamp | None:
    """Return the latest event time, None if there is none; a date counts as its midnight."""
    latest = pc.max(values)
    if not latest.is_valid:
        return None
    milliseconds = latest.cast(pa.int32()).as_py() * _DAY if pa.types.is_date(values.type) else latest.value
    return Timestamp(int(milliseconds) * 10**6)


def _check(schema: pa.Schema, vocabulary: Vocabulary, *, operations: bool) -> None:
    names = schema.names
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise SchemaMismatch(f"the source has more than one column {twice[0]!r}; rename it in preprocess")
    for name in (vocabulary.offset, vocabulary.op, vocabulary.system_time):
        if name in names and not (operations and name == vocabulary.op):
            raise SchemaMismatch(
                f"the source has a column {name!r}, which is the ledger's own; rename it in preprocess, or rename the "
                "ledger's by SetVocab"
            )
    if vocabulary.event_time in names:
        kind = schema.field(vocabulary.event_time).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise SchemaMismatch(
                f"column {vocabulary.event_time!r} is the event time, but of type {kind}; make it TIMESTAMP or DATE, "
                "or rename it in preprocess"
            )


def _batches(
    rows: pa.RecordBatchReader, schema: pa.Schema, event_time: Timestamp, *, given: bool
) -> Iterator[pa.RecordBatch]:
    source_time = pa.scalar(event_time.nanoseconds // 10**6, pa.int64()).cast(MILLISECONDS)
    first = schema.field(0)
    filler: Any = source_time if first.type == MILLISECONDS else _date(event_time)
    for batch in rows:
        columns = [_converted(batch.column(field.name), field.type) for field in list(schema)[1:]]
        if given:
            times = _converted(batch.column(first.name), first.type)
            times = pc.fill_null(times, filler) if times.null_count else times
        else:
            times = pa.repeat(filler, batch.num_rows)
        yield pa.RecordBatch.from_arrays([times, *columns], schema=schema)


def _date(moment: Timestamp) -> pa.Scalar[Any]:
    return pa.scalar(moment.nanoseconds // (_DAY * 10**6), pa.int32()).cast(pa.date32())


def _target(kind: Any) -> Any:
    """Return the type that a ledger stores for a type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _target(kind.storage_type)
    if types.is_dictionary(kind):
        return _target(kind.value_type)
    if types.is_timestamp(kind):
        return MILLISECONDS
    if types.is_date(kind):
        return pa.date32()
    if types.is_null(kind) or types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if kind == pa.time32("s"):
        return pa.time32("ms")  # Parquet has no time32[s]
    if types.is_struct(kind):
        return pa.struct([field.with_type(_target(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_target(kind.value_type)))
    return kind


def _converted(values: Any, to: pa.DataType) -> Any:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == to:
        return values
    if pa.types.is_timestamp(values.type):
        return to_utc(values, to)
    return values.cast(to, safe=not pa.types.is_nested(to))  # nested timestamps lose finer digits
