"""Whether a chain and all data that it names are what they are said to be (VE-01, REQ-03).

Three passes: back from the head along the hashes, forward over the events with the rules, then every slice and
checkpoint on its own and in parallel; and where all is well, whether retractions take back what there was. Everything
wrong becomes a ``Problem`` that names its place, ordered as the chain is: the first is the first wrong thing. Only a
store that does not answer raises.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from kubothek.lake.errors import FormatInvalid
from kubothek.lake.ledger.blocks import Block
from kubothek.lake.ledger.chain import BrokenChain, Stored, read_chain
from kubothek.lake.ledger.events import AddData, ExecuteTransform
from kubothek.lake.ledger.identity import DatasetId
from kubothek.lake.ledger.layout import Layout
from kubothek.lake.ledger.multihash import Multihash
from kubothek.lake.ledger.problems import Problem, Severity
from kubothek.lake.ledger.retractions import first_unmatched
from kubothek.lake.ledger.rules import problems
from kubothek.lake.ledger.slices import Expected, Facts, check_checkpoint, check_slice
from kubothek.lake.ledger.state import ChainState, advance
from kubothek.lake.store import Store

_KEPT: Final = 100
"""So many problems of each severity are kept: no number of notes hides an error."""
_AHEAD: Final = 2
"""Slices a thread that are under way, so that memory does not grow with the chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was verified and what is wrong with it. ``problems`` are in the order of the chain."""

    dataset_id: DatasetId | None
    head: Multihash | None
    blocks: int
    slices: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether the specification is kept."""
        return self.first is None

    @property
    def first(self) -> Problem | None:
        """The first thing that is wrong."""
        return next((problem for problem in self.problems if problem.severity is Severity.ERROR), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The chain alone: what its events say, what is wrong with them, and what they name."""

    state: ChainState
    problems: tuple[Problem, ...]
    slices: tuple[Expected, ...]
    checkpoints: tuple[tuple[Block, Multihash, int], ...]


Progress = Callable[[int, int], None]
"""Called with how many slices are done, of how many."""


def verify(
    store: Store,
    layout: Layout,
    head: Multihash | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify the chain up to ``head`` (None: the store's) and everything that it names.

    Raises StoreError, and OSError if large slices find no room on the disk.
    """
    threads = threads or os.cpu_count() or 1
    audit, found = audit_store(store, layout, head)
    with (
        ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool,
        ThreadPoolExecutor(threads, thread_name_prefix="columns") as columns,
    ):
        # few slices leave threads to their columns
        spare = columns if len(audit.slices) < threads else None
        work = (pool.submit(check_slice, store, layout, expected, spare) for expected in audit.slices)
        facts = _gather(work, threads * _AHEAD, len(audit.slices), progress)
        for block, problem in _checkpoints(pool, store, layout, audit):
            found.append(_placed(problem, block))
    for each in facts:
        found.extend(each.problems)
    found.extend(_between(audit.slices, facts))
    if any(each.retracts for each in facts) and all(problem.severity is not Severity.ERROR for problem in found):
        unmatched = first_unmatched(store, layout, audit.slices, [each.retracts for each in facts])
        found.extend([unmatched] if unmatched else [])
    return Verdict(
        dataset_id=audit.state.seed.dataset_id if audit.state.seed else None,
        head=audit.state.head,
        blocks=audit.state.length,
        slices=len(facts),
        records=sum(each.rows for each in facts),
        bytes=sum(each.bytes for each in facts),
        problems=_kept(found),
    )


def audit_store(store: Store, layout: Layout, head: Multihash | None = None) -> tuple[Audit, list[Problem]]:
    """The chain in a store, and all that is wrong with it, without its data."""
    try:
        chain = read_chain(store, layout, head)
    except BrokenChain as broken:
        return audit([]), [broken.problem]
    result = audit(chain)
    return result, list(result.problems)


def audit(chain: Iterable[Stored]) -> Audit:
    """A whole chain, oldest block first."""
    state, found = ChainState(), list[Problem]()
    slices, checkpoints = list[Expected](), list[tuple[Block, Multihash, int]]()
    for stored in chain:
        try:
            block = stored.decode()
        except FormatInvalid as error:
            found.append(Problem("BlockForm", "MF-02", str(error), block=stored.hash, number=state.length))
            break  # what it would have changed is unknown
        found.extend(problems(state, block))
        if not block.canonical:
            message = "its bytes are not those that the reference would write again: it may refuse them"
            found.append(_placed(Problem("BlockDialect", "HS-09", message, Severity.NOTE), block))
        event = block.content.event
        if isinstance(event, AddData | ExecuteTransform):
            if event.new_data:
                slices.append(
                    Expected(
                        data=event.new_data,
                        vocabulary=state.vocabulary,
                        schema=state.schema,
                        block=block.hash,
                        number=block.content.sequence_number,
                    )
                )
            if event.new_checkpoint:
                checkpoints.append((block, event.new_checkpoint.physical_hash, event.new_checkpoint.size))
        state = advance(state, block)
    return Audit(state=state, problems=tuple(found), slices=tuple(slices), checkpoints=tuple(checkpoints))


def _gather(work: Iterator[Future[Facts]], ahead: int, count: int, progress: Progress | None) -> list[Facts]:
    """The results in their order; ``work`` is started as far ahead as said."""
    done: list[Facts] = []
    waiting = deque(islice(work, ahead))
    while waiting:
        done.append(waiting.popleft().result())
        waiting.extend(islice(work, 1))
        if progress:
            progress(len(done), count)
    return done


def _checkpoints(
    pool: ThreadPoolExecutor, store: Store, layout: Layout, audit: Audit
) -> Iterator[tuple[Block, Problem]]:
    first = {physical: (block, size) for block, physical, size in reversed(audit.checkpoints)}
    results = pool.map(lambda each: check_checkpoint(store, layout, each[0], each[1][1]), first.items())
    for (block, _), problem in zip(first.values(), results, strict=True):
        if problem:
            yield block, problem


def _between(slices: tuple[Expected, ...], facts: list[Facts]) -> Iterator[Problem]:
    """System times never go back from one slice to the next either (TIM-02)."""
    last: int | None = None
    for expected, found in zip(slices, facts, strict=True):
        if last is not None and found.first_time is not None and found.first_time < last:
            yield Problem(
                "DataSystemTime",
                "TIM-02",
                "its first record's system time is before that of the slice before",
                block=expected.block,
                number=expected.number,
                object=f"slice {expected.data.physical_hash.short}",
                column=expected.vocabulary.system_time,
                row=expected.data.offset_interval.start,
            )
        last = last if found.last_time is None else found.last_time


def _kept(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """In the order of the chain; what concerns the whole of it comes first."""
    ordered = sorted(found, key=lambda problem: -1 if problem.number is None else problem.number)
    left, kept = dict.fromkeys(Severity, _KEPT), list[Problem]()
    for problem in ordered:
        if left[problem.severity]:
            left[problem.severity] -= 1
            kept.append(problem)
    return tuple(kept)


def _placed(problem: Problem, block: Block) -> Problem:
    return replace(problem, block=block.hash, number=block.content.sequence_number)
