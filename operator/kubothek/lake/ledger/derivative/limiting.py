"""Runs of transformations in worker processes, for a process that has no limits of its own.

A verification runs what the chain says, and a chain that was pulled has the SQL of another party. A job's pod has
limits that the kernel keeps; a command on a workstation has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa

from kubothek.lake import limited
from kubothek.lake.arrow_stream import as_arrow, from_arrow
from kubothek.lake.errors import LakeError, TransformTooLarge
from kubothek.lake.ledger.derivative import running
from kubothek.lake.ledger.derivative.running import Task, request_of
from kubothek.lake.ledger.formats.timestamps import Timestamp
from kubothek.lake.ledger.transform import TransformRequest, TransformResult, execute
from kubothek.lake.limited import Ask, Cause, Work
from kubothek.lake.store import Store

MEMORY: Final = 4 << 30
"""Bytes of one run, 1 GB of which is its database's."""
SECONDS: Final = 3600.0

limited.preload(__name__)


def limited_runs(memory: int = MEMORY, seconds: float = SECONDS) -> AbstractContextManager[None]:
    """Within the context, our engine runs each transformation in a worker; in process where there are no workers."""
    return running.executing_with(partial(_limited, memory, seconds)) if limited.available() else nullcontext()


def _limited(memory: int, seconds: float, store: Store, task: Task, request: TransformRequest) -> TransformResult:
    work = limited.run(
        _worked,
        store,
        task,
        request.checkpoint,
        request.new_checkpoint,
        request.scratch,
        memory=memory,
        seconds=seconds,
        named=partial(_ended, memory, seconds),
        maps_files=True,  # checkpoints
    )
    try:
        head = b""
        while b"\n" not in head:
            head += next(work)
        told, _, first = head.partition(b"\n")
        watermark, checkpoint = orjson.loads(told)
        rows = from_arrow(chain([first] if first else [], work))
    except BaseException:
        work.close()
        raise
    reader = pa.RecordBatchReader.from_batches(rows.schema, _closing(rows, work))
    return TransformResult(
        rows=reader, watermark=None if watermark is None else Timestamp(watermark), checkpoint=checkpoint
    )


def _closing(rows: pa.RecordBatchReader, work: Work) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    finally:
        work.close()


def _worked(ask: Ask, store: Store, task: Task, checkpoint: Path | None, new: Path, scratch: Path) -> Iterator[bytes]:
    """In a worker: the run. Its files are the caller's, who removes them."""
    result = execute(request_of(store, task, checkpoint, new, scratch))
    watermark = None if result.watermark is None else result.watermark.nanoseconds
    yield orjson.dumps([watermark, result.checkpoint]) + b"\n"
    yield from as_arrow(result.rows)


def _ended(memory: int, seconds: float, cause: Cause) -> LakeError:
    if cause is Cause.TIME:
        return TransformTooLarge(f"the transformation took longer than {seconds:g} s and was stopped")
    return TransformTooLarge(f"the transformation needs more than {memory >> 20} MiB of memory and was stopped")
