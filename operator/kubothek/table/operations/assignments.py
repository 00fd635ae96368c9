"""Values that expressions give to rows, in the table's stored types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kubothek.errors import FilterInvalid, InputError, SchemaMismatch
from kubothek.table.expressions.computed import TARGET, Compiled, Evaluator, compile_expression
from kubothek.table.schema import conform, fitted, merge, normalise, without_time_zones


def compiled(column: str, text: str, schema: pa.Schema) -> Compiled:
    """Return the checked expression of a new value of this column, over the columns of ``schema`` by their names.

    Raises FilterInvalid or SchemaMismatch, with the column at the beginning.
    """
    if column not in schema.names:
        raise FilterInvalid(f"set {column!r}: no such column; there are {', '.join(schema.names)}")
    try:
        expression = compile_expression(text, {TARGET: schema}, bare=TARGET)
        evaluator = Evaluator()
        try:
            computed({column: expression}, schema.empty_table(), schema, evaluator)
        finally:
            evaluator.close()
    except (FilterInvalid, SchemaMismatch, InputError) as error:
        quotes = f"; text has quotes of its own: {column}: \"'{text}'\"" if text.replace(" ", "").isalpha() else ""
        raise type(error)(f"set {column}: {error}{quotes}") from error
    return expression


def computed(
    expressions: Mapping[str, Compiled], rows: pa.Table, schema: pa.Schema, evaluator: Evaluator
) -> dict[str, pa.ChunkedArray[Any]]:
    """Return the new values of these rows by column. Raises InputError, SchemaMismatch, DataTypeMismatch."""
    columns = {(TARGET, name): rows.column(name) for name in rows.schema.names}
    found = evaluator.evaluate([*expressions.values()], columns, rows.num_rows)
    return {
        name: fit(pa.table({name: values}), schema.field(name)) for name, values in zip(expressions, found, strict=True)
    }


def fit(values: pa.Table, stored: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    """Return the values of one column in the stored type of the table, as an append casts them.

    Raises SchemaMismatch or DataTypeMismatch.
    """
    if values.schema.field(0).type == stored.type:
        return values.column(0)
    wanted = pa.schema([stored])
    merge(wanted, fitted(wanted, normalise(without_time_zones(values.schema))))
    return conform(values, wanted).column(0)


def patched(rows: pa.Table, patches: Sequence[tuple[Any, Mapping[str, Any]]], kept: Any = None) -> pa.Table:
    """Return the rows with new values of some: of each column, old values and new ones are taken.

    ``patches``  positions of rows, and their new values by column; no row is in two patches
    ``kept``     for each row whether it stays; None = all
    """
    orders: dict[tuple[int, ...], Any] = {}
    columns = []
    for name in rows.schema.names:
        patching = tuple(number for number, (_, values) in enumerate(patches) if name in values)
        if not patching and kept is None:
            columns.append(rows.column(name))
            continue
        if patching not in orders:
            orders[patching] = _order(rows.num_rows, [patches[number][0] for number in patching], kept)
        new = [patches[number][1][name] for number in patching]
        chunks = [chunk for column in (rows.column(name), *new) for chunk in _chunks(column)]
        columns.append(pa.chunked_array(chunks, rows.schema.field(name).type).take(orders[patching]))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _order(count: int, positions: Sequence[Any], kept: Any) -> pa.Array[Any]:
    order, end = np.arange(count, dtype=np.int64), count
    for some in positions:
        order[some] = np.arange(end, end + len(some))
        end += len(some)
    return pa.array(order if kept is None else order[kept])


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
