"""A divided run as a whole: parts of the records, parts of the keys, and the joining of their results."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from kubothek.errors import StoreError
from kubothek.odf.distributed.transform.joining import Parts, join_states, merged, rows_of
from kubothek.odf.distributed.transform.plan import Division, Plan
from kubothek.odf.distributed.transform.ranges import Range, ranges_of, spans_of
from kubothek.odf.distributed.transform.work import Left, Reads, Work, of_keys, of_records
from kubothek.odf.transform.contract import TransformRequest, TransformResult
from kubothek.odf.transform.late import horizon_of
from kubothek.odf.transform.output import even
from kubothek.odf.transform.queries import fingerprint, hints_of
from kubothek.odf.transform.run import checkpoint_before, watermark_after
from kubothek.odf.transform.state import require_same
from kubothek.storage import Store
from kubothek.storage.parallel import Spread, spread_here

PART_RECORDS: Final = 500_000
"""The approximate number of records of a part."""
PART_MEMORY: Final = "512MB"
"""The memory limit of a part's database, which spills to disk beyond it."""
_RECORDS_TITLE: Final = "transform parts of the records"
_KEYS_TITLE: Final = "transform parts of the keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How parts run, and where they leave their results.

    ``spread``     runs work on many parts at once
    ``store``      the store of the results, under keys that begin with ``directory``
    ``records``    of a part, about; the result of a run does not depend on it
    ``memory``, ``threads``  of the database of a part
    """

    spread: Spread
    store: Store
    directory: str
    records: int = PART_RECORDS
    memory: str = PART_MEMORY
    threads: int | None = 1


def execute_divided(request: TransformRequest, plan: Plan, reads: Reads, crew: Crew) -> TransformResult:
    """Execute a run as :func:`~kubothek.odf.transform.execute` does, of a transformation that can be divided.

    ``reads``  reads the records of the request's inputs

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
        plan=plan,
        reads=reads,
        directory=f"{crew.directory}{uuid4().hex}-",
        memory=crew.memory,
        threads=crew.threads,
    )
    try:
        steps = _steps(request, work, ranges, crew)
    finally:
        with suppress(StoreError):  # leftovers are garbage, which the collector deletes
            crew.store.delete([info.key for info in crew.store.list(work.directory)])
    keyed = plan.division is Division.KEYS
    if keyed:
        header = {**horizon.header, "fingerprint": fingerprint(request.transform)}
        join_states(steps[1:], before, request.new_checkpoint, header)
    rows = even(_rows(steps[plan.output], keyed=keyed), plan.schema)
    return TransformResult(
        rows=pa.RecordBatchReader.from_batches(plan.schema, rows),
        watermark=watermark_after(request.inputs, request.previous_watermark),
        checkpoint=keyed,
    )


def _steps(request: TransformRequest, work: Work, ranges: Sequence[Range], crew: Crew) -> list[Parts]:
    """Run the parts of the records and then those of each exchange; return their results."""
    left = [crew.spread(partial(of_records, work), ranges, _RECORDS_TITLE)]
    if work.plan.steps and request.checkpoint is not None:
        work = replace(work, state=f"{work.directory}state")
        with request.checkpoint.open("rb") as content:
            crew.store.upload(f"{work.directory}state", content)
    for step in range(1, work.plan.steps + 1):
        samples = {each.sent: each.sample(step) for parts in left for each in parts if each.sent is not None}
        sent = tuple(key for key, sample in samples.items() if sample)
        spans = spans_of(chain.from_iterable(samples.values()), max(1, len(ranges)))
        left.append(crew.spread(partial(of_keys, replace(work, step=step, sent=sent)), spans, _KEYS_TITLE))
    return [_at_hand(request, crew, parts, f"part-{number}") for number, parts in enumerate(left)]


def _at_hand(request: TransformRequest, crew: Crew, parts: Sequence[Left], name: str) -> Parts:
    """Fetch the results of the parts that have one; return each with its local file."""
    made = [(each, each.made, request.scratch / f"{name}-{n}") for n, each in enumerate(parts) if each.made is not None]
    spread_here(crew.store)(_fetched, [(key, path) for _, key, path in made], "fetch")
    return [(each, path) for each, _, path in made]


def _fetched(store: Store, what: tuple[str, Path]) -> None:
    key, path = what
    with store.open(key) as source, path.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 22)


def _rows(parts: Parts, *, keyed: bool) -> Iterator[pa.RecordBatch]:
    streams = [rows_of(path) for _, path in parts]
    if keyed:
        yield from merged(streams)
        return
    for stream in streams:
        yield from stream
