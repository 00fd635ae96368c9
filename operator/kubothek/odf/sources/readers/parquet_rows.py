"""The read step for Parquet (RD-08)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from kubothek.errors import SchemaMismatch
from kubothek.ingest.readers.parquet_batches import decoded_batches
from kubothek.ingest.readers.parquet_files import open_parquet
from kubothek.odf.sources.readers.coerce import Coercion
from kubothek.odf.sources.readers.content import Content
from kubothek.odf.sources.readers.declared import declared_schema
from kubothek.odf.spec.sources import ReadStepParquet


def read_parquet_rows(
    step: ReadStepParquet, content: Content, row_groups: Sequence[int] | None = None
) -> pa.RecordBatchReader:
    """Return the file's rows, or those of some row groups; with a schema, only its columns by name and in its types.

    Raises SchemaMismatch, SourceCorrupt; the reader also raises DataTypeMismatch.
    """
    with open_parquet(content.name, content.file()) as file:
        found = file.schema_arrow
    declared = declared_schema(step)
    schema = _plain(found) if declared is None else declared
    if missing := [each for each in schema.names if each not in found.names]:
        raise SchemaMismatch(
            f"{content.name!r} has no column {missing[0]!r}; it has {', '.join(map(repr, found.names))}; "
            "correct read.schema"
        )
    return pa.RecordBatchReader.from_batches(schema, _batches(content, Coercion(content.name, schema), row_groups))


def _batches(content: Content, coercion: Coercion, row_groups: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    raw = content.file()
    with open_parquet(content.name, raw) as file:
        groups = range(file.num_row_groups) if row_groups is None else row_groups
        first_row = 1 + sum(file.metadata.row_group(group).num_rows for group in range(min(groups, default=0)))
        for group in groups:
            for batch in decoded_batches(content.name, raw, file, group, coercion.schema.names):
                yield coercion.batch(batch, first_row)
                first_row += batch.num_rows


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema without metadata, and with value types in place of dictionaries."""
    return pa.schema([pa.field(f.name, _value_type(f.type), f.nullable) for f in schema])


def _value_type(kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind
