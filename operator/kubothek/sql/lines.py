"""Rows as JSON, one line each, made by DuckDB's kernels."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from kubothek.in_memory_database import in_memory_database, quoted
from kubothek.table.schema import require_distinct

_SCHEMA = pa.schema([("line", pa.string())])


def as_json(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return each row as a JSON object in the one column ``line``. NaN and infinities, which JSON lacks, are null.

    Raises SchemaMismatch if two columns have one name.
    """
    require_distinct(relation.columns)
    fields = []
    for field in relation.limit(0).to_arrow_table().schema:
        column = quoted(field.name)
        value = f"CASE WHEN isfinite({column}) THEN {column} END" if pa.types.is_floating(field.type) else column
        fields.append(f"{column} := {value}")
    return relation.project(f"to_json(struct_pack({', '.join(fields)}))::VARCHAR AS line")


def json_lines(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows of a stream as JSON lines, batch by batch."""
    require_distinct(reader.schema.names)
    return pa.RecordBatchReader.from_batches(_SCHEMA, _lines(reader))


def _lines(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with in_memory_database() as database:
        for batch in reader:
            table = as_json(database.from_arrow(pa.Table.from_batches([batch]))).to_arrow_table()
            yield from table.cast(_SCHEMA).to_batches()
