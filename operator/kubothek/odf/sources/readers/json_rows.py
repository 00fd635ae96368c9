"""The read steps for JSON and GeoJSON, all as lines with one object each (RD-03 … RD-06)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from kubothek.errors import DataTypeMismatch, SchemaMismatch, SourceCorrupt
from kubothek.ingest.model import Compression
from kubothek.ingest.readers.json_lines import infer_json_lines, read_json_lines
from kubothek.ingest.readers.streams import TextStream
from kubothek.odf.sources.readers.coerce import Coercion
from kubothek.odf.sources.readers.content import Content
from kubothek.odf.sources.readers.declared import declared_schema
from kubothek.odf.sources.readers.features import feature_lines
from kubothek.odf.sources.readers.filters import Open, as_utf8, filtered
from kubothek.odf.sources.readers.json_arrays import array_lines
from kubothek.odf.sources.readers.lines import text_lines, with_line
from kubothek.odf.sources.readers.samples import first_lines, without_times
from kubothek.odf.spec.sources import ReadStepGeoJson, ReadStepJson, ReadStepNdGeoJson, ReadStepNdJson


def read_json(step: ReadStepJson, content: Content) -> pa.RecordBatchReader:
    """Return the elements of the array. Raises SchemaMismatch, SourceCorrupt; the reader also DataTypeMismatch."""
    lines = filtered(as_utf8(content.name, step.encoding, content.open), array_lines(content.name, step.sub_path))
    return read_lines(content.name, lines, declared_schema(step), step.date_format, step.timestamp_format)


def read_nd_json(step: ReadStepNdJson, content: Content) -> pa.RecordBatchReader:
    """Return one object per line. Raises as :func:`read_json`."""
    lines = as_utf8(content.name, step.encoding, content.open)
    return read_lines(
        content.name, lines, declared_schema(step), step.date_format, step.timestamp_format, line_by_line=True
    )


def read_geo_json(step: ReadStepGeoJson, content: Content) -> pa.RecordBatchReader:
    """Return the features of one FeatureCollection. Raises as :func:`read_json`."""
    lines = filtered(content.open, array_lines(content.name, "features"))
    return _read_features(content.name, lines, declared_schema(step))


def read_nd_geo_json(step: ReadStepNdGeoJson, content: Content) -> pa.RecordBatchReader:
    """Return one Feature per line. Raises as :func:`read_json`."""
    return _read_features(content.name, content.open, declared_schema(step))


def _read_features(name: str, lines: Open, schema: pa.Schema | None) -> pa.RecordBatchReader:
    return read_lines(name, filtered(lines, feature_lines(name)), schema, in_order=True)


def read_lines(
    name: str,
    lines: Open,
    declared: pa.Schema | None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    *,
    in_order: bool = False,
    line_by_line: bool = False,
) -> pa.RecordBatchReader:
    """Return lines with one object each, in the columns of the schema; other keys are dropped, missing keys are null.

    Without a schema the columns are all keys of the first rows, sorted by name if ``in_order``; a new key in a later
    row is an error. ``line_by_line``: the lines are those of the file itself.
    """

    def open_stream() -> TextStream:
        return TextStream(name, lines(), Compression.NONE)

    schema = _inferred(name, open_stream, in_order=in_order) if declared is None else declared
    coercion = Coercion(name, schema, date_format, timestamp_format)
    return pa.RecordBatchReader.from_batches(
        schema, _batches(name, open_stream, coercion, other_keys=declared is not None, line_by_line=line_by_line)
    )


def _inferred(name: str, open_stream: Callable[[], TextStream], *, in_order: bool) -> pa.Schema:
    with open_stream() as stream:
        found = infer_json_lines(name, first_lines(stream))
    fields = [pa.field(field.name, without_times(field.type)) for field in found]
    return pa.schema(sorted(fields, key=lambda field: field.name) if in_order else fields)


def _batches(
    name: str, open_stream: Callable[[], TextStream], coercion: Coercion, *, other_keys: bool, line_by_line: bool
) -> Iterator[pa.RecordBatch]:
    first_row = 1
    try:
        for batch in read_json_lines(name, open_stream, coercion.as_read(), other_keys=other_keys):
            yield coercion.batch(batch, first_row)
            first_row += batch.num_rows
    except (DataTypeMismatch, SchemaMismatch, SourceCorrupt) as error:
        raise (with_line(error, lambda: text_lines(open_stream)) if line_by_line else error) from None
