"""One run of a transformation, and the check before the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import duckdb
import orjson
import pyarrow as pa

from kubothek.lake.errors import TransformInvalid
from kubothek.lake.ledger.sources import SqlQueryStep, TransformSql
from kubothek.lake.ledger.state import Vocabulary
from kubothek.lake.ledger.timestamps import Timestamp
from kubothek.lake.ledger.transform.contract import Records, TransformInput, TransformRequest, TransformResult
from kubothek.lake.ledger.transform.delta import Delta
from kubothek.lake.ledger.transform.dialect import temporal
from kubothek.lake.ledger.transform.hints import Hints, read_hints
from kubothek.lake.ledger.transform.late import Horizon, horizon_of, nothing_late
from kubothek.lake.ledger.transform.lateness import Lateness
from kubothek.lake.ledger.transform.operators import Operators
from kubothek.lake.ledger.transform.output import Output
from kubothek.lake.ledger.transform.scan import check_input, scan
from kubothek.lake.ledger.transform.session import ENGINES, Session
from kubothek.lake.ledger.transform.state import State
from kubothek.lake.ledger.transform.walk import Walk
from kubothek.lake.sql.statement import Statement, base_tables

ENGINE_VERSION: Final = f"kubothek-2+duckdb-{duckdb.__version__}"
"""What a block names as the engine (EN-11): another version may give other bytes."""
MEMORY: Final = "1GB"
"""Of a run's database, which goes to the disk beyond it."""
_STATE: Final = 2
"""The version of what operators remember."""


def validate(
    transform: TransformSql,
    inputs: Mapping[str, pa.Schema],
    vocabularies: Mapping[str, Vocabulary],
    vocabulary: Vocabulary,
) -> pa.Schema:
    """The columns of the output, [event_time, data…] (EN-05). Raises TransformInvalid, saying what to do.

    ``inputs``, ``vocabularies``  by what queries call them
    ``vocabulary``                that of the output
    """
    session = Session(engine_of(transform), None, MEMORY)
    try:
        given = [_Given(name, schema, vocabularies[name], None) for name, schema in inputs.items()]
        horizon = nothing_late(hints_of(transform), len(given))
        state = State(session, None, fingerprint(transform))
        return Output(session, _answer(session, state, horizon, transform, given), vocabulary).schema
    finally:
        session.close()


def execute(request: TransformRequest, *, memory: str = MEMORY, threads: int | None = None) -> TransformResult:
    """One run (EN-06, EN-07). Raises TransformInvalid, TransformTooLarge, FormatInvalid for a checkpoint of another
    query, and what the records raise; so does the stream. The new checkpoint is written when this returns.

    ``memory``, ``threads``  of the database; the result does not depend on them.
    """
    session = Session(engine_of(request.transform), request.scratch, memory, threads)
    try:
        given = [_Given(each.query_alias, each.schema, each.vocabulary, each.rows) for each in request.inputs]
        state = State(session, request.checkpoint, fingerprint(request.transform))
        horizon = horizon_of(hints_of(request.transform), request.inputs, state.header)
        output = Output(session, _answer(session, state, horizon, request.transform, given), request.vocabulary)
        rows = output.rows(request.vocabulary.op)
        if state.used:
            state.write(request.new_checkpoint, horizon.header)
    except BaseException:
        session.close()
        raise
    reader = pa.RecordBatchReader.from_batches(rows.schema, _closing(rows, session))
    watermark = _watermark(request.inputs, request.previous_watermark)
    return TransformResult(rows=reader, watermark=watermark, checkpoint=state.used)


@dataclass(frozen=True, slots=True)
class _Given:
    """What the queries see of an input."""

    name: str
    schema: pa.Schema
    vocabulary: Vocabulary
    rows: Records | None


def _closing(rows: pa.RecordBatchReader, session: Session) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    finally:
        session.close()


def _answer(
    session: Session, state: State, horizon: Horizon, transform: TransformSql, inputs: Sequence[_Given]
) -> Delta:
    """What changes in the answer of the last query."""
    steps = steps_of(transform)
    statements = parsed(session, steps)
    names = [temporal(node["table_name"])[0].casefold() for one in statements for node in base_tables(one.tree)]
    once = {name for name, count in Counter(names).items() if count == 1 and len(steps) == 1 and not horizon.on}
    lateness = Lateness(session, horizon)
    tables = {table.name.casefold(): table.primary_key for table in transform.temporal_tables or ()}
    walk = Walk(session, Operators(session, state, lateness, tables))
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
    """Each query sees the inputs and the queries before it."""
    for number, (step, statement) in enumerate(zip(steps, statements, strict=True), 1):
        walk.where = f"query {step.alias or number}"
        found = walk.query(statement.tree["statements"][0]["node"], scope)
        if step.alias is not None:
            if step.alias.casefold() in scope:
                raise TransformInvalid(f"{walk.where}: the alias {step.alias!r} is there already")
            scope[step.alias.casefold()] = found
    return found


def hints_of(transform: TransformSql) -> Hints:
    """Of the last query; no other may have any. Raises TransformInvalid."""
    *before, last = steps_of(transform)
    if any(read_hints(step.query) != Hints() for step in before):
        raise TransformInvalid("hints on late records stand in the last query, for all")
    return read_hints(last.query)


def fingerprint(transform: TransformSql) -> str:
    """What a state is of: another query has no use for it."""
    steps = [(step.alias, step.query) for step in steps_of(transform)]
    tables = [(table.name, table.primary_key) for table in transform.temporal_tables or ()]
    return sha256(orjson.dumps([_STATE, transform.engine.lower(), steps, tables])).hexdigest()


def engine_of(transform: TransformSql) -> str:
    """The engine of a transformation, in lower case. Raises TransformInvalid for one that is not known here."""
    engine = transform.engine.lower()
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise TransformInvalid(f"there is no engine {transform.engine!r} here; write SQL for one of {known}")
    return engine


def steps_of(transform: TransformSql) -> Sequence[SqlQueryStep]:
    """Its queries, the last one last. Raises TransformInvalid."""
    steps = transform.queries or ((SqlQueryStep(query=transform.query),) if transform.query else ())
    if not steps:
        raise TransformInvalid("the transformation has no query")
    if any(step.alias is None for step in steps[:-1]):
        raise TransformInvalid("a query before the last is a step and needs an alias")
    return steps


def parsed(session: Session, steps: Sequence[SqlQueryStep]) -> list[Statement]:
    """Each query, checked to be one SELECT of allowed parts. Raises TransformInvalid."""
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


def _watermark(inputs: Sequence[TransformInput], previous: Timestamp | None) -> Timestamp | None:
    """The least of the inputs', never below the previous one (DT-07)."""
    each = [one.watermarks[-1][1] if one.watermarks else one.previous_watermark for one in inputs]
    known = [one for one in each if one is not None]
    least = min(known) if known and len(known) == len(each) else None
    return max((one for one in (least, previous) if one is not None), default=None)
