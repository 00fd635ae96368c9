"""The read step for CSV (RD-01, RD-02, RD-09)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kubothek.errors import DataTypeMismatch, FormatInvalid, SchemaMismatch
from kubothek.ingest.model import Compression, CsvOptions
from kubothek.ingest.readers.delimited import infer_csv, read_csv, read_header
from kubothek.ingest.readers.streams import TextStream
from kubothek.odf.sources.readers.coerce import Coercion
from kubothek.odf.sources.readers.content import Content
from kubothek.odf.sources.readers.declared import declared_schema
from kubothek.odf.sources.readers.escapes import without_escapes
from kubothek.odf.sources.readers.filters import as_utf8
from kubothek.odf.sources.readers.formats import RFC3339, strftime_of
from kubothek.odf.sources.readers.lines import csv_lines, header_bytes, with_line
from kubothek.odf.sources.readers.samples import first_lines, inferred
from kubothek.odf.spec.sources import ReadStepCsv

_TABULATOR: Final = "\\t"


def read_delimited(step: ReadStepCsv, content: Content) -> pa.RecordBatchReader:
    """Return the rows of the file, in the columns of the step's schema.

    With a header, columns are matched by name if the header has all of the schema, else by position (so a schema can
    rename). Without a schema, the header names the columns, or ``column_1`` and so on; they are text unless types are
    inferred. Raises FormatInvalid, SchemaMismatch, SourceEmpty, SourceCorrupt; the reader also raises DataTypeMismatch.
    """
    options, escape = _options(step), _sign("escape", step.escape, "\\")
    opened = as_utf8(content.name, step.encoding, content.open)
    if options.quote and escape and escape != options.quote:
        opened = without_escapes(opened, options.quote.encode(), escape.encode(), options.delimiter.encode())

    def open_stream() -> TextStream:
        return TextStream(content.name, opened(), Compression.NONE, options.quote.encode())

    with open_stream() as stream:
        first = read_header(content.name, stream, options)

    def lines() -> Iterator[int]:
        return csv_lines(open_stream, options)

    columns = _columns(step, content.name, first, lambda names: _infer(step, open_stream, options, names))
    rows, reading = open_stream, options
    if options.header and columns.names != first:  # hide the file's own names from the parser
        rows, reading = _after(open_stream, header_bytes(open_stream, options)), replace(options, header=False)
    coercion = Coercion(content.name, columns.schema, step.date_format, step.timestamp_format)
    return pa.RecordBatchReader.from_batches(
        columns.schema, _batches(content.name, rows, reading, columns, coercion, lines)
    )


def header_of(step: ReadStepCsv, content: Content) -> bytes:
    """Return the header of a UTF-8 file, with its line end and all bytes before it. A range of the file's lines can be
    read with these bytes in front of it.
    """
    options = _options(step)
    with content.open() as stream:
        return stream.read(header_bytes(lambda: TextStream(content.name, content.open(), Compression.NONE), options))


@dataclass(frozen=True, slots=True)
class _Columns:
    """``names`` are the columns of the file; ``called`` is the file's name for each column of ``schema``."""

    names: list[str]
    schema: pa.Schema
    called: list[str]


def _columns(step: ReadStepCsv, name: str, first: list[str], infer: Callable[[list[str]], pa.Schema]) -> _Columns:
    if (schema := declared_schema(step)) is not None:
        if not step.header:
            return _Columns(schema.names, schema, schema.names)
        counts = Counter(first)
        known = [each if each and counts[each] == 1 else f"({place})" for place, each in enumerate(first, 1)]
        if set(schema.names) <= set(known):
            return _Columns(known, schema, schema.names)
        if len(schema.names) == len(first):
            return _Columns(schema.names, schema, schema.names)
        missing = next(each for each in schema.names if each not in known)
        raise SchemaMismatch(
            f"{name!r}: its header has {len(first)} columns ({', '.join(first)}), read.schema has {len(schema.names)}, "
            f"of which {missing!r} is not in the header, or not once; name the header's columns, or all columns in "
            "their order"
        )
    names = list(first) if step.header else [f"column_{number}" for number in range(1, len(first) + 1)]
    schema = infer(names) if step.infer_schema else pa.schema([(each, pa.string()) for each in names])
    return _Columns(names, schema, names)


def _infer(
    step: ReadStepCsv, open_stream: Callable[[], TextStream], options: CsvOptions, names: list[str]
) -> pa.Schema:
    times, dates = strftime_of(step.timestamp_format or RFC3339), strftime_of(step.date_format or RFC3339)
    with open_stream() as stream:
        sample = first_lines(stream)
    formats = [] if times is None else [times]
    found = infer_csv(sample, options, names, has_header=options.header, time_formats=formats)
    if dates is not None:  # dates of RFC 3339 do not have the format of the step
        found = pa.schema([field.with_type(pa.string()) if pa.types.is_date(field.type) else field for field in found])
    return inferred(found)


def _batches(
    name: str,
    open_stream: Callable[[], TextStream],
    options: CsvOptions,
    columns: _Columns,
    coercion: Coercion,
    lines: Callable[[], Iterator[int]],
) -> Iterator[pa.RecordBatch]:
    types = dict(zip(columns.called, coercion.as_read().types, strict=True))
    reading = pa.schema([(each, types.get(each, pa.string())) for each in columns.names])
    known = {each: place for place, each in enumerate(columns.names)}
    places = [known[each] for each in columns.called]
    first_row = 1
    try:
        for batch in read_csv(name, open_stream, reading, options, columns.names, has_header=options.header):
            wanted = [batch.column(place) for place in places]
            yield coercion.batch(pa.RecordBatch.from_arrays(wanted, columns.schema.names), first_row)
            first_row += batch.num_rows
    except (DataTypeMismatch, SchemaMismatch) as error:
        raise with_line(error, lines) from None


def _after(open_stream: Callable[[], TextStream], size: int) -> Callable[[], TextStream]:
    """Return a function that opens the stream after its first ``size`` bytes."""

    def opened() -> TextStream:
        stream, left = open_stream(), size
        while left and (data := stream.read(left)):
            left -= len(data)
        return stream

    return opened


def _options(step: ReadStepCsv) -> CsvOptions:
    separator = "\t" if step.separator == _TABULATOR else _sign("separator", step.separator, ",")
    if not separator:
        raise FormatInvalid("read.separator is empty; write the sign between values")
    return CsvOptions(
        delimiter=separator,
        quote=_sign("quote", step.quote, '"'),
        header=bool(step.header),
        null_values=("" if step.null_value is None else step.null_value,),
    )


def _sign(option: str, given: str | None, default: str) -> str:
    sign = default if given is None else given
    if len(sign.encode()) > 1 or sign in ("\r", "\n", "\0"):
        raise FormatInvalid(f"read.{option} {sign!r} must be one ASCII character")
    return sign
