"""Verification of a chain and all data that it names (VE-01, REQ-03).

Three passes: back from the head along the hashes; forward over the events with the rules; then every slice and
checkpoint on its own and in parallel. If all is well, retractions and primary keys are checked as well. Every error
becomes a ``Problem`` that names its place, in the order of the chain. Only a store that does not answer raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Final

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import AddData, DatasetKind, ExecuteTransform
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.object_links import LinkPath, link_columns
from kubothek.odf.spec.sources import MergeStrategy
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.keys import repeated_keys
from kubothek.odf.validation.retractions import first_unmatched
from kubothek.odf.validation.rules import problems
from kubothek.odf.validation.slices import Expected, Facts, check_checkpoint, check_slices
from kubothek.odf.validation.state import ChainState, advance
from kubothek.storage import Store
from kubothek.storage.hashed import IN_MEMORY
from kubothek.storage.parallel import ReportProgress, Spread, spread_here

_TOGETHER: Final = 16
"""The most slices that are checked together."""
_KEPT: Final = 100
"""The most problems of each severity that are kept: no number of notes hides an error."""


class Level(IntEnum):
    """How much is verified; each level includes those before it."""

    CHAIN = 0
    """Blocks: their hashes, their order, the rules for their events."""
    PHYSICAL = 1
    """The bytes of slices and checkpoints."""
    FULL = 2
    """The records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is verified of a chain: always all of its blocks, and the objects of those from ``first_block`` on."""

    level: Level = Level.FULL
    first_block: int = 0


EVERYTHING: Final = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a verification. ``problems`` are in the order of the chain."""

    dataset_id: DatasetId | None
    kind: DatasetKind | None
    head: Multihash | None
    blocks: int
    slices: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether the chain keeps the specification."""
        return self.first is None

    @property
    def first(self) -> Problem | None:
        """The first error."""
        return next((problem for problem in self.problems if problem.severity is Severity.ERROR), None)

    @property
    def unverified(self) -> str:
        """The end of a message that the chain is sound: what could not be verified; empty if all was."""
        found = [problem for problem in self.problems if problem.unverified]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"; not verified: {found[0]}{more}" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The chain alone: its state, its problems, and the objects that it names."""

    state: ChainState
    problems: tuple[Problem, ...]
    slices: tuple[Expected, ...]
    checkpoints: tuple[tuple[Block, Multihash, int], ...]


def verify(
    store: Store,
    layout: Layout,
    head: Multihash | None = None,
    *,
    scope: Scope = EVERYTHING,
    threads: int | None = None,
    progress: ReportProgress = lambda done, total: None,
    spread: Spread | None = None,
) -> Verdict:
    """Verify the chain up to ``head`` (None: the store's) and what it names.

    ``threads``   of this process that read slices; None: one for each core
    ``progress``  is called with the number of finished portions of slices, and that of all portions
    ``spread``    reads slices instead, and reports its progress itself

    Raises StoreError, and OSError if there is no disk space for large slices.
    """
    audit, found = audit_store(store, layout, head)
    slices = [each for each in audit.slices if each.number >= scope.first_block and scope.level > Level.CHAIN]
    with ExitStack() as stack:
        threads, columns = threads or os.cpu_count() or 1, None
        if spread is None and len(slices) < threads:  # with few slices, threads are left for columns
            columns = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="columns"))
        spread_slices = spread or spread_here(store, threads, progress)
        spread = spread or spread_here(store, threads)
        lenient = audit.state.seed is not None and audit.state.seed.dataset_kind is DatasetKind.DERIVATIVE
        check = partial(_slices, layout, scope.level is Level.FULL, lenient, columns)
        found_in = spread_slices(check, _portions(slices, threads), "verify slices")
        facts = [each for portion in found_in for each in portion]
        found.extend(_checkpoints(layout, audit, scope, spread))
        for each in facts:
            found.extend(each.problems)
        found.extend(_between(slices, facts))
        if _can_match(scope, facts) and all(problem.severity is not Severity.ERROR for problem in found):
            found.extend(_unmatched(layout, audit.state.unknown, slices, facts, spread))
        if scope == EVERYTHING and all(problem.severity is not Severity.ERROR for problem in found):
            found.extend(repeated_keys(store, layout, slices, spread))
    return Verdict(
        dataset_id=audit.state.seed.dataset_id if audit.state.seed else None,
        kind=audit.state.seed.dataset_kind if audit.state.seed else None,
        head=audit.state.head,
        blocks=audit.state.length,
        slices=len(facts),
        records=sum(each.rows for each in facts),
        bytes=sum(each.bytes for each in facts),
        problems=_kept(found),
    )


def _slices(
    layout: Layout, rows: bool, lenient: bool, columns: Executor | None, store: Store, portion: Sequence[Expected]
) -> list[Facts]:
    return check_slices(store, layout, portion, columns, rows=rows, records_suffice=lenient)


def _portions(slices: Sequence[Expected], threads: int) -> list[list[Expected]]:
    """Return slices in portions that are hashed together: small ones, and so few that all threads have some."""
    most = min(_TOGETHER, max(1, len(slices) // (2 * threads if threads > 1 else 1)))
    portions, size = list[list[Expected]](), 0
    for each in slices:
        size += each.data.size
        if not portions or len(portions[-1]) == most or size > IN_MEMORY:
            portions.append([])
            size = each.data.size
        portions[-1].append(each)
    return portions


def _can_match(scope: Scope, facts: Sequence[Facts]) -> bool:
    """Return whether there are retractions, and all records before them were read."""
    return scope == EVERYTHING and any(each.retracts for each in facts)


def audit_store(store: Store, layout: Layout, head: Multihash | None = None) -> tuple[Audit, list[Problem]]:
    """Return the chain in a store, and all its problems, without its data."""
    try:
        chain = read_chain(store, layout, head)
    except BrokenChain as broken:
        return audit([]), [broken.problem]
    result = audit(chain)
    return result, list(result.problems)


def verify_new(
    store: Store, layout: Layout, state: ChainState, came: Iterable[Stored], *, rows: bool, threads: int | None = None
) -> Problem | None:
    """Return the first error in blocks that follow a chain, and with ``rows``, in their slices.

    The caller ensures that the objects they name exist with the right bytes. Raises StoreError.
    """
    audited = audit(came, state, notes=False)
    wrong = [each for each in audited.problems if each.severity is Severity.ERROR]
    if rows and not wrong:
        threads = threads or os.cpu_count() or 1
        check = partial(_slices, layout, True, False, None)
        portions = spread_here(store, threads)(check, _portions(audited.slices, threads), "verify slices")
        facts = [each for portion in portions for each in portion]
        wrong = [each for fact in facts for each in fact.problems if each.severity is Severity.ERROR]
        wrong += [each for each in _between(audited.slices, facts) if each.severity is Severity.ERROR]
    return min(wrong, key=lambda each: each.number or 0, default=None)


def audit(chain: Iterable[Stored], before: ChainState | None = None, *, notes: bool = True) -> Audit:
    """Audit a whole chain, oldest block first; or the blocks that follow one, given its state.

    ``notes``  also look for notes: this serialises blocks again, which is most of the work
    """
    state, found = before or ChainState(), list[Problem]()
    slices, checkpoints = list[Expected](), list[tuple[Block, Multihash, int]]()
    for stored in chain:
        try:
            block = stored.decode()
            if not state.length and isinstance(block.content.event, Unknown):
                raise UnsupportedVersion(f"block {stored.hash}: the chain begins with an event {NEWER}; {REMEDY}")
        except FormatInvalid as error:
            found.append(Problem("BlockForm", "MF-02", str(error), block=stored.hash, number=state.length))
            break  # the state after it is unknown
        except UnsupportedVersion:
            if any(each.severity is Severity.ERROR for each in found):
                break  # an earlier block is broken already
            raise
        found.extend(problems(state, block))
        if notes and not block.unknown and not block.canonical:
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
                        merges=_merges(state, event),
                        links=_links(state),
                        doubts=state.doubts,
                        unknown=state.unknown,
                    )
                )
            if event.new_checkpoint:
                checkpoints.append((block, event.new_checkpoint.physical_hash, event.new_checkpoint.size))
        state = advance(state, block)
    return Audit(state=state, problems=tuple(found), slices=tuple(slices), checkpoints=tuple(checkpoints))


def _links(state: ChainState) -> tuple[LinkPath, ...]:
    try:
        return link_columns(None if state.data_schema is None else state.data_schema.schema)
    except FormatInvalid:
        return ()  # the rules report it


def _merges(state: ChainState, event: AddData | ExecuteTransform) -> tuple[MergeStrategy, ...]:
    """Return the merge strategies of sources that can have written an event's data; its source state may name one."""
    if isinstance(event, ExecuteTransform):
        return ()
    if state.polling_source is not None:
        return (state.polling_source.merge,)
    sources = state.push_sources
    named = event.new_source_state and sources.get(event.new_source_state.source_name)
    return tuple(each.merge for each in ((named,) if named else sources.values()))


def _checkpoints(layout: Layout, audit: Audit, scope: Scope, spread: Spread) -> Iterator[Problem]:
    """Yield the problems of checkpoints, each read once however many events repeat it."""
    first = {physical: (block, size) for block, physical, size in reversed(audit.checkpoints)}
    asked = [
        (block, physical, size)
        for physical, (block, size) in first.items()
        if block.content.sequence_number >= scope.first_block and scope.level > Level.CHAIN
    ]
    items = [(physical, size) for _, physical, size in asked]
    for (block, _, _), problem in zip(asked, spread(partial(_checkpoint, layout), items, "checkpoints"), strict=True):
        if problem:
            yield _placed(problem, block)


def _checkpoint(layout: Layout, store: Store, named: tuple[Multihash, int]) -> Problem | None:
    return check_checkpoint(store, layout, *named)


def _between(slices: Sequence[Expected], facts: Sequence[Facts]) -> Iterator[Problem]:
    """Yield a problem where system time goes back from one slice to the next (TIM-02)."""
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


def _unmatched(
    layout: Layout, unknown: int | None, slices: Sequence[Expected], facts: Sequence[Facts], spread: Spread
) -> Iterator[Problem]:
    """Yield the first retraction of a record that does not exist, and a note where that cannot be judged.

    That is after an event of a later version, which can have records, and if the columns have an unknown type.
    """
    known = next(
        (n for n, each in enumerate(slices) if each.schema is None or (unknown is not None and each.number > unknown)),
        len(slices),
    )
    if any(each.retracts for each in facts[:known]):
        unmatched = first_unmatched(layout, slices[:known], [each.retracts for each in facts[:known]], spread)
        if unmatched is not None:
            yield unmatched
    for expected, found in zip(slices[known:], facts[known:], strict=True):
        if found.retracts:
            yield Problem(
                "UnknownState",
                "OP-02",
                "not judged, as parts of a later version of ODF come before: whether the records that it and later "
                "slices retract exist",
                Severity.NOTE,
                block=expected.block,
                number=expected.number,
                object=f"slice {expected.data.physical_hash.short}",
            )
            return


def _kept(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems to keep, in the order of the chain; those of the whole chain come first."""
    ordered = sorted(found, key=lambda problem: -1 if problem.number is None else problem.number)
    left, kept = dict.fromkeys(Severity, _KEPT), list[Problem]()
    for problem in ordered:
        if left[problem.severity]:
            left[problem.severity] -= 1
            kept.append(problem)
    return tuple(kept)


def _placed(problem: Problem, block: Block) -> Problem:
    return replace(problem, block=block.hash, number=block.content.sequence_number)
