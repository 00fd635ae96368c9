"""The read step: from a file to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa

from kubothek.errors import InputError, LakeError, SourceEmpty, UnsupportedVersion
from kubothek.ingest.readers.decoding import decoding
from kubothek.odf.sources.readers.content import Content
from kubothek.odf.sources.readers.delimited import read_delimited
from kubothek.odf.sources.readers.json_rows import read_geo_json, read_json, read_nd_geo_json, read_nd_json
from kubothek.odf.sources.readers.parquet_rows import read_parquet_rows
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.sources import (
    ReadStep,
    ReadStepCsv,
    ReadStepEsriShapefile,
    ReadStepGeoJson,
    ReadStepJson,
    ReadStepNdGeoJson,
    ReadStepNdJson,
    ReadStepParquet,
)

LIMIT: Final = 64 << 30
"""Largest size of an unpacked file, in bytes."""

_WORDS: Final = {
    ", name the columns in source.schema, or let the table evolve: schemaEvolution: Compatible": (
        ", or name its columns in read.schema"
    ),
    "source.schema": "read.schema",
    "source.format": "read.kind",
    "set compression to ": "unpack it in prepare, by Decompress of format ",
    "save the file as UTF-8": "set read.encoding",
    "save it as UTF-8": "set read.encoding",
}


def read(
    step: ReadStep, content: Content, limit: int = LIMIT, row_groups: Sequence[int] | None = None
) -> pa.RecordBatchReader | None:
    """Return the rows of a file as a stream; None if it has no bytes, no lines, or nothing that shows its columns
    (RD-10). ``row_groups`` selects those of a Parquet file; None: all.

    Rows are read lazily: only the end of the stream proves the file sound. Raises, and so does the stream:
    DataTypeMismatch, SchemaMismatch and SourceCorrupt, naming file, row and column; SourceChanged, SourceRefused;
    FormatInvalid for an invalid step.
    """
    try:
        with _decoding(step, content):
            if content.is_empty():
                return None
            rows = _read(step, content, limit, row_groups)
    except SourceEmpty:
        return None
    except InputError as error:
        raise _worded(error) from error.__cause__
    return pa.RecordBatchReader.from_batches(rows.schema, _rows(step, content, rows)) if rows.schema.names else None


def _read(step: ReadStep, content: Content, limit: int, row_groups: Sequence[int] | None) -> pa.RecordBatchReader:
    match step:
        case ReadStepCsv():
            return read_delimited(step, content)
        case ReadStepJson():
            return read_json(step, content)
        case ReadStepNdJson():
            return read_nd_json(step, content)
        case ReadStepGeoJson():
            return read_geo_json(step, content)
        case ReadStepNdGeoJson():
            return read_nd_geo_json(step, content)
        case ReadStepParquet():
            return read_parquet_rows(step, content, row_groups)
        case ReadStepEsriShapefile():
            from kubothek.odf.sources.readers.shapefile_rows import read_shapefile  # pyshp is rarely needed

            return read_shapefile(step, content, limit)
    raise UnsupportedVersion(f"read step of the source: {NEWER} (its kind, or its read.schema); {REMEDY}")


def _rows(step: ReadStep, content: Content, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    reached = 1
    try:
        with _decoding(step, content, lambda: f"row {reached} or after it"):
            for batch in rows:
                yield batch
                reached += batch.num_rows
    except LakeError as error:
        raise _worded(error) from error.__cause__


def _decoding(step: ReadStep, content: Content, where: Callable[[], str] = lambda: "") -> AbstractContextManager[None]:
    return decoding(content.name, f"{step.kind} file", "upload it again or correct read", where)


def _worded(error: LakeError) -> LakeError:
    """Return the error with the field names of a ledger's manifest in place of those of other sources."""
    text = str(error)
    for other, own in _WORDS.items():
        text = text.replace(other, own)
    return type(error)(text)
