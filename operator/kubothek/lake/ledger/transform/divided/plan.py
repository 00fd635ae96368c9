"""Whether a transformation can be divided, and how: asked of the queries themselves, before there are records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from kubothek.lake.ledger.transform.answering import Given, answered
from kubothek.lake.ledger.transform.contract import TransformRequest
from kubothek.lake.ledger.transform.exchange import Noted
from kubothek.lake.ledger.transform.late import nothing_late
from kubothek.lake.ledger.transform.output import Output
from kubothek.lake.ledger.transform.queries import engine_of, fingerprint, hints_of
from kubothek.lake.ledger.transform.run import MEMORY
from kubothek.lake.ledger.transform.session import Session
from kubothek.lake.ledger.transform.state import State


class Division(Enum):
    """What is divided."""

    RECORDS = auto()
    """Each record is looked at alone."""
    KEYS = auto()
    """Records come together once, by a key."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``division``  what can be divided, None: nothing, one process does it all
    ``schema``    of the output, ``[op, event_time, data…]``
    """

    division: Division | None
    schema: pa.Schema


def plan_of(request: TransformRequest) -> Plan:
    """How a run can be divided. Raises TransformInvalid.

    Not divided are joins, session windows, several steps with a state, aggregates and OVER without a key, and
    LATE(SIDE): there rows meet that no one key brings together, or come out that went past the state.
    """
    session = Session(engine_of(request.transform), None, MEMORY)
    try:
        horizon = nothing_late(hints_of(request.transform), len(request.inputs))
        state, noted = State(session, None, fingerprint(request.transform)), Noted()
        given = [Given(each.query_alias, each.schema, each.vocabulary, None) for each in request.inputs]
        answer = answered(session, state, horizon, request.transform, given, noted)
        output = Output(session, answer.delta, request.vocabulary)
        schema = output.rows(request.vocabulary.op).schema
    finally:
        session.close()
    if not answer.operators:
        return Plan(Division.RECORDS, schema)
    alone = answer.operators == len(noted.keys) == 1 and answer.delta.keyed and not answer.mixed
    return Plan(Division.KEYS if alone and not horizon.side else None, schema)
