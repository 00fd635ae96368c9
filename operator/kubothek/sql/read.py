"""The record of a scan in the result of a query, and its rows as JSON lines."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple, Self

import duckdb
import pyarrow as pa

from kubothek.in_memory_database import in_memory_database, quoted
from kubothek.table.expressions import Predicate
from kubothek.table.scan.plan import SKIPPING_STEP, Step
from kubothek.table.schema import require_distinct
from kubothek.table.skipping.prune.filters_seen import filters_of


class Read(NamedTuple):
    """A scan of one dataset.

    ``version``     version of the dataset; 0 for plain files
    ``files``       number of opened files
    ``considered``  number of files that skipping metadata had to decide about
    ``skipped``     number of those that it excluded
    ``filters``     first few of its filters (:mod:`kubothek.table.skipping.prune.filters_seen`)
    """

    name: str
    version: int
    files: int
    considered: int = 0
    skipped: int = 0
    filters: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        version: int,
        steps: Sequence[Step],
        where: Predicate,
        columns: Container[str] | None = None,
    ) -> Self:
        """Return the record of a plan.

        ``steps``    the number of files after each step; the first is the whole table
        ``where``    the filter of its rows
        ``columns``  those of the dataset, if ``where`` has others as well; None = all
        """
        place = next((number for number, step in enumerate(steps) if step.name == SKIPPING_STEP), 0)
        considered = steps[place - 1].files_left if place else 0
        skipped = considered - steps[place].files_left if place else 0
        return cls(name, version, steps[-1].files_left, considered, skipped, filters_of(where, columns))


# Rows as JSON, one line each, made by DuckDB's kernels.


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
