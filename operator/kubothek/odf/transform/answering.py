"""The delta of the answer of a transformation's last query, as a relation of weighted rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kubothek.errors import TransformInvalid
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from kubothek.odf.transform.contract import Records
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.dialect import temporal
from kubothek.odf.transform.exchange import Exchange, straight
from kubothek.odf.transform.late import Horizon
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.operators import Operators
from kubothek.odf.transform.queries import parsed, steps_of
from kubothek.odf.transform.scan import check_input, scan
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import State
from kubothek.odf.transform.walk import Walk
from kubothek.odf.validation.state import Vocabulary
from kubothek.sql.statement import Statement, base_tables

Made = Callable[[Session, State, Lateness, Mapping[str, Sequence[str]]], Walk]
"""Builds a walk from the parts of a run and the primary keys of its temporal tables."""


@dataclass(frozen=True, slots=True)
class Given:
    """An input as the queries see it."""

    name: str
    schema: pa.Schema
    vocabulary: Vocabulary
    rows: Records | None


def answered(
    session: Session,
    state: State,
    horizon: Horizon,
    transform: TransformSql,
    inputs: Sequence[Given],
    exchange: Exchange = straight,
    made: Made | None = None,
) -> Delta:
    """Return the delta of the last query's answer. Raises TransformInvalid, TransformTooLarge.

    ``made``  builds another walk through the queries; it does not use ``exchange``
    """
    steps = steps_of(transform)
    statements = parsed(session, steps)
    names = [temporal(node["table_name"])[0].casefold() for one in statements for node in base_tables(one.tree)]
    once = {name for name, count in Counter(names).items() if count == 1 and len(steps) == 1 and not horizon.on}
    lateness = Lateness(session, horizon)
    tables = {table.name.casefold(): table.primary_key for table in transform.temporal_tables or ()}
    if made is None:
        walk = Walk(session, Operators(session, state, lateness, tables, exchange))
    else:
        walk = made(session, state, lateness, tables)
    scope: dict[str, Delta] = {}
    for position, each in enumerate(inputs):
        check_input(each.name, each.schema, each.vocabulary)
        if each.name.casefold() in scope:
            raise TransformInvalid(f"two inputs are called {each.name}; give one an alias")
        again = each.name.casefold() not in once
        relation = scan(
            session, position, each.schema, each.vocabulary, each.rows, horizon.blocks[position], again=again
        )
        found = walk.delta(relation, keyed=False, whole=True)
        scope[each.name.casefold()] = replace(found, time=each.vocabulary.event_time)
    if len(inputs) == 1:
        (lateness.records,) = scope.values()
    last = _last(walk, steps, statements, scope)
    lateness.require_judged()
    return last if lateness.late is None else lateness.late


def _last(walk: Walk, steps: Sequence[SqlQueryStep], statements: Sequence[Statement], scope: dict[str, Delta]) -> Delta:
    """Return the delta of the last query; each query sees the inputs and the queries before it."""
    for number, (step, statement) in enumerate(zip(steps, statements, strict=True), 1):
        walk.where = f"query {step.alias or number}"
        found = walk.query(statement.tree["statements"][0]["node"], scope)
        if step.alias is not None:
            if step.alias.casefold() in scope:
                raise TransformInvalid(f"{walk.where}: the alias {step.alias!r} exists already")
            scope[step.alias.casefold()] = found
    return found
