"""The file with the state between runs: tables in order of their keys, in segments that are packed separately.

A run unpacks the segments with its keys, and copies the bytes of all others. Layout: magic, segments (Arrow IPC
streams, zstd), an index of each table (first key and position of each segment), a JSON footer, its length, magic.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import orjson
import pyarrow as pa

from kubothek.errors import FormatInvalid
from kubothek.odf.transform.places import Bytes

MAGIC: Final = b"KUBOTHEK-STATE-1"
SEGMENT_ROWS: Final = 4_096
_AT_ONCE: Final = 256
"""Adjacent segments that are fetched at a time."""
_LENGTH: Final = struct.Struct("<Q")
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")
PLACE: Final = pa.schema([("__at", pa.int64()), ("__bytes", pa.int64()), ("__rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class Stored:
    """A table of a checkpoint.

    ``columns``  with their types as DuckDB writes them, in the order of the rows
    ``index``    for each segment, the columns of its first row, and its position
    """

    columns: Mapping[str, str]
    index: pa.Table


class Reader:
    """A reader of a checkpoint. Raises FormatInvalid."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self.header, self.tables = self._footer()

    def _footer(self) -> tuple[dict[str, Any], dict[str, Stored]]:
        data, tail = self._data, _LENGTH.size + len(MAGIC)
        ending = bytes(data.read(max(0, data.size - tail), tail))
        if bytes(data.read(0, len(MAGIC))) != MAGIC or not ending.endswith(MAGIC) or len(ending) < tail:
            raise FormatInvalid("the checkpoint is not a state of this engine; rebuild the derivative")
        (length,) = _LENGTH.unpack(ending[: _LENGTH.size])
        try:
            footer = orjson.loads(self._part(data.size - tail - length, length))
            header, tables = dict(footer["header"]), dict(footer["tables"])
            return header, {name: self._table(table) for name, table in tables.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(error) from error

    def _table(self, table: Any) -> Stored:
        columns = {str(name): str(kind) for name, kind in table["columns"].items()}
        stored = Stored(columns, _unpacked(self._part(table["at"], table["bytes"])))
        schema = stored.index.schema
        last = [(field.name, field.type) for field in schema][-len(PLACE) :]
        if not set(columns) <= set(schema.names) or last != [(field.name, field.type) for field in PLACE]:
            raise ValueError("an index has other columns")
        at, sizes = (stored.index.column(name).to_numpy() for name in ("__at", "__bytes"))
        if any(stored.index.column(name).null_count for name in PLACE.names) or not stored.index.num_rows:
            raise ValueError("an index has gaps")
        if (at < 0).any() or (sizes < 0).any() or (at > self._data.size).any() or (sizes > self._data.size - at).any():
            raise ValueError("an index leads out of the file")
        return stored

    def _part(self, at: int, length: int) -> memoryview:
        if not 0 <= at <= at + length <= self._data.size:
            raise _damaged(f"{length} bytes at {at} are not in it")
        return self._data.read(at, length)

    def segments(self, table: str, numbers: Iterable[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of segments, in ascending order, with the number of the segment."""
        if table not in self.tables:  # a table without rows is not stored
            return
        index = self.tables[table].index
        at, sizes = index.column("__at").to_numpy(), index.column("__bytes").to_numpy()
        for first, end in _beside(numbers):
            start = int(at[first])
            data = self._part(start, int(at[end - 1] + sizes[end - 1]) - start)
            for number in range(first, end):
                begin = int(at[number]) - start
                rows = _unpacked(data[begin : begin + int(sizes[number])])
                if rows.schema.types != index.schema.types[: -len(PLACE)]:
                    raise _damaged(f"segment {number} has other columns than the index")
                for batch in rows.to_batches():
                    yield number, batch

    def raw(self, table: str, first: int, end: int) -> memoryview:
        """Return the bytes of consecutive segments. Raises FormatInvalid if they are not stored consecutively."""
        index = self.tables[table].index.slice(first, end - first)
        at, sizes = index.column("__at").to_numpy(), index.column("__bytes").to_numpy()
        if (at[1:] != (at + sizes)[:-1]).any():
            raise FormatInvalid("the checkpoint has segments that are not in order; rebuild the derivative")
        return self._part(int(at[0]), int(at[-1] + sizes[-1] - at[0]))


def _damaged(why: object) -> FormatInvalid:
    return FormatInvalid(f"the checkpoint cannot be read: {why}; rebuild the derivative")


def _beside(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield consecutive numbers as half-open ranges of at most ``_AT_ONCE``."""
    first = end = -1
    for number in numbers:
        if number != end or number - first >= _AT_ONCE:
            if end > first:
                yield first, end
            first = number
        end = number + 1
    if end > first:
        yield first, end


class Writer:
    """A writer of a checkpoint: one table after another, each in order. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._file.write(MAGIC)
        self._at = len(MAGIC)
        self._tables: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def table(self, name: str, columns: Mapping[str, str]) -> TableWriter:
        """Begin a table."""
        return TableWriter(self, name, columns)

    def write(self, data: Any) -> tuple[int, int]:
        """Write bytes, and return their position and length."""
        at = self._at
        self._file.write(data)
        self._at += len(data)
        return at, len(data)

    def close_table(self, name: str, columns: Mapping[str, str], index: pa.Table | None) -> None:
        """Add the index of a complete table."""
        if index is not None:
            at, length = self.write(packed(index))
            self._tables[name] = {"columns": dict(columns), "at": at, "bytes": length}

    def finish(self, header: Mapping[str, Any]) -> None:
        """Write the footer, after all tables are complete."""
        footer = orjson.dumps({"header": header, "tables": self._tables}, option=orjson.OPT_SORT_KEYS)
        self._file.write(footer + _LENGTH.pack(len(footer)) + MAGIC)
        self._file.flush()


class TableWriter:
    """One table of a new checkpoint."""

    def __init__(self, writer: Writer, name: str, columns: Mapping[str, str]) -> None:
        self._writer = writer
        self._name = name
        self._columns = columns
        self._index: list[pa.Table] = []
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows of the table."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= 2 * SEGMENT_ROWS:
            table = pa.Table.from_batches(self._waiting)
            whole = (self._rows // SEGMENT_ROWS - 1) * SEGMENT_ROWS
            for start in range(0, whole, SEGMENT_ROWS):
                self._segment(table.slice(start, SEGMENT_ROWS))
            self._waiting, self._rows = table.slice(whole).to_batches(), self._rows - whole

    def flush(self) -> None:
        """Write the waiting rows, so that the next ones begin a segment."""
        if self._rows:
            self._segment(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0

    def copy(self, data: memoryview, stored: Stored, first: int, end: int) -> None:
        """Copy segments unchanged."""
        self.flush()
        at, _ = self._writer.write(data)
        index = stored.index.slice(first, end - first)
        places = index.column("__at").to_numpy()
        moved = pa.array(places - places[0] + at, pa.int64())
        self._index.append(index.set_column(index.schema.get_field_index("__at"), PLACE.field("__at"), moved))

    def close(self) -> None:
        """Complete the table."""
        self.flush()
        index = pa.concat_tables(self._index).combine_chunks() if self._index else None
        self._writer.close_table(self._name, self._columns, index)

    def _segment(self, rows: pa.Table) -> None:
        rows = rows.take(
            pa.array(range(rows.num_rows), pa.int32())
        )  # sets the values under NULLs to zero, so that bytes are reproducible
        first = rows.slice(0, 1)
        for field, value in zip(
            PLACE, (*self._writer.write(packed(rows.combine_chunks())), rows.num_rows), strict=True
        ):
            first = first.append_column(field, pa.array([value], pa.int64()))
        self._index.append(first)


def rewrite(
    table: TableWriter,
    before: Reader | None,
    name: str,
    changed: Collection[int],
    rows: Iterable[tuple[int, pa.RecordBatch]],
) -> None:
    """Rewrite a table: write the changed segments from the new rows, and copy all others.

    ``before``   the checkpoint with the previous table, if any
    ``changed``  numbers of segments
    ``rows``     all new rows of these, with the number of the segment that they replace, in order
    """
    if before is None or (stored := before.tables.get(name)) is None:
        for _, batch in rows:
            table.add(batch)
        table.close()
        return
    steps = iter(rows)
    waiting = next(steps, None)
    copied = 0
    for number in [*sorted(changed), stored.index.num_rows]:
        if copied < number:
            table.copy(before.raw(name, copied, number), stored, copied, number)
        copied = number + 1
        while waiting is not None and waiting[0] == number:
            table.add(waiting[1])
            waiting = next(steps, None)
    table.close()


def _unpacked(data: memoryview) -> pa.Table:
    """Unpack a table. Raises FormatInvalid for invalid data, with which Arrow would read beyond its buffers."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        return unfolded(table)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise _damaged(error) from error


def packed(table: pa.Table) -> memoryview:
    """Return an Arrow IPC stream, with repeated texts dictionary-encoded: the offsets of texts compress badly."""
    sink, table = pa.BufferOutputStream(), folded(table)
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
        stream.write_table(table)
    return memoryview(sink.getvalue())


def folded(table: pa.Table) -> pa.Table:
    """Dictionary-encode the text columns whose values repeat: at most half as many values as rows. One chunk each."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) and table.num_rows:
            column = table.column(place).combine_chunks().dictionary_encode()
            if 2 * len(column.dictionary) <= table.num_rows:
                table = table.set_column(place, field.name, column)
    return table


def unfolded(table: pa.Table) -> pa.Table:
    """Decode the dictionary columns."""
    for place, field in enumerate(table.schema):
        if isinstance(field.type, pa.DictionaryType):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table
