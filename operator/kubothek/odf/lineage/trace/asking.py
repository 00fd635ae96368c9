"""Evaluation of a lineage request: from output rows to the input records that they derive from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import TransformInvalid
from kubothek.odf.duckdb_rows import cast, for_duckdb
from kubothek.odf.lineage.trace.bounds import qualified
from kubothek.odf.lineage.trace.narrowing import Range, Ranges, narrowed
from kubothek.odf.lineage.trace.operators import Tracing, Ways
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.transform.answering import Given, answered
from kubothek.odf.transform.contract import TransformInput
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.hints import Emit
from kubothek.odf.transform.late import horizon_of
from kubothek.odf.transform.output import Output
from kubothek.odf.transform.queries import engine_of, hints_of, parsed, steps_of
from kubothek.odf.transform.run import MEMORY
from kubothek.odf.transform.scan import INPUT, RECORD, visible
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import State
from kubothek.odf.transform.walk import Scope, Walk
from kubothek.odf.validation.state import Vocabulary
from kubothek.sql.statement import Node

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Rows of an output.

    ``rows``   as in the ledger, without duplicates
    ``first``  for each row, the number of equal output rows to skip
    ``count``  for each row, the number of equal output rows to use after those
    ``place``  maps output rows to the positions of their equals in ``rows``, null without one
    """

    rows: pa.RecordBatch
    first: Sequence[int]
    count: Sequence[int]
    place: Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class Readable:
    """An input: its description, and the function that reads its records; None: there are none.

    ``read``  yields all records of the input that match a condition, each as an addition, and possibly others
    """

    about: TransformInput
    read: Callable[[pc.Expression | None], pa.RecordBatchReader] | None


def origins(
    transform: TransformSql, inputs: Sequence[Readable], asked: Asked, vocabulary: Vocabulary, scratch: Path
) -> list[Offsets]:
    """Return the offsets of the origins in each input, ascending.

    ``inputs``  with all blocks from the first one, if records can be late
    ``asked``   rows of the output over these inputs

    Raises TransformInvalid if the queries are unsupported or return no such rows, TransformTooLarge, and what the read
    of records raises.
    """
    session = Session(engine_of(transform), scratch, MEMORY)
    try:
        hints, abouts = hints_of(transform), [each.about for each in inputs]
        wheres = _wheres(session, transform, abouts, asked.rows)
        given = [
            Given(
                each.about.query_alias,
                each.about.schema,
                each.about.vocabulary,
                None if each.read is None else partial(each.read, where),
            )
            for each, where in zip(inputs, wheres, strict=True)
        ]
        horizon = replace(horizon_of(hints, abouts, {}), hints=replace(hints, emit=Emit.UPDATES), closed=None)
        ways = Ways(session)

        def walk(*parts: Any) -> Walk:
            return _Walk(session, Tracing(ways, *parts))

        delta = answered(session, State(session, None, ""), horizon, transform, given, made=walk)
        found = ways.back(_found(session, Output(session, delta, vocabulary), asked))
        return _split(session.table(f"SELECT {INPUT}, {RECORD} FROM {found} ORDER BY ALL"), len(inputs))
    finally:
        session.close()


def _wheres(
    session: Session, transform: TransformSql, inputs: Sequence[TransformInput], rows: pa.RecordBatch
) -> list[pc.Expression | None]:
    """Return a condition for each input that all origins of the rows satisfy. Raises TransformInvalid."""
    steps = steps_of(transform)
    nodes = [each.tree["statements"][0]["node"] for each in parsed(session, steps)]
    shown = dict[str, Range]()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if (range_ := _shown(column)) is not None:
            shown[name.casefold()] = range_
    columns = {each.query_alias: visible(each.schema, each.vocabulary) for each in inputs}
    queries = [(step.alias or "", node) for step, node in zip(steps, nodes, strict=True)]
    found = narrowed(queries, columns, shown, lambda node: session.first(f"SELECT {session.text(node)}")[0])
    return [_where(each.schema, found[each.query_alias]) for each in inputs]


def _shown(column: Any) -> Range | None:
    """Return the range of a column; None for nulls, and for types and values without an exact equal in Python."""
    kind = column.type
    if column.null_count or not (_is_plain(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns")):
        return None
    ends: Any = pc.min_max(column)
    try:
        return Range(ends["min"].as_py(), ends["max"].as_py(), kind)
    except (OverflowError, ValueError):  # outside of the years 1 to 9999
        return None


def _where(schema: pa.Schema, ranges: Ranges) -> pc.Expression | None:
    """Return the ranges as a condition on columns with exactly the type of the range."""
    whole: pc.Expression | None = None
    for column in schema:
        range_ = ranges.get(column.name.casefold())
        if range_ is None or range_.kind != column.type:
            continue
        least, most = (pa.scalar(value, column.type) for value in (range_.least, range_.most))
        each = (pc.field(column.name) >= least) & (pc.field(column.name) <= most)
        whole = each if whole is None else whole & each
    return whole


class _Walk(Walk):
    """Walk that moves a filter on a rank into QUALIFY, if the rank is not selected."""

    def _select(self, node: Node, scope: Scope) -> Delta:
        return super()._select(qualified(node), scope)


def _found(session: Session, output: Output, asked: Asked) -> str:
    """Return the origins of the requested output rows as a relation. Raises TransformInvalid."""
    compared = {field.name: f"w{number}" for number, field in enumerate(asked.rows.schema) if _is_plain(field.type)}
    chosen = asked.rows.select([*compared]).rename_columns([*compared.values()])
    inside = pa.schema([pa.field(field.name, for_duckdb(field.type)) for field in chosen.schema])
    one = pa.table({"__there": pa.array([True] * asked.rows.num_rows)})
    wanted = pa.Table.from_batches([cast(chosen, inside)]) if compared else one
    nothing = np.zeros(0, np.int64)
    equal = [(nothing, nothing, nothing)]
    for rows, places in output.origins(session.register("asked", wanted), compared):
        numbers = pc.fill_null(asked.place(rows), -1).to_numpy(zero_copy_only=False).astype(np.int64)
        chosen_rows = np.flatnonzero(numbers >= 0)
        inputs, records = (places.column(name).to_numpy() for name in (INPUT, RECORD))
        equal.append((numbers[chosen_rows], inputs[chosen_rows], records[chosen_rows]))
    numbers, inputs, records = (np.concatenate(column) for column in zip(*equal, strict=True))
    taken = _chosen(numbers, np.array(asked.first), np.array(asked.count))
    if len(missing := np.flatnonzero(np.bincount(numbers[taken], minlength=asked.rows.num_rows) < asked.count)):
        (row,) = asked.rows.slice(int(missing[0]), 1).to_pylist()
        told = ", ".join(f"{name} {value}" for name, value in row.items())
        raise TransformInvalid(f"the queries give no record {told} here: another engine made it")
    return session.register(
        "found", pa.table([pa.array(inputs[taken], pa.int32()), pa.array(records[taken], pa.int64())], [INPUT, RECORD])
    )


def _chosen(numbers: Offsets, first: Offsets, count: Offsets) -> Offsets:
    """Return, among rows numbered by their equal in the request, the positions of ``count`` rows after ``first``."""
    rank, least = earlier_of(numbers), first[numbers]
    return np.flatnonzero((rank >= least) & (rank < least + count[numbers]))


def earlier_of(numbers: Offsets) -> Offsets:
    """Return, for each number, how many equal ones precede it."""
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers)
    rank = np.empty(len(numbers), np.int64)
    rank[order] = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values of a type are equal in the database exactly if they are equal in a slice."""
    types = pa.types
    return types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_date(kind)


def _split(table: pa.Table, inputs: int) -> list[Offsets]:
    numbers, offsets = (np.asarray(table.column(name).to_numpy()) for name in (INPUT, RECORD))
    return [offsets[numbers == position].astype(np.int64) for position in range(inputs)]
