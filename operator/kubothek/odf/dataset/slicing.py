"""Ordered rows become slices: Parquet files as the reference writes them, hashed while they are written.

Each slice is one row group (SL-18) in Parquet 1.0, compressed by Snappy, without Arrow's own schema, so that readers
hash the same columns. Records are hashed concurrently with the caller, and a slice is encoded and stored concurrently
with the next one. Memory is bounded by a few times ``slice_bytes``, whatever the number of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import DataTypeMismatch, InputError, SchemaMismatch
from kubothek.odf.sources.readers import latest_event_time
from kubothek.odf.spec.digest import LogicalHash
from kubothek.odf.spec.events import DataSlice, OffsetInterval
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.table.schema import require_distinct
from kubothek.table.structs import settled

SLICE_BYTES: Final = 128 << 20
"""The approximate size of a slice's file."""
_IN_MEMORY: Final = 2
"""A slice is closed when its rows take this multiple of ``slice_bytes`` in memory, however well they compress."""
_DICTIONARY_BYTES: Final = 1 << 17
"""The most bytes of a column's dictionary in a slice; beyond it, values are written one by one."""
_PIECE: Final = 1 << 17
"""Rows that are hashed at a time; a slice ends between two such pieces."""
_MILLISECOND: Final = 10**6
_TIME: Final = pa.timestamp("ms", "UTC")


class Types(StrEnum):
    """The types of ``offset`` and ``op``: signed as the reference writes them, or as the specification says."""

    KAMU = "kamu"
    SPEC = "spec"

    @classmethod
    def of(cls, schema: pa.Schema, vocabulary: Vocabulary) -> Self:
        """Return the types in slices of this schema."""
        return cls.SPEC if schema.field(vocabulary.offset).type == cls.SPEC.offset else cls.KAMU

    @property
    def offset(self) -> pa.DataType:
        """The type of offsets."""
        return pa.int64() if self is Types.KAMU else pa.uint64()

    @property
    def op(self) -> pa.DataType:
        """The type of operations."""
        return pa.int32() if self is Types.KAMU else pa.uint8()


@dataclass(frozen=True, slots=True)
class Sliced:
    """A stored slice: its description in the event, and its rows' greatest event time, if any has one."""

    data: DataSlice
    latest: Timestamp | None


def slice_schema(rows: pa.Schema, vocabulary: Vocabulary, types: Types) -> pa.Schema:
    """Return the schema of slices of such rows, which begin with operation and event time (SL-11 … SL-17).

    Types are those that are read back from a file. Raises SchemaMismatch for two columns of one name, InputError for a
    column whose type has no logical hash.
    """
    require_distinct(rows.names)
    common: list[pa.Field[Any]] = [
        pa.field(vocabulary.offset, types.offset),
        pa.field(vocabulary.op, types.op, nullable=False),
        pa.field(vocabulary.system_time, _TIME, nullable=False),
    ]
    data = (_decoded(field).remove_metadata() for field in rows if field.name != vocabulary.op)
    wanted = pa.schema([*common, *data])
    try:
        LogicalHash(wanted)
        file = pa.BufferReader(empty_file(wanted, vocabulary))
        found: pa.Schema = _FILE(file, arrow_extensions_enabled=False).schema_arrow
    except (pa.ArrowException, InputError) as error:
        raise SchemaMismatch(f"a slice cannot hold these columns: {error}") from error
    return found.remove_metadata()


def evolved(before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """Return the schema of later slices, given the previous one; columns may only be added (EVO-01, EVO-02).

    Columns keep their places, and new ones come last. Raises SchemaMismatch, which names every column in conflict.
    """
    problems = [f"column {name!r} is missing" for name in before.names if name not in now.names]
    there = (field for field in before if field.name in now.names)
    problems += [
        f"column {field.name!r} is {now.field(field.name).type}, and was {field.type}"
        for field in there
        if not _fits(now.field(field.name).type, field.type)
    ]
    if problems:
        raise SchemaMismatch(f"these rows do not go with those before: {'; '.join(problems)}; columns are only added")
    new = [field.with_nullable(True) for field in now if field.name not in before.names]
    return pa.schema([*before, *new])


class SliceWriter:
    """Numbers rows and writes them as slices. Use it as a context manager, from one thread.

    ``layout``        of the chain in the store
    ``schema``        of slices (:func:`slice_schema`)
    ``first_offset``  of the first row
    ``system_time``   of all rows; slices hold milliseconds
    ``note_written``  is called with the key of each slice before it is written

    A slice is stored under its physical hash once it is complete; nothing refers to it before a block does.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        schema: pa.Schema,
        vocabulary: Vocabulary,
        *,
        first_offset: int,
        system_time: Timestamp,
        slice_bytes: int = SLICE_BYTES,
        note_written: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._store = store
        self._layout = layout
        self._schema = schema
        self._vocabulary = vocabulary
        self._next = first_offset
        self._time = system_time
        self._slice_bytes = slice_bytes
        self._note_written = note_written
        self._batches: list[pa.RecordBatch] = []
        self._held = 0
        self._ratio = 1.0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="slices")
        self._storing = ThreadPoolExecutor(1, thread_name_prefix="stores")
        self._columns = ThreadPoolExecutor(3, thread_name_prefix="columns")
        self._hasher = LogicalHash(schema, self._columns)
        self._hashed: list[Future[None]] = []
        self._under_way: deque[Future[Sliced]] = deque()
        self._written: list[Sliced] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._storing.shutdown(cancel_futures=True)
        self._columns.shutdown()

    def write(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add rows of operation, event time and data, in their final order; return them with offset and system time.

        Raises DataTypeMismatch for a value that its column cannot hold, SchemaMismatch for a column that is missing.
        """
        made = numbered(rows, self._schema, self._vocabulary, self._next, self._time)
        self.take(made)
        return made

    def take(self, rows: pa.RecordBatch) -> None:
        """Add rows that have all columns of slices; their offsets continue the last ones."""
        for start in range(0, rows.num_rows, _PIECE):
            piece = rows.slice(start, _PIECE)
            self._batches.append(piece)
            self._hashed.append(self._pool.submit(self._hasher.update, piece))
            self._held += piece.nbytes
            self._next += piece.num_rows
            if self._held * self._ratio >= self._slice_bytes or self._held >= _IN_MEMORY * self._slice_bytes:
                self._gather()
                self._close()

    def seal(self) -> None:
        """Close the last slice, which is then written concurrently with the caller; no rows may follow."""
        self._close()

    def finish(self) -> list[Sliced]:
        """Return the slices, oldest first. Raises StoreError."""
        self.seal()
        self._gather()
        return self._written

    def _close(self) -> None:
        if not self._batches:
            return
        table, self._batches, self._held = pa.Table.from_batches(self._batches), [], 0
        hasher, hashed = self._hasher, self._hashed
        self._hasher, self._hashed = LogicalHash(self._schema, self._columns), []
        encoded = self._columns.submit(slice_file, table, self._vocabulary)

        first = self._next - table.num_rows

        def store() -> Sliced:
            for future in hashed:
                future.result()
            return self._store_slice(table, first, hasher.finish(), encoded.result())

        self._under_way.append(self._storing.submit(store))

    def _gather(self) -> None:
        """Wait for the slices in progress: at most one while rows come, and the last one."""
        while self._under_way:
            self._written.append(self._under_way.popleft().result())

    def _store_slice(self, table: pa.Table, first: int, logical: Multihash, content: pa.Buffer) -> Sliced:
        self._ratio = min(1.0, content.size / max(1, table.nbytes))
        physical = Multihash.sha3(memoryview(content))
        key = self._layout.data(physical)
        self._note_written(key)
        # Written even if it exists: this repairs a damaged object, and renews its age for the garbage collector.
        self._store.put(key, memoryview(content))
        return Sliced(
            DataSlice(
                logical_hash=logical,
                physical_hash=physical,
                offset_interval=OffsetInterval(start=first, end=first + table.num_rows - 1),
                size=content.size,
            ),
            latest_event_time(table.column(self._vocabulary.event_time)),
        )


def numbered(
    rows: pa.RecordBatch, schema: pa.Schema, names: Vocabulary, first_offset: int, system_time: Timestamp
) -> pa.RecordBatch:
    """Return rows as a slice of this schema has them, with offset and system time.

    Raises DataTypeMismatch for a value that its column cannot hold, SchemaMismatch for a column that is missing.
    """
    count = rows.num_rows
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    time = pa.scalar(system_time.nanoseconds // _MILLISECOND, pa.int64()).cast(_TIME)
    made = {names.offset: pa.array(offsets), names.system_time: _repeat(time, count)}
    columns: list[Any] = []
    for field in schema:
        column = made[field.name] if field.name in made else _column(rows, field)
        columns.append(cast_column(column, field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_FILE: Final[Any] = pq.ParquetFile  # the stubs lack some of its options
_repeat: Final[Any] = pa.repeat  # the stubs lack this type


def slice_file(table: pa.Table, vocabulary: Vocabulary) -> pa.Buffer:
    """Return the file of a slice. Raises DataTypeMismatch for values that Parquet cannot hold."""
    sink = pa.BufferOutputStream()
    try:
        with _writer(sink, table.schema, vocabulary) as writer:
            writer.write_table(table, row_group_size=table.num_rows)
    except pa.ArrowInvalid as error:
        raise DataTypeMismatch(f"rows that no slice can hold: {error}") from error
    return sink.getvalue()


def empty_file(schema: pa.Schema, vocabulary: Vocabulary) -> pa.Buffer:
    """Return the file of a slice without records. Raises what Arrow raises for columns that Parquet cannot hold."""
    sink = pa.BufferOutputStream()
    _writer(sink, schema, vocabulary).close()
    return sink.getvalue()


def _writer(sink: Any, schema: pa.Schema, vocabulary: Vocabulary) -> Any:
    """Return a writer of a slice's file.

    Offsets ascend by one and event times mostly do, so they are delta-encoded; operation and system time are nearly
    always the same (SL-12 … SL-14). Other columns have dictionaries while these are small. So files are smaller, and
    read and verified faster.
    """
    make: Any = pq.ParquetWriter
    ascending = (vocabulary.offset, vocabulary.event_time)
    return make(
        sink,
        schema,
        version="1.0",
        compression="snappy",
        use_dictionary=[name for name in schema.names if name not in ascending],
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        column_encoding=dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
        store_schema=False,
        coerce_timestamps="ms",
    )


def _decoded(field: pa.Field[Any]) -> pa.Field[Any]:
    """Return the field without dictionary encoding, which only concerns the memory layout."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _column(rows: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    """Return a column of these rows; one that they lack was added for other rows, and is NULL here."""
    position = rows.schema.get_field_index(field.name)
    return pa.nulls(rows.num_rows, field.type) if position < 0 else rows.column(position)


def cast_column(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """Cast values to the type of a column. Raises DataTypeMismatch for one that it cannot hold exactly."""
    if not field.nullable and column.null_count:
        raise DataTypeMismatch(f"column {field.name!r} cannot be null, and is null in {column.null_count} rows")
    try:
        made: pa.Array[Any] = settled(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataTypeMismatch(f"column {field.name!r}: cannot store {column.type} as {field.type}: {error}") from error
    return made


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the column takes values of this type; single values that do not fit are found later."""
    if found == wanted or pa.types.is_null(found):
        return True
    kinds = (
        (pa.types.is_integer,),
        (pa.types.is_floating, pa.types.is_integer),
        (pa.types.is_decimal, pa.types.is_integer),
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
        (pa.types.is_struct,),
    )
    return any(kind[0](wanted) and any(is_(found) for is_ in kind) for kind in kinds)
