"""The input of a query as tracing reads it: the records of each input, each as an addition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import TransformInvalid
from kubothek.odf.derived.batching import InputBatch
from kubothek.odf.derived.recorded import Recorded
from kubothek.odf.derived.running import given, readable, records_of
from kubothek.odf.lineage.trace import Readable
from kubothek.odf.transform.hints import Hints
from kubothek.odf.transform.queries import hints_of
from kubothek.odf.validation.row_checks import APPEND
from kubothek.odf.view import History
from kubothek.odf.view.history import OP_TYPE
from kubothek.odf.view.state import is_back, standing
from kubothek.storage import Store
from kubothek.table.scratch import Scratch


def taken_by(store: Store, run: Recorded, *, back: bool) -> list[Readable]:
    """Return the additions, or the retractions (``back``), that one run of a stateless transformation consumed."""
    return [
        Readable(given(store, each), partial(_signed, store, each, back) if each.parts else None)
        for each in run.task.batch.inputs
    ]


def stood_after(store: Store, runs: Sequence[Recorded], scratch: Scratch) -> list[Readable]:
    """Return the input records in effect after the last of some runs, all of one transformation.

    Raises TransformInvalid if late records are dropped and some are retracted: which of them are in effect then depends
    on their time of arrival.
    """
    late = hints_of(runs[-1].task.transform) != Hints()
    found = []
    for position, last in enumerate(runs[-1].task.batch.inputs):
        whole = _whole([run.task.batch.inputs[position] for run in runs], last)
        history = _history(store, whole)
        if late and history is not None and history.retracting():
            raise TransformInvalid(
                f"LATENESS leaves out records of input {last.alias!r} by the time at which they came, and that input "
                "takes records back: which of them count cannot be determined afterwards"
            )
        rows = None if history is None else partial(_standing, store, whole, history, scratch)
        found.append(Readable(given(store, whole), rows))
    return found


def _whole(taken: Sequence[InputBatch], last: InputBatch) -> InputBatch:
    """Return all that some runs consumed of one input."""
    shape = next((each.shape for each in reversed(taken) if each.parts), last.shape)
    return replace(
        last,
        shape=shape,
        parts=tuple(part for each in taken for part in each.parts),
        blocks=tuple(block for each in taken for block in each.blocks),
        watermarks=tuple(mark for each in taken for mark in each.watermarks),
    )


def _history(store: Store, whole: InputBatch) -> History | None:
    if not whole.parts:
        return None
    return History(store, whole.parts, whole.shape.vocabulary, whole.shape.schema, records=whole.records)


def _signed(store: Store, each: InputBatch, back: bool, where: pc.Expression | None) -> pa.RecordBatchReader:
    records, names = records_of(store, each, where=where), each.shape.vocabulary
    op = records.schema.get_field_index(names.op)

    def chosen() -> Iterator[pa.RecordBatch]:
        for batch in records:
            signs = is_back(batch.column(op))
            yield _added(batch.filter(signs if back else pc.invert(signs)), op)

    return pa.RecordBatchReader.from_batches(records.schema, chosen())


def _standing(
    store: Store, whole: InputBatch, history: History, scratch: Scratch, where: pc.Expression | None
) -> pa.RecordBatchReader:
    assert whole.shape.schema is not None, "there is data, and a schema before it"
    schema = history.as_read(whole.shape.schema.names)
    op = schema.get_field_index(whole.shape.vocabulary.op)
    batches = (_added(batch, op) for batch in standing(history, schema.names, scratch, where))
    return pa.RecordBatchReader.from_batches(schema, readable(store, whole.alias, whole.parts, batches))


def _added(batch: pa.RecordBatch, op: int) -> pa.RecordBatch:
    """Return the same records, each as an addition at its own offset."""
    columns = batch.columns
    columns[op] = pa.array(np.full(batch.num_rows, APPEND, np.int32), OP_TYPE)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
