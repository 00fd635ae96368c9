"""Whether a transformation can be divided, and how: asked of the queries themselves, before there are records."""

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
    """Each record is looked at alone."""
    KEYS = auto()
    """Records come together by keys, in one place or in several that follow each other."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``division``  what can be divided, None: nothing, one process does it all
    ``schema``    of the output, ``[op, event_time, data…]``
    ``steps``     the places where rows come together, with the one before the output, if there is one
    ``output``    of these the one after which rows are those of the output
    ``gathers``   whether there is one before the output, where rows of several places come together by what halves of
                  a correction have in common
    """

    division: Division | None
    schema: pa.Schema
    steps: int = 0
    output: int = 0
    gathers: bool = False


def plan_of(request: TransformRequest) -> Plan:
    """How a run can be divided. Raises TransformInvalid.

    Not divided is what has an aggregate, OVER or a session window without a key: there all rows meet. Nor what gives
    records that went past a state, as LATE(SIDE) does.
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
