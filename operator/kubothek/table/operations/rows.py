"""Rows from a Python program, written to data files in one pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from kubothek.cores import available_cores
from kubothek.errors import DataTypeMismatch, InputError, SchemaMismatch, SourceEmpty
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.operations.replace import require_met
from kubothek.table.operations.written import Gathering, Written
from kubothek.table.partitioning import check_new_columns, check_new_table, check_without_time_zones
from kubothek.table.schema import conform, fitted, merge, normalise, with_nulls, without_time_zones
from kubothek.table.time_zones import zones_after, zones_in, zones_of

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pd.DataFrame | Iterable[pa.RecordBatch]"
Check: TypeAlias = Callable[[pa.Schema], Predicate | None]
"""Gets the stored schema of the rows. Raises an error if they are not allowed; returns the bound filter, if any, that
each row has to satisfy."""


def write_rows(
    store: Store,
    snapshot: Snapshot,
    data: Rows,
    *,
    table: pa.Schema | None,
    evolve: bool = False,
    check: Check = lambda schema: None,
) -> Written:
    """Write the rows to files of the table's layout. ``table`` is the stored schema that they have to fit.

    ``evolve``  the rows may have new columns and wider types, and may lack columns of the table

    Raises SchemaMismatch, DataTypeMismatch, PartitionInvalid, FilterNotMet, SourceEmpty: for rows in memory before any
    file is written, else after the written files are deleted.
    """
    head = snapshot.head
    layout = Layout.of(head)
    given, pieces = pieces_of(data)
    if isinstance(pieces, list) and not any(piece.num_rows for piece in pieces):
        raise _empty(head.uuid)
    schema = stored_after(given, table, layout, evolve=evolve)
    zones = zones_in(given)
    zones_after(table, zones_of(head.metadata), zones)
    where = check(schema)
    if isinstance(pieces, list):
        pieces = given_pieces = [_as_stored(piece, schema, evolve=evolve) for piece in pieces]
        given = given_pieces[0].schema
    row = 1
    gathering = Gathering.of(snapshot, schema)
    gatherer = gathering.gatherer(store, head.uuid, head.table, schema, layout.partition_on)
    with PartitionedWriter(
        store, head.uuid, schema, layout, table=head.table, observer=gatherer, cores=available_cores()
    ) as writer:
        for piece in pieces:
            if piece.schema is not given and not piece.schema.equals(given):
                raise SchemaMismatch(
                    f"all pieces must have one schema; the first has\n{given}\na later one\n{piece.schema}"
                )
            if where is not None:
                require_met(where, piece, "the data", row)
            writer.write(_as_stored(piece, schema, evolve=evolve))
            row += piece.num_rows
        files = writer.finish()
        gathered = gatherer.finish()
    if not files:
        raise _empty(head.uuid)
    return Written(tuple(files), schema, layout.partition_on, evolves=evolve, gathered=gathered, zones=zones)


def stored_after(given: pa.Schema, table: pa.Schema | None, layout: Layout, *, evolve: bool) -> pa.Schema:
    """Return the stored schema of the table with rows of this schema; raises if they are not allowed."""
    check_without_time_zones(given, layout.partition_on)
    new = normalise(without_time_zones(given), layout.partition_on)
    if table is None:
        check_new_table(new, layout.partition_on)
        return new
    merged = merge(table, fitted(table, new, evolve=evolve), evolve=evolve)
    check_new_columns(table, merged)
    return merged


def _empty(uuid: str) -> SourceEmpty:
    return SourceEmpty(f"there are no rows to write to {uuid!r}; nothing was committed")


def _as_stored(piece: pa.Table | pa.RecordBatch, schema: pa.Schema, *, evolve: bool) -> pa.Table:
    table = piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
    return conform(with_nulls(table, schema) if evolve else table, schema)


def pieces_of(data: Rows) -> tuple[pa.Schema, Iterable[pa.Table | pa.RecordBatch]]:
    """Return the schema of the data, and its rows piece by piece."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.schema, [data]
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        try:
            table = pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataTypeMismatch(f"a column of the DataFrame has values of different types: {error}") from error
        return table.schema, [table]
    if hasattr(data, "read_next_batch"):  # as a C stream it would lose the names of its errors
        reader = cast("pa.RecordBatchReader", data)
        return reader.schema, reader
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(cast("Any", data))
        return reader.schema, reader
    pieces = iter(data)
    first = next(pieces, None)
    if first is None:
        raise SourceEmpty("nothing to write: the iterable gave no batch")
    if not isinstance(first, pa.Table | pa.RecordBatch):
        raise InputError(f"cannot write {type(first).__name__}; use pyarrow tables or batches, or a pandas DataFrame")
    return first.schema, chain([first], pieces)
