"""Update: matching rows get other values, by copies of the files that hold them.

As text, a new value is a literal of the filter language or an expression over the row's columns:
``{"carrier": "'AA'", "delay": "NULL", "price": "price * 1.1"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kubothek.errors import FilterInvalid, InputError, PartitionInvalid, RowLevelNeeded
from kubothek.in_memory_database import quoted
from kubothek.storage import Store
from kubothek.table.expressions import Op, Predicate, Term, parse
from kubothek.table.expressions.computed import Expression
from kubothek.table.indexes import IndexChange
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation, Snapshot
from kubothek.table.operations import filters
from kubothek.table.operations.assignments import compiled
from kubothek.table.operations.rewrite import Rewrite, Rewriter, Rewritten
from kubothek.table.scan.plan import plan
from kubothek.table.schema import type_name
from kubothek.table.skipping.model import SkippingChange

Values = Mapping[str, Any]
"""New value by column, as a Python object or an :class:`Expression`; None is NULL."""


def parse_values(texts: Mapping[str, str]) -> Values:
    """Return the values of literals and expressions. Raises FilterInvalid for text that is neither."""
    return {column: _parse(column, text) for column, text in texts.items()}


def update(
    store: Store,
    snapshot: Snapshot,
    where: Predicate,
    values: Values,
    *,
    rewriter: Rewriter | None,
    layout: Layout | None = None,
    by: str = "",
) -> Change:
    """Return the change that sets these values in rows for which ``where`` is TRUE; an empty one if there are none.

    Rows whose partition columns change move to their new partition. Raises what
    :func:`~kubothek.table.operations.delete` raises; RowLevelNeeded if ``rewriter`` is None; FilterInvalid,
    InputError or PartitionInvalid for values that do not fit their columns.
    """
    bound = filters.bind(where, snapshot)
    if rewriter is None:
        raise RowLevelNeeded("an update changes rows inside of files: say rowLevel: true to rewrite those that match")
    typed = _typed(values, snapshot)
    files = plan(store, snapshot, bound).files
    total = len(snapshot.head.partitions)
    filters.require_not_everything(bound, sum(file.all_rows for file in files), total)
    done = rewriter(Rewrite.of(store, snapshot, layout, where=bound, values=typed), files) if files else Rewritten()
    filters.require_not_everything(bound, len(done.removed) if done.kept == 0 else 0, total)
    return Change(
        operation=Operation.UPDATE,
        added=done.added,
        removed=done.removed,
        reads=filters.reads(bound, snapshot),
        schema=snapshot.schema if done.added else None,
        index=IndexChange(collected=done.gathered.index),
        skipping=SkippingChange(written=done.gathered.skipping),
        by=by,
    )


def _parse(column: str, text: str) -> Any:
    if text.strip().upper() == "NULL":
        return None
    try:
        conjunctions = parse(f"{quoted(column)} = {text}").conjunctions
    except FilterInvalid:
        return Expression(text)
    match conjunctions:
        case ((Term(column=found, op=Op.EQ, value=value),),) if found == column:
            return value
    return Expression(text)


def _typed(values: Values, snapshot: Snapshot) -> tuple[tuple[str, Any], ...]:
    """Return the values in the types of their columns, and expressions checked."""
    schema = snapshot.schema if snapshot.schema is not None else pa.schema([])
    if not values:
        raise InputError("an update without values changes nothing: name columns and their new values in set")
    computed = {column: value.text for column, value in values.items() if isinstance(value, Expression)}
    values = {column: value for column, value in values.items() if column not in computed}
    expressions = tuple((column, compiled(column, text, schema)) for column, text in computed.items())
    if not values:
        return expressions
    # Binding a comparison converts the value to the type of its column, or raises why that is impossible.
    equalities = Predicate((tuple(Term(column, Op.EQ, value) for column, value in values.items()),)).bind(schema)
    literals = tuple(
        (term.column, _checked(term, values[term.column], schema.field(term.column), snapshot))
        for term in equalities.conjunctions[0]
    )
    return (*literals, *expressions)


def _checked(term: Term, given: Any, field: pa.Field[Any], snapshot: Snapshot) -> Any:
    partitioning = field.name in snapshot.head.partition_keys
    if partitioning and (given is None or given != given):
        raise PartitionInvalid(f"set {field.name!r}: a partition column cannot be NULL or NaN")
    if given is not None and pa.types.is_null(field.type):
        raise InputError(
            f"set {field.name!r}: the column has no type yet, as no row has a value in it; append one first"
        )
    if given is not None and (term.op is not Op.EQ or term.value is None):
        raise InputError(f"set {field.name!r}: {given!r} cannot be stored as {type_name(field.type)}")
    return term.value
