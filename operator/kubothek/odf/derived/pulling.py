"""The commit of one run: a slice, a checkpoint, an ExecuteTransform and a new table (DT-01, DT-06 … DT-08).

Nothing is visible before the commit. On a conflict with another writer, the run is repeated on the new head.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FormatInvalid, RowsLost, SchemaMismatch, TransformChanged
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.ingesting import Ground, Made, next_schema
from kubothek.odf.dataset.slicing import Sliced
from kubothek.odf.derived.batching import Batch
from kubothek.odf.derived.matching import to_table
from kubothek.odf.derived.running import (
    Engine,
    Run,
    Task,
    checkpoint_of,
    fetch_checkpoint,
    running,
    sql_of,
    store_checkpoint,
)
from kubothek.odf.spec.events import Checkpoint, SetTransform
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.view import ViewWriter
from kubothek.table.log import Change, Operation

ONE_SLICE: Final = 1 << 62
"""Slice size in bytes, in effect unlimited: ExecuteTransform holds one slice, and the limits of the batch bound it."""


def pulled(ground: Ground, batch: Batch, engine: Engine) -> Made | None:
    """Return the change of a batch; None if it would change nothing (ET-06).

    Raises what the engine raises, SchemaMismatch if the columns differ from the previous ones, InputMissing,
    RecordMissing.
    """
    state = ground.chain.state
    state.require_known()
    assert state.seed is not None, "a chain has a seed"
    assert state.transform is not None, "a derivative dataset begins with one"
    times = [time for time in (ground.now, batch.latest) if time is not None]
    extension = Extension(ground.chain, max(times))
    transform = _by_this_engine(ground, state.transform, extension, engine)
    task = Task(
        transform=transform,
        vocabulary=state.vocabulary,
        batch=batch,
        system_time=extension.system_time,
        previous_watermark=state.watermark,
        dataset_id=state.seed.dataset_id,
        next_offset=state.next_offset,
    )
    with ExitStack() as stack:
        before = None
        if state.checkpoint is not None:
            before = Path(stack.enter_context(NamedTemporaryFile(prefix="kubothek-checkpoint-")).name)
            fetch_checkpoint(ground.store, ground.layout, state.checkpoint, before)
        run = stack.enter_context(_carried_on(ground, task, before, engine))
        beside = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="checkpoint"))
        kept = beside.submit(_kept, ground, run)
        written = _written(ground, run, extension)
        fields = _table(ground, written) if written is not None and ground.chain.table else {}
        checkpoint = kept.result()
    watermark = run.result.watermark
    same = (checkpoint.physical_hash if checkpoint else None) == state.checkpoint
    if written is None and same and (watermark is None or watermark == state.watermark) and not batch.records:
        return None
    inputs = [each.event for each in batch.inputs]
    extension.add_run(inputs, written.slice.data if written else None, watermark, checkpoint)
    extension.write(ground.store, ground.uuid)
    operation = Operation.APPEND if written else Operation.LEDGER
    change = Change(operation=operation, ledger=extension.change, by=ground.by, **fields)
    records = sum(each.num_rows for each in written.batches) if written else 0
    return Made(change=change, extension=extension, records=records, slices=1 if written else 0)


def _by_this_engine(ground: Ground, event: SetTransform, extension: Extension, engine: Engine) -> TransformSql:
    """Return the transformation. If it names another version that this engine replaces, add a SetTransform with the
    version of this engine (EN-11). Raises TransformChanged if the engine cannot use the existing state.
    """
    sql = sql_of(event.transform)
    if ground.chain.state.checkpoint is not None and not engine.goes_on_from(sql.version):
        raise _stuck(ground, f"{sql.version} left it, and {engine.version} is to go on")
    if sql.version == engine.version or not engine.succeeds(sql.version):
        return sql
    now = replace(sql, version=engine.version)
    extension.add(replace(event, transform=now))
    return now


@contextmanager
def _carried_on(ground: Ground, task: Task, before: Path | None, engine: Engine) -> Iterator[Run]:
    """Start the run. Raises TransformChanged with a remedy if it cannot continue from the last state."""
    with ExitStack() as stack:
        try:
            run = stack.enter_context(running(ground.store, task, before, engine=engine))
        except FormatInvalid as error:
            raise _stuck(ground, str(error)) from error
        yield run


def _stuck(ground: Ground, why: str) -> TransformChanged:
    return TransformChanged(
        f"the transformation of {ground.uuid!r} cannot continue from its last state ({why}): another query, "
        "columns of an input that changed, or another engine. Reset the dataset to rebuild its data"
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """A stored slice, and its records."""

    slice: Sliced
    batches: list[pa.RecordBatch]
    schema: pa.Schema


def _schema(chain: Chain, rows: pa.Schema) -> pa.Schema:
    """Return the columns of a slice of such rows: the previous ones, then new ones (DT-08, EVO-01).

    Raises SchemaMismatch.
    """
    try:
        return next_schema(chain, rows)
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"the transformation gives other columns than before: {error}. Give it a query that keeps them, or reset "
            "the derivative dataset to rebuild it with these"
        ) from error


def _written(ground: Ground, run: Run, extension: Extension) -> _Written | None:
    """Write the rows of a run as one slice, and the schema before it; None if there are no rows."""
    state = ground.chain.state
    rows = run.result.rows
    if not len(rows.schema):  # an engine without output may omit the columns
        return None
    schema = _schema(ground.chain, rows.schema)
    with replace(ground, slice_bytes=ONE_SLICE).slice_writer(schema, state, extension.system_time) as writer:
        kept = [writer.write(batch) for batch in rows if batch.num_rows]
        slices = writer.finish()
    if not slices:
        return None
    if len(slices) > 1:
        raise RowsLost(f"a run made {len(slices)} slices, and an event has room for one")
    extension.set_schema(schema)
    return _Written(slices[0], kept, schema)


def _kept(ground: Ground, run: Run) -> Checkpoint | None:
    """Store the checkpoint of a run, concurrently with the read of its rows."""
    if (path := run.checkpoint_file) is None:
        return None
    checkpoint = checkpoint_of(path)
    ground.note_written(ground.layout.checkpoint(checkpoint.physical_hash))
    store_checkpoint(ground.store, ground.layout, checkpoint, path)
    return checkpoint


def _table(ground: Ground, written: _Written) -> dict[str, Any]:
    """Return the change of the table. The first data defines its columns, also after a reset."""
    snapshot, names = ground.snapshot, ground.chain.state.vocabulary
    first = ground.chain.state.schema is None
    if first:
        snapshot = replace(snapshot, head=replace(snapshot.head, partitions={}), schema=None)
    with ViewWriter(ground.store, snapshot, schema=written.schema, vocabulary=names) as view:
        for batch in to_table(ground.store, snapshot, written.batches, names):
            view.write(batch)
        made = view.finish()
    if first and ground.snapshot.schema is not None:
        made = replace(made, removed=tuple(ground.snapshot.head.partitions), schema=view.schema, replaces_schema=True)
    return made.fields()
