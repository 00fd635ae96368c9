"""The queries of a transformation: steps, hints, and the fingerprint of their state."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import orjson

from kubothek.errors import TransformInvalid
from kubothek.odf.duckdb_rows import ENGINES
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from kubothek.odf.transform.hints import Hints, read_hints
from kubothek.odf.transform.session import Session
from kubothek.sql.statement import Statement

_STATE: Final = 2
"""The version of the operators' state."""


def hints_of(transform: TransformSql) -> Hints:
    """Return the hints of the last query; no other may have any. Raises TransformInvalid."""
    *before, last = steps_of(transform)
    if any(read_hints(step.query) != Hints() for step in before):
        raise TransformInvalid("hints on late records belong to the last query, for all")
    return read_hints(last.query)


def fingerprint(transform: TransformSql) -> str:
    """Return the fingerprint of a state; a query with another fingerprint cannot use it."""
    steps = [(step.alias, step.query) for step in steps_of(transform)]
    tables = [(table.name, table.primary_key) for table in transform.temporal_tables or ()]
    return sha256(orjson.dumps([_STATE, transform.engine.lower(), steps, tables])).hexdigest()


def engine_of(transform: TransformSql) -> str:
    """Return the engine of a transformation, in lower case. Raises TransformInvalid for an unknown one."""
    engine = transform.engine.lower()
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise TransformInvalid(f"there is no engine {transform.engine!r} here; write SQL for one of {known}")
    return engine


def steps_of(transform: TransformSql) -> Sequence[SqlQueryStep]:
    """Return the queries in their order. Raises TransformInvalid."""
    steps = transform.queries or ((SqlQueryStep(query=transform.query),) if transform.query else ())
    if not steps:
        raise TransformInvalid("the transformation has no query")
    if any(step.alias is None for step in steps[:-1]):
        raise TransformInvalid("a query before the last is a step and needs an alias")
    return steps


def parsed(session: Session, steps: Sequence[SqlQueryStep]) -> list[Statement]:
    """Parse each query and check that it is one SELECT of allowed parts. Raises TransformInvalid."""
    found = []
    for number, step in enumerate(steps, 1):
        try:
            statement = session.parse(step.query)
        except TransformInvalid as error:
            raise TransformInvalid(f"query {step.alias or number}: {error}") from error
        if travelled := [name for name, reference in statement.tables.items() if reference.as_of is not None]:
            raise TransformInvalid(
                f"query {step.alias or number}: {travelled[0]}: a derivative reads no earlier versions"
            )
        found.append(statement)
    return found
