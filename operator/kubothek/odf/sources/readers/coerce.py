"""Conversion of values as read to the types of a schema, vectorised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.in_memory_database import in_memory_database
from kubothek.ingest.readers.values import Failure, check_required, convert_column, parse_text
from kubothek.odf.sources.readers.formats import RFC3339, strftime_of

_Array: TypeAlias = "pa.Array[Any]"
_UUID: Final = pa.binary(16)
_UUID_TEXT: Final = (
    r"^\s*\{?([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})\}?\s*$"
)
_MIDNIGHT: Final = r"^(\d{4}-\d{2}-\d{2})[Tt ]00:00(?::00(?:\.0+)?)?(?:[Zz]|[+-]00:?00)?$"
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FINEST: Final = {unit: pa.timestamp("ns" if unit == "ns" else "us") for unit in _DIGITS}


class Coercion:
    """Converter of arrays as read to those of a schema. Not thread-safe: its database is one connection.

    ``date_format``, ``timestamp_format``  of text, as in the read step; None: RFC 3339
    """

    def __init__(
        self, name: str, schema: pa.Schema, date_format: str | None = None, timestamp_format: str | None = None
    ) -> None:
        self._name = name
        self.schema = schema
        self._date = strftime_of(date_format or RFC3339)
        self._timestamp = strftime_of(timestamp_format or RFC3339)
        self._database: duckdb.DuckDBPyConnection | None = None

    def as_read(self) -> pa.Schema:
        """Return the schema for parsers of text files: text for each column that this class parses itself."""
        return pa.schema([pa.field(f.name, pa.string() if is_spelled(f.type) else f.type) for f in self.schema])

    def batch(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the columns of the schema, by name. Raises DataTypeMismatch for a cell; ``first_row`` is 1-based."""
        columns = [
            convert_column(
                batch.column(field.name),
                field.type,
                self._converter(field.type),
                file=self._name,
                column=field.name,
                first_row=first_row,
            )
            for field in self.schema
        ]
        found = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        check_required(found, (), self._name, first_row)
        return found

    def _converter(self, to: pa.DataType) -> Callable[[_Array], _Array]:
        def convert(values: Any) -> Any:
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            if values.type == to:
                return values
            if _is_text(values.type) and not _is_text(to):
                return self._of_text(values.cast(pa.string()), to)
            if pa.types.is_timestamp(to) and pa.types.is_timestamp(values.type):
                return to_utc(values, to)
            return values.cast(to)

        return convert

    def _of_text(self, texts: Any, to: pa.DataType) -> _Array:
        if to == _UUID:
            return uuids_of(texts)
        if is_spelled(to):
            trimmed = pc.utf8_trim_whitespace(texts)
            texts = pc.if_else(pc.equal(trimmed, pa.scalar("")), pa.scalar(None, pa.string()), trimmed)
        if pa.types.is_timestamp(to):
            return (
                self._spelled(texts, self._timestamp).cast(to, safe=False) if self._timestamp else _moments(texts, to)
            )
        if pa.types.is_date(to):
            return self._spelled(texts, self._date).cast(to, safe=False) if self._date else _dates(texts, to)
        return parse_text(texts, to)

    def _spelled(self, texts: _Array, form: str) -> _Array:
        """Return texts of this format as naive UTC. Raises one of ``Failure``."""
        if self._database is None:
            self._database = in_memory_database(threads=1)
        self._database.register("texts", pa.table({"x": texts}))
        try:
            found = self._database.sql(
                "SELECT CAST(timezone('UTC', CAST(strptime(x, ?) AS TIMESTAMPTZ)) AS TIMESTAMP) AS y FROM texts"
                if "%z" in form or "%Z" in form
                else "SELECT CAST(strptime(x, ?) AS TIMESTAMP) AS y FROM texts",
                params=[form],
            ).to_arrow_table()
        except duckdb.Error as error:
            raise pa.ArrowInvalid(str(error)) from None
        finally:
            self._database.unregister("texts")
        parsed = found.column("y").combine_chunks()
        return parsed if isinstance(parsed, pa.Array) else pa.concat_arrays(parsed.chunks)


def is_spelled(kind: pa.DataType) -> bool:
    """Return whether this module parses texts of this type, instead of the file parser."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or kind == _UUID


def to_utc(values: Any, to: Any) -> Any:
    """Return timestamps of any precision and zone in UTC and the precision of ``to``; without a zone they are UTC
    (RD-10). Finer digits are rounded down, before 1970 as well.
    """
    kind: Any = values.type
    if _DIGITS[kind.unit] > _DIGITS[to.unit]:
        naive: Any = values.cast(pa.timestamp(kind.unit))
        values = pc.floor_temporal(naive, unit=_UNITS[to.unit])
    return values.cast(to)


_UNITS: Final[dict[str, Any]] = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _moments(texts: _Array, to: Any) -> Any:
    """Parse RFC 3339, or ISO 8601 without a zone; digits beyond the precision of the type are dropped."""
    finest = _FINEST[to.unit]
    try:
        found = parse_text(texts, finest)
    except Failure:
        digits = _DIGITS[finest.unit]
        texts = pc.replace_substring_regex(texts, rf"(\.\d{{{digits}}})\d+", r"\1")
        texts = pc.replace_substring_regex(texts, r"^([0-9-]+)t", r"\1T")
        found = parse_text(texts, finest)
    return to_utc(found, to)


def _dates(texts: _Array, to: pa.DataType) -> _Array:
    """Parse dates, including those written as timestamps at midnight."""
    try:
        return parse_text(texts, to)
    except Failure:
        return parse_text(pc.replace_substring_regex(texts, _MIDNIGHT, r"\1"), to)


def uuids_of(texts: _Array) -> _Array:
    """Return the 16 bytes of each UUID. Raises ArrowInvalid."""
    present = texts.drop_null()
    if not pc.all(pc.match_substring_regex(present, _UUID_TEXT)).as_py() and len(present):
        raise pa.ArrowInvalid("not a UUID")
    digits = pc.replace_substring_regex(present, _UUID_TEXT, r"\1\2\3\4\5")
    written = np.frombuffer(memoryview(digits.cast(pa.binary(32)).buffers()[1] or b""), np.uint8)[: 32 * len(present)]
    nibbles = np.where(written > ord("9"), (written | 0x20) - ord("a") + 10, written - ord("0")).astype(np.uint8)
    data = nibbles[0::2] << 4 | nibbles[1::2]
    packed: _Array = pa.FixedSizeBinaryArray.from_buffers(_UUID, len(present), [None, pa.py_buffer(data.tobytes())])
    if texts.null_count == 0:
        return packed
    places = pc.subtract(pc.cumulative_sum(pc.cast(texts.is_valid(), pa.int64())), 1)
    return packed.take(pc.if_else(texts.is_valid(), places, pa.scalar(None, pa.int64())))
