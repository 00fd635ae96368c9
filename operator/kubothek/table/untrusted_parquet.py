"""Damaged Parquet and Arrow files: what reading one raises, and what must be checked before one is read."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

DAMAGED: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError)
"""What pyarrow raises for a damaged Parquet or Arrow file: besides its own errors, those of Python for names that are
not UTF-8, for missing columns and for values that no type holds. Each reader turns these into a named error."""
UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, RuntimeError, MemoryError, OverflowError, KeyError)
"""What reading the rows of a damaged or foreign file can raise."""

_TAIL: Final = 1 << 16
"""Bytes that are read at once from the end of a file: most footers fit, as Arrow assumes as well."""
_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
"""Physical types by their number in parquet.thrift."""
# Field numbers of parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, SizeStatistics.
_ROW_GROUPS, _ALGORITHM, _COLUMNS, _META_DATA, _ENCRYPTED, _TYPE, _SIZES = 4, 8, 1, 3, 8, 1, 16
_TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 1, 2, 3


class ColumnsEncrypted(pa.ArrowInvalid):
    """Columns of the file are encrypted. What is decrypted is authenticated, so its footer needs no check."""


def open_parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file that another program may have written. Raises one of ``DAMAGED``.

    ``source`` and ``options`` are those of ``pyarrow.parquet.ParquetFile``.
    """
    if isinstance(source, str):
        source = pa.OSFile(source, mode="r")
    return pq.ParquetFile(source, metadata=checked_footer(source), **options)


def checked_footer(source: Any) -> pq.FileMetaData:
    """Read the footer of a Parquet file. Raises ArrowInvalid if Arrow cannot make the metadata of a column chunk, and
    ColumnsEncrypted.

    Arrow throws then where nothing catches it: the process is aborted, or a thread ends and its reader waits for ever
    (docs/decisions/0049-footers-are-checked-first.md). Neither metadata of column chunks nor rows of a file that
    another program may have written may be read before this check.
    """
    size = source.seek(0, io.SEEK_END)
    length = min(size, _TAIL)
    tail = _read(source, size - length, length)
    if tail[-4:] != b"PAR1" or length < 8:
        raise pa.ArrowInvalid("not a Parquet file, or an encrypted one")
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if footer > size:
        raise pa.ArrowInvalid(f"a footer of {footer:,} bytes in a file of {size:,}")
    if footer > length:
        tail = _read(source, size - footer, footer)
    made: pq.FileMetaData = pq.read_metadata(pa.BufferReader(tail))
    try:
        problem = _first_problem(_Compact(tail, len(tail) - footer).struct(), made)
    except (IndexError, RecursionError, AttributeError, TypeError) as error:
        problem = f"a footer that cannot be parsed: {error!r}"
    if problem is not None:
        raise pa.ArrowInvalid(problem)
    return made


def _first_problem(found: dict[int, Any], made: pq.FileMetaData) -> str | None:
    if _ALGORITHM in found:
        raise ColumnsEncrypted("its columns are encrypted")
    columns = [made.schema.column(number) for number in range(made.num_columns)]
    for number, group in enumerate(found.get(_ROW_GROUPS, ())):
        chunks = group.get(_COLUMNS, ())
        if len(chunks) != len(columns):
            return f"row group {number} has {len(chunks)} columns of {len(columns)}"
        for column, chunk in zip(columns, chunks, strict=True):
            if (problem := _problem(column, chunk)) is not None:
                return f"column {column.path!r} in row group {number} {problem}"
    return None


def _read(source: Any, at: int, size: int) -> bytes:
    source.seek(at)
    pieces = []
    while size > 0 and (piece := source.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _problem(column: Any, chunk: dict[int, Any]) -> str | None:
    if _ENCRYPTED in chunk:
        return "is encrypted"
    meta = chunk.get(_META_DATA, {})
    type_ = meta.get(_TYPE, -1)
    if not 0 <= type_ < len(_TYPES) or _TYPES[type_] != column.physical_type:
        return f"has type {type_}, in the schema {column.physical_type}"
    sizes = meta.get(_SIZES, {})
    if _TEXT_BYTES in sizes and column.physical_type != "BYTE_ARRAY":
        return f"counts bytes of texts, but is {column.physical_type}"
    levels = {_REPETITIONS: column.max_repetition_level, _DEFINITIONS: column.max_definition_level}
    for field, most in levels.items():
        if (histogram := sizes.get(field)) and len(histogram) != most + 1:
            return f"counts {len(histogram)} levels of {most + 1}"
    return None


class _Compact:
    """Reads Thrift's compact protocol into field numbers and their values. Raises ArrowInvalid, IndexError."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            found[field] = self._value(head & 15)
        return found

    def _value(self, type_: int) -> Any:
        match type_:
            case 1 | 2:  # a bool is its type
                return type_ == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                self._at += 8
                return None
            case 8:
                size = self._varint()
                self._at += size
                return None
            case 9 | 10:
                head = self._byte()
                size = head >> 4 if head >> 4 != 15 else self._varint()
                return [self._byte() if head & 15 in (1, 2) else self._value(head & 15) for _ in range(size)]
            case 12:
                return self.struct()
            case _:
                raise pa.ArrowInvalid(f"a footer with a value of type {type_}")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    def _zigzag(self) -> int:
        found = self._varint()
        return found >> 1 ^ -(found & 1)
