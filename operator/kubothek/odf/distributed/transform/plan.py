"""Whether and how a transformation can be divided: decided by the queries alone, before there are records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from kubothek.odf.transform.answering import Given, answered
from kubothek.odf.transform.contract import TransformRequest
from kubothek.odf.transform.exchange import Noted
from kubothek.odf.transform.late import nothing_late
from kubothek.odf.transform.output import Output
from kubothek.odf.transform.queries import engine_of, fingerprint, hints_of
from kubothek.odf.transform.run import MEMORY
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import State


class Division(Enum):
    """What is divided."""

    RECORDS = auto()
    """The queries treat each record alone."""
    KEYS = auto()
    """Rows are exchanged by keys, once or several times in a row."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The division of a run.

    ``division``  what can be divided, None: nothing, one process does it all
    ``schema``    of the output, ``[op, event_time, data…]``
    ``steps``     the number of exchanges, with the one before the output, if there is one
    ``output``    the number of the exchange after which rows are those of the output
    ``gathers``   whether there is an exchange before the output, where rows of several exchanges meet by the key
                  that the halves of a correction share
    """

    division: Division | None
    schema: pa.Schema
    steps: int = 0
    output: int = 0
    gathers: bool = False


def plan_of(request: TransformRequest) -> Plan:
    """Return how a run can be divided. Raises TransformInvalid.

    Not divided are queries in which all rows meet: an aggregate, OVER or a session window without a key. Nor are those
    that return records which bypass a state, as LATE(SIDE) does.
    """
    session = Session(engine_of(request.transform), None, MEMORY)
    try:
        horizon = nothing_late(hints_of(request.transform), len(request.inputs))
        state, noted = State(session, None, fingerprint(request.transform)), Noted()
        given = [Given(each.query_alias, each.schema, each.vocabulary, None) for each in request.inputs]
        delta = answered(session, state, horizon, request.transform, given, noted)
        output = Output(session, delta, request.vocabulary)
        schema = output.rows(request.vocabulary.op).schema
    finally:
        session.close()
    if not noted.keyed:
        return Plan(Division.RECORDS, schema)
    if not all(noted.keyed) or not delta.keyed:
        return Plan(None, schema)
    steps, last = len(noted.keyed), delta.step
    if last is None:
        return Plan(Division.KEYS, schema, steps + 1, steps + 1, gathers=True)
    return Plan(Division.KEYS, schema, steps, last)
