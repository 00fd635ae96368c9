"""One run of a transformation, and the check before the first run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import duckdb
import pyarrow as pa

from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.transform.answering import Given, answered
from kubothek.odf.transform.checkpoint import Reader
from kubothek.odf.transform.contract import TransformInput, TransformRequest, TransformResult
from kubothek.odf.transform.late import horizon_of, nothing_late
from kubothek.odf.transform.output import Output
from kubothek.odf.transform.places import Mapped
from kubothek.odf.transform.queries import engine_of, fingerprint, hints_of
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import State
from kubothek.odf.validation.state import Vocabulary

ENGINE_VERSION: Final = f"kubothek-2+duckdb-{duckdb.__version__}"
"""The engine in a block (EN-11); another version may give other bytes."""
MEMORY: Final = "1GB"
"""The memory limit of a run's database, which spills to disk beyond it."""


def validate(
    transform: TransformSql,
    inputs: Mapping[str, pa.Schema],
    vocabularies: Mapping[str, Vocabulary],
    vocabulary: Vocabulary,
) -> pa.Schema:
    """Return the columns of the output, [event_time, data…] (EN-05). Raises TransformInvalid, with a remedy.

    ``inputs``, ``vocabularies``  by their names in queries
    ``vocabulary``                that of the output
    """
    return _checked(transform, inputs, vocabularies, vocabulary)[0]


def keeps_state(
    transform: TransformSql,
    inputs: Mapping[str, pa.Schema],
    vocabularies: Mapping[str, Vocabulary],
    vocabulary: Vocabulary,
) -> bool:
    """Return whether runs leave a state for the next one; arguments and errors as of :func:`validate`."""
    return _checked(transform, inputs, vocabularies, vocabulary)[1]


def _checked(
    transform: TransformSql,
    inputs: Mapping[str, pa.Schema],
    vocabularies: Mapping[str, Vocabulary],
    vocabulary: Vocabulary,
) -> tuple[pa.Schema, bool]:
    session = Session(engine_of(transform), None, MEMORY)
    try:
        given = [Given(name, schema, vocabularies[name], None) for name, schema in inputs.items()]
        horizon = nothing_late(hints_of(transform), len(given))
        state = State(session, None, fingerprint(transform))
        schema = Output(session, answered(session, state, horizon, transform, given), vocabulary).schema
        return schema, state.used
    finally:
        session.close()


def execute(request: TransformRequest, *, memory: str = MEMORY, threads: int | None = None) -> TransformResult:
    """Execute one run (EN-06, EN-07). The new checkpoint is written when this returns.

    ``memory``, ``threads``  of the database; the result does not depend on them

    Raises TransformInvalid, TransformTooLarge, FormatInvalid for a checkpoint of another query, and what reading the
    records raises; so does the stream.
    """
    session = Session(engine_of(request.transform), request.scratch, memory, threads)
    try:
        given = [Given(each.query_alias, each.schema, each.vocabulary, each.rows) for each in request.inputs]
        state = State(session, checkpoint_before(request), fingerprint(request.transform))
        horizon = horizon_of(hints_of(request.transform), request.inputs, state.header)
        delta = answered(session, state, horizon, request.transform, given)
        output = Output(session, delta, request.vocabulary)
        rows = output.rows(request.vocabulary.op)
        if state.used:
            state.write(request.new_checkpoint, horizon.header)
    except BaseException:
        session.close()
        raise
    reader = pa.RecordBatchReader.from_batches(rows.schema, _closing(rows, session))
    watermark = watermark_after(request.inputs, request.previous_watermark)
    return TransformResult(rows=reader, watermark=watermark, checkpoint=state.used)


def checkpoint_before(request: TransformRequest) -> Reader | None:
    """Return the checkpoint of the previous run. Raises FormatInvalid."""
    return None if request.checkpoint is None else Reader(Mapped(request.checkpoint))


def _closing(rows: pa.RecordBatchReader, session: Session) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    finally:
        session.close()


def watermark_after(inputs: Sequence[TransformInput], previous: Timestamp | None) -> Timestamp | None:
    """Return the least watermark of the inputs, never below the previous one (DT-07)."""
    each = [one.watermarks[-1][1] if one.watermarks else one.previous_watermark for one in inputs]
    known = [one for one in each if one is not None]
    least = min(known) if known and len(known) == len(each) else None
    return max((one for one in (least, previous) if one is not None), default=None)
