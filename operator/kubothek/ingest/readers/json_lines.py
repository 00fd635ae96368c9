"""JSON lines reader: one object a line; a missing key is null.

Blocks end at line ends. A block that Arrow cannot read is read again line by line. It is accepted if it is only unusual
(``1.0`` for an integer); else the error names line, key and value.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.json as pajson

from kubothek.errors import DataTypeMismatch, SchemaMismatch, SourceCorrupt
from kubothek.ingest.readers.nesting import require_shallow
from kubothek.ingest.readers.streams import TextStream
from kubothek.ingest.readers.values import Failure, any_zone, convert_column, mismatch, parse_column, show
from kubothek.table.time_zones import expected_zones, zoned

BLOCK_BYTES: Final = 4 << 20
_ROW_LIMIT_BYTES: Final = 64 << 20
_FIRST_NULL: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*null")
_LATER_NULL: Final = re.compile(rb"\n[ \t\r]*null")
"""Begins with a literal: one pattern for both takes four times as long as Arrow's parser, these two a seventh."""
_LARGEST_INTEGER: Final = 2**64 - 1
"""No column holds a larger one, and Python needs gigabytes and minutes for the integer ``3e2147483647``."""
_NO_VALUE: Final = (pa.ArrowException, TypeError, ValueError, ArithmeticError)
"""Errors of Python and Arrow for a value that is not of a type."""

Row = dict[str, Any]


def read_json_lines(
    name: str, open_stream: Callable[[], TextStream], schema: pa.Schema, *, other_keys: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield all rows, in the columns and types of ``schema``.

    Raises DataTypeMismatch, SchemaMismatch (a key that is not a column, unless ``other_keys``) and SourceCorrupt,
    naming the row, counted from 1 where the stream starts; blank lines do not count.
    """
    first_row = 1
    with open_stream() as stream:
        for block in _blocks(name, stream):
            require_shallow(name, block, first_row)
            try:
                batch = _parse(block, schema, other_keys)
            except (pa.ArrowException, ValueError):
                rows = list(_rows(name, block, first_row))
                if not other_keys:
                    _check_keys(name, rows, schema, first_row)
                batch = _convert(name, rows, schema, first_row)
            first_row += batch.num_rows
            yield batch


def _blocks(name: str, stream: TextStream) -> Iterator[bytes]:
    """Yield whole lines, about ``BLOCK_BYTES`` at a time, without entirely blank blocks."""
    held: list[bytes] = []
    while data := stream.read(BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if not cut:
            held.append(data)
            if sum(map(len, held)) > _ROW_LIMIT_BYTES:
                raise SourceCorrupt(
                    f"{name!r} has a line of more than {_ROW_LIMIT_BYTES >> 20} MiB; JSON lines has one object a line"
                )
            continue
        if (block := b"".join((*held, data[:cut]))).strip():
            yield block
        held = [data[cut:]]
    if (block := b"".join(held)).strip():
        yield block


# --- fast ---------------------------------------------------------------------------------------------------


def _parse(block: bytes, schema: pa.Schema, other_keys: bool) -> pa.RecordBatch:
    """Return the rows of a block. Raise ArrowException or ValueError."""
    wanted = pa.schema([pa.field(f.name, pa.string() if _is_text(f) else f.type) for f in schema])
    parsing = pajson.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore" if other_keys else "error")
    table = _read_json(block, parsing).combine_chunks()
    table.validate(full=True)  # Arrow's JSON reader does not check UTF-8
    columns = [
        parse_column(column, f) if _is_text(f) else column
        for f, column in ((f, table.column(f.name).combine_chunks()) for f in schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_json(block: bytes, parsing: pajson.ParseOptions, reading: pajson.ReadOptions | None = None) -> pa.Table:
    """Parse a block by Arrow. Raise ArrowInvalid for a row that is null.

    Arrow's reader crashes on one at the start of a block, and accepts later ones as rows of nulls.
    """
    if _FIRST_NULL.match(block) or _LATER_NULL.search(block):
        raise pa.ArrowInvalid("a row is null")
    return pajson.read_json(io.BytesIO(block), reading, parsing)


def _is_text(field: pa.Field[Any]) -> bool:
    """Return whether the column is read as text: dates, times of day, and times that must all have a zone or none."""
    expects_zone = bool(expected_zones(pa.schema([field])))
    return expects_zone or pa.types.is_date(field.type) or pa.types.is_time(field.type)


# --- careful ------------------------------------------------------------------------------------------------


def _rows(name: str, block: bytes, first_row: int) -> Iterator[Row]:
    number = first_row
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=Decimal, parse_constant=_refuse_constant)
        except ValueError as error:
            text = show(line[:60].decode(errors="replace"))
            raise SourceCorrupt(f"{name!r}, row {number} is no JSON ({error}): {text}; correct the line") from None
        if not isinstance(row, dict):
            raise SourceCorrupt(f"{name!r}, row {number} is no JSON object: {show(row)}; write one object a line")
        yield row
        number += 1


def _check_keys(name: str, rows: list[Row], schema: pa.Schema, first_row: int) -> None:
    known = set(schema.names)
    for number, row in enumerate(rows, first_row):
        if unknown := [key for key in row if key not in known]:
            raise SchemaMismatch(
                f"{name!r}, row {number}: key {show(unknown[0])} is not a column of the table, which has "
                f"{', '.join(map(repr, schema.names))}; correct the file, name the columns in source.schema, or "
                "let the table evolve: schemaEvolution: Compatible"
            )


def _convert(name: str, rows: list[Row], schema: pa.Schema, first_row: int) -> pa.RecordBatch:
    columns = [_column(name, field, [row.get(field.name) for row in rows], first_row) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(name: str, field: pa.Field[Any], values: list[Any], first_row: int) -> pa.Array[Any]:
    written = pa.string() if _is_text(field) or pa.types.is_timestamp(field.type) else field.type
    cells = []
    for number, value in enumerate(values, first_row):
        try:
            cells.append(None if value is None else _cell(value, written))
        except _NO_VALUE:
            raise mismatch(name, field.name, number, _show(value), field.type) from None
    return convert_column(
        pa.array(cells, written),
        field.type,
        lambda texts: parse_column(texts, field) if written != field.type else texts,
        file=name,
        column=field.name,
        first_row=first_row,
    )


def _cell(value: Any, to: pa.DataType) -> Any:
    """Return a JSON value as a value of the type. Raises one of ``_NO_VALUE`` if it is not one."""
    types = pa.types
    if types.is_floating(to) or types.is_integer(to) or types.is_decimal(to):
        if isinstance(value, bool) or (isinstance(value, str) and not types.is_decimal(to)):
            raise ValueError
        if types.is_integer(to) and (abs(value) > _LARGEST_INTEGER or value != int(value)):
            raise ValueError
        number = float(value) if types.is_floating(to) else int(value) if types.is_integer(to) else Decimal(value)
        return pa.scalar(number, to).as_py()
    return pa.scalar(_with_floats(value), to).as_py()


def _with_floats(value: Any) -> Any:
    """Return decimals, which only columns of decimals need, as floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    return value


def _show(value: Any) -> str:
    return show(json.loads(json.dumps(value, default=float)))


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not in JSON")


# --- inference ----------------------------------------------------------------------------------------------


def infer_json_lines(name: str, sample: bytes) -> pa.Schema:
    """Return the schema of a file that starts like this. Raises DataTypeMismatch for a key with two types of values."""
    if not sample.strip():
        return pa.schema([])
    require_shallow(name, sample)
    sample.decode()  # Arrow's JSON reader does not check UTF-8, in keys neither
    try:
        found = _infer(sample).schema
        times = pa.schema([field for field in found if pa.types.is_timestamp(field.type)])
        if not times.names:
            return found
        # Arrow infers the same type for times with and without zone.
        texts = _infer(sample, pa.schema([field.with_type(pa.string()) for field in times]))
        return zoned(found, {name: "UTC" for name in times.names if any_zone(texts.column(name))})
    except Failure as error:
        raise _explain(name, sample) or SourceCorrupt(f"{name!r} cannot be parsed as JSON lines: {error}") from None


def _infer(sample: bytes, known: pa.Schema | None = None) -> pa.Table:
    reading = pajson.ReadOptions(block_size=max(len(sample), 1))
    return _read_json(sample, pajson.ParseOptions(explicit_schema=known), reading)


def _explain(name: str, sample: bytes) -> DataTypeMismatch | None:
    seen: dict[str, tuple[str, int]] = {}
    for number, row in enumerate(_rows(name, sample, 1), 1):
        for key, value in row.items():
            if value is None:
                continue
            kind, first = seen.setdefault(key, (_kind(value), number))
            if kind != _kind(value):
                return DataTypeMismatch(
                    f"{name!r}, column {key!r}, row {number}: {_show(value)} is a {_kind(value)}, "
                    f"row {first} has a {kind}; correct the file, or declare the column's type in source.schema"
                )
    return None


def _kind(value: Any) -> str:
    kinds = {bool: "boolean", str: "string", int: "number", Decimal: "number", list: "list", dict: "object"}
    return kinds[type(value)]
