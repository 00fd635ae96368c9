"""CSV reader: fast for valid data, exact in its errors.

The fast reader lets Arrow parse and convert in one step, but its errors name no row. When it fails, the careful reader
reads the file again from its start with every value as bytes, skips the rows already delivered, and converts column by
column. It accepts data that is only unusual (quoted numbers, several time zones in one column) and names the wrong
cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from kubothek.errors import SchemaMismatch, SourceCorrupt, SourceEmpty
from kubothek.ingest.model import CsvOptions
from kubothek.ingest.readers.streams import TextStream
from kubothek.ingest.readers.values import check_names, convert_column, parse_column, show
from kubothek.table.schema import type_name

Open = Callable[[], TextStream]
"""Opens the same bytes again on each call."""
_Note = Callable[[pacsv.InvalidRow], Literal["skip"]]

BLOCK_BYTES: Final = 4 << 20
"""Size of a parsed block, and so the longest row."""
_HEADER_BYTES: Final = 1 << 20
_FIRST_BYTES: Final = 16 << 10


def read_header(name: str, stream: io.RawIOBase | io.BufferedIOBase, options: CsvOptions) -> list[str]:
    """Return the values of the first row. Raises SourceEmpty, or SourceCorrupt if it is not a CSV header in UTF-8."""
    data = b""
    row: list[str] | None = None
    is_complete = False
    try:
        while not is_complete and len(data) < _HEADER_BYTES:
            more = stream.read(max(_FIRST_BYTES, len(data)))
            data += more or b""
            row, is_complete = _first_row(data, options)
            is_complete = is_complete or not more
        "".join(row or ()).encode()
    except UnicodeEncodeError:
        raise SourceCorrupt(f"the header of {name!r} is not UTF-8; save the file as UTF-8") from None
    except csv.Error as error:
        raise SourceCorrupt(f"the header of {name!r} is no CSV: {error}") from None
    if row is None:
        raise SourceEmpty(f"{name!r} is empty; a CSV file has at least a header and a row")
    return row


def _first_row(data: bytes, options: CsvOptions) -> tuple[list[str] | None, bool]:
    """Return the first row that is not blank, and whether it ends before the data do."""
    text = io.StringIO(data.decode(errors="surrogateescape"), newline="")
    dialect: dict[str, Any] = {"delimiter": options.delimiter}
    dialect |= {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    row = next((row for row in csv.reader(text, **dialect) if row), None)
    return row, bool(text.read(1))


def read_csv(
    name: str,
    open_stream: Open,
    schema: pa.Schema,
    options: CsvOptions,
    names: list[str],
    *,
    has_header: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows, in the columns and types of ``schema``.

    ``names`` are the file's columns in its order; ``has_header``: these bytes start with them. Raises SchemaMismatch
    and DataTypeMismatch, naming the row (counted from 1 where these bytes start), and SourceCorrupt.
    """
    _check_types(name, schema)
    check_names(name, names, schema.names)
    done = 0
    try:
        for batch in _fast(name, open_stream, schema, options, names, has_header):
            yield batch
            done += batch.num_rows
    except (pa.ArrowException, ValueError) as error:
        problem = error
    else:
        return
    yield from _careful(name, open_stream, schema, options, names, has_header, done, problem)


def _fast(
    name: str, open_stream: Open, schema: pa.Schema, options: CsvOptions, names: list[str], has_header: bool
) -> Iterator[pa.RecordBatch]:
    # Arrow converts times either with or without zone; as text they can be mixed.
    types = {f.name: pa.string() if pa.types.is_timestamp(f.type) else f.type for f in schema}
    times = {field for field in schema if pa.types.is_timestamp(field.type)}
    with open_stream() as stream:
        for batch in _open_csv(stream, _parsing(options), _conversion(options, types), names, has_header, threads=True):
            _check_last_quote(name, stream, batch, names)
            columns = [batch.column(field.name) for field in schema]
            parsed = [parse_column(c, f) if f in times else c for c, f in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(parsed, schema=schema)


def _careful(
    name: str,
    open_stream: Open,
    schema: pa.Schema,
    options: CsvOptions,
    names: list[str],
    has_header: bool,
    done: int,
    problem: Exception,
) -> Iterator[pa.RecordBatch]:
    wrong_rows: list[pacsv.InvalidRow] = []

    def note(row: pacsv.InvalidRow) -> Literal["skip"]:
        wrong_rows.append(row)
        return "skip"

    position = 0
    conversion = _conversion(options, {column: pa.binary() for column in names})
    with open_stream() as stream:
        try:
            for raw in _open_csv(stream, _parsing(options, note), conversion, names, has_header, threads=False):
                if wrong_rows:
                    raise _wrong_width(name, wrong_rows[0], has_header)
                _check_last_quote(name, stream, raw, names)
                batch = raw.slice(min(raw.num_rows, max(0, done - position)))
                first_row = position + raw.num_rows - batch.num_rows + 1
                position += raw.num_rows
                if batch.num_rows:
                    yield _convert(name, batch, schema, options, first_row)
        except (pa.ArrowException, ValueError) as error:
            problem = error
        else:
            if not wrong_rows:
                return
    if wrong_rows:
        raise _wrong_width(name, wrong_rows[0], has_header)
    if "straddling" in str(problem):
        raise SourceCorrupt(
            f"{name!r} has a row of more than {BLOCK_BYTES >> 20} MiB after row {position}; is a quote never closed?"
        )
    raise SourceCorrupt(f"{name!r} cannot be parsed as CSV after row {position}: {problem}")


def _open_csv(
    stream: TextStream,
    parsing: pacsv.ParseOptions,
    conversion: pacsv.ConvertOptions,
    names: list[str],
    has_header: bool,
    *,
    threads: bool,
) -> Iterator[pa.RecordBatch]:
    reading = pacsv.ReadOptions(use_threads=threads, block_size=BLOCK_BYTES, column_names=None if has_header else names)
    try:
        reader = pacsv.open_csv(cast("IO[bytes]", stream), reading, parsing, conversion)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return
        raise
    yield from reader


def _convert(
    name: str, batch: pa.RecordBatch, schema: pa.Schema, options: CsvOptions, first_row: int
) -> pa.RecordBatch:
    nulls = pa.array(options.null_values, pa.string())

    def converter(field: pa.Field[Any]) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
        def convert(values: pa.Array[Any]) -> pa.Array[Any]:
            if pa.types.is_binary(field.type):
                return values
            texts = values.cast(pa.string())
            if not pa.types.is_string(field.type):
                absent = pc.is_in(texts, value_set=nulls)
                texts = pc.if_else(absent, pa.scalar(None, pa.string()), texts)
            return parse_column(texts, field)

        return convert

    columns = [
        convert_column(
            batch.column(field.name),
            field.type,
            converter(field),
            file=name,
            column=field.name,
            first_row=first_row,
        )
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_last_quote(name: str, stream: TextStream, batch: pa.RecordBatch, names: list[str]) -> None:
    """Raise SourceCorrupt if an unclosed quote made the file's last value include all later rows.

    Arrow accepts the end of the file as the missing quote. Only then does a value contain a line break and end where
    the file ends, with an odd number of quotes before it.
    """
    if stream.quotes % 2 == 0 or not batch.num_rows:
        return
    last = batch.column(names[-1])[-1].as_py()
    text = last if isinstance(last, bytes) else last.encode() if isinstance(last, str) else b""
    if b"\n" in text and text[-1:] == stream.last_byte:
        raise SourceCorrupt(
            f"{name!r}: the quote before {show(text[:40].decode(errors='replace'))} in column {names[-1]!r} is never "
            "closed; close it, or double the quotes inside of values"
        )


def _wrong_width(name: str, row: pacsv.InvalidRow, has_header: bool) -> SchemaMismatch:
    # Arrow counts from 1 and counts the header if it has read it.
    number = "" if row.number is None else f" row {row.number - (1 if has_header else 0)}"
    return SchemaMismatch(
        f"{name!r}{number} has {row.actual_columns} values, the file has {row.expected_columns} columns: "
        f"{show(row.text)}; correct the row, or quote values that contain the delimiter"
    )


def _check_types(name: str, schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_duration(field.type):
            raise SchemaMismatch(
                f"{name!r}, column {field.name!r}: CSV cannot hold {type_name(field.type)}; use JSON lines or Parquet"
            )


def _parsing(
    options: CsvOptions, note: Callable[[pacsv.InvalidRow], Literal["skip"]] | None = None
) -> pacsv.ParseOptions:
    return pacsv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        newlines_in_values=True,
        invalid_row_handler=note,
    )


def _conversion(
    options: CsvOptions, types: dict[str, pa.DataType], time_formats: Sequence[str] = ()
) -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(
        column_types=types,
        timestamp_parsers=list(time_formats) or None,
        null_values=list(options.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def infer_csv(
    sample: bytes, options: CsvOptions, names: list[str], *, has_header: bool, time_formats: Sequence[str] = ()
) -> pa.Schema:
    """Return the schema of a file that starts like this; invalid values in the sample are reported by the later read.

    ``time_formats`` are the strptime formats of timestamps; none means ISO 8601.
    """
    return schema_of_sample(parse_sample(sample, options, names, has_header, time_formats)[0])


def parse_sample(
    sample: bytes, options: CsvOptions, names: list[str], has_header: bool, time_formats: Sequence[str] = ()
) -> tuple[pa.Table, bool]:
    """Return the rows of a file that starts like this, in the types that Arrow infers, and whether all are exact.

    They are not if a row has another number of values, and is left out, or if bytes are not UTF-8, and are replaced.
    """
    wrong_rows: list[pacsv.InvalidRow] = []

    def note(row: pacsv.InvalidRow) -> Literal["skip"]:
        wrong_rows.append(row)
        return "skip"

    text = _as_text(sample)
    table = pacsv.read_csv(
        io.BytesIO(text),
        pacsv.ReadOptions(column_names=None if has_header else names, block_size=BLOCK_BYTES),
        _parsing(options, note),
        _conversion(options, {}, time_formats),
    )
    return table, text is sample and not wrong_rows


def _as_text(sample: bytes) -> bytes:
    """Return the sample with replacements for bytes that are not UTF-8: Arrow cannot quote an invalid row of those."""
    if sample.isascii():  # decoding takes a tenth as long as parsing
        return sample
    try:
        sample.decode()
    except UnicodeDecodeError:
        return sample.decode(errors="replace").encode()
    return sample


def schema_of_sample(table: pa.Table) -> pa.Schema:
    """Return the types of columns for rows that :func:`parse_sample` returned."""
    # Bytes that are not UTF-8 would give a binary column; partitions and indices cannot hold times of day.
    return pa.schema(
        [
            f.with_type(pa.string()) if pa.types.is_binary(f.type) or pa.types.is_time(f.type) else f
            for f in table.schema
        ]
    )
