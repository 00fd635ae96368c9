"""The run as a whole: parts of the records, parts of the keys, and what they left put together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from kubothek.lake.errors import StoreError
from kubothek.lake.ledger.transform.contract import TransformRequest, TransformResult
from kubothek.lake.ledger.transform.divided.joining import join_states, merged, rows_of
from kubothek.lake.ledger.transform.divided.plan import Division, Plan
from kubothek.lake.ledger.transform.divided.ranges import Range, ranges_of, spans_of
from kubothek.lake.ledger.transform.divided.work import Left, Reads, Work, of_keys, of_records
from kubothek.lake.ledger.transform.late import horizon_of
from kubothek.lake.ledger.transform.output import even
from kubothek.lake.ledger.transform.queries import fingerprint, hints_of
from kubothek.lake.ledger.transform.run import checkpoint_before, watermark_after
from kubothek.lake.ledger.transform.state import require_same
from kubothek.lake.store import Store
from kubothek.lake.store.spread import Spread, spread_here

PART_RECORDS: Final = 500_000
"""Records that a part takes, about."""
PART_MEMORY: Final = "512MB"
"""Of a part's database, which goes to the disk beyond it."""
_RECORDS_TITLE: Final = "transform parts of the records"
_KEYS_TITLE: Final = "transform parts of the keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Who does the parts, and where they leave what they made.

    ``spread``     does work to many parts at once
    ``store``      where they leave it, under names that begin with ``directory``
    ``records``    that a part takes, about; what comes of a run does not depend on it
    ``memory``, ``threads``  of the database of a part
    """

    spread: Spread
    store: Store
    directory: str
    records: int = PART_RECORDS
    memory: str = PART_MEMORY
    threads: int | None = 1


def execute_divided(request: TransformRequest, plan: Plan, reads: Reads, crew: Crew) -> TransformResult:
    """One run, as :func:`~kubothek.lake.ledger.transform.execute` does it, of a transformation that can be divided.

    ``reads``  gives the records that the inputs of the request have

    Raises what ``execute`` raises and what the spread raises, StoreError.
    """
    assert plan.division is not None, "it can be divided"
    before = checkpoint_before(request)
    header = {} if before is None else before.header
    require_same(before, fingerprint(request.transform))
    horizon = horizon_of(hints_of(request.transform), request.inputs, header)
    ranges = ranges_of(request.inputs, crew.records)
    work = Work(
        transform=request.transform,
        vocabulary=request.vocabulary,
        inputs=tuple(replace(each, rows=None) for each in request.inputs),
        horizon=horizon,
        division=plan.division,
        reads=reads,
        directory=f"{crew.directory}{uuid4().hex}-",
        memory=crew.memory,
        threads=crew.threads,
    )
    try:
        parts = _parts(request, work, ranges, crew)
    finally:
        with suppress(StoreError):  # what is left is garbage, which the collector knows
            crew.store.delete([info.key for info in crew.store.list(work.directory)])
    keyed = plan.division is Division.KEYS
    if keyed:
        join_states(
            parts, before, request.new_checkpoint, {**horizon.header, "fingerprint": fingerprint(request.transform)}
        )
    rows = even(_rows(parts, keyed=keyed), plan.schema)
    return TransformResult(
        rows=pa.RecordBatchReader.from_batches(plan.schema, rows),
        watermark=watermark_after(request.inputs, request.previous_watermark),
        checkpoint=keyed,
    )


def _parts(request: TransformRequest, work: Work, ranges: Sequence[Range], crew: Crew) -> list[tuple[Left, Path]]:
    """What the last parts left, each in a file of this machine, in their order."""
    left = crew.spread(partial(of_records, work), ranges, _RECORDS_TITLE)
    if work.division is Division.KEYS:
        if request.checkpoint is not None:
            state = f"{work.directory}state"
            with request.checkpoint.open("rb") as content:
                crew.store.upload(state, content)
            work = replace(work, state=state)
        work = replace(work, sent=tuple(each.key for each in left))
        spans = spans_of((key for each in left for key in each.sample), max(1, len(ranges)))
        left = crew.spread(partial(of_keys, work), spans, _KEYS_TITLE)
    names = [(each.key, request.scratch / f"part-{number}") for number, each in enumerate(left)]
    spread_here(crew.store)(_fetched, names, "fetch")
    return [(each, path) for each, (_, path) in zip(left, names, strict=True)]


def _fetched(store: Store, what: tuple[str, Path]) -> None:
    key, path = what
    with store.open(key) as source, path.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 22)


def _rows(parts: Sequence[tuple[Left, Path]], *, keyed: bool) -> Iterator[pa.RecordBatch]:
    streams = [rows_of(path) for _, path in parts]
    if keyed:
        yield from merged(streams)
        return
    for stream in streams:
        yield from stream
