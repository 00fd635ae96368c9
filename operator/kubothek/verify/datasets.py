"""A dataset: its chain, if it is a ledger, and its table. Whatever was done to it, the end is a verdict.

Only what keeps from looking raises: a store that does not answer, a version that is not kept, a name that is unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

from kubothek.errors import HeadMissing, HeadUnreadable, InputError, NotALedger, VersionIncomplete
from kubothek.odf import BrokenChain, Layout, Level, Multihash, Scope, Severity, Verdict, read_chain, verify
from kubothek.odf.derived.inputs import Inputs, inputs_of
from kubothek.odf.derived.replay import NOT_REPLAYED
from kubothek.odf.derived.verification import verify_runs
from kubothek.odf.spec.events import DatasetKind
from kubothek.storage import Store
from kubothek.storage.parallel import Spread, Told, spread_here
from kubothek.table.log import DatasetLog, Version
from kubothek.table.log.model import keys
from kubothek.verify.finding import Finding
from kubothek.verify.tables import TableVerdict, verify_table
from kubothek.words import count


@dataclass(frozen=True, slots=True)
class Since:
    """What was verified before, and is not read again: all up to this version, or block (its sequence number)."""

    version: int | None = None
    block: int | None = None


NOTHING_BEFORE: Final = Since()
_LEAST_THREADS: Final = 4
"""Some of them wait for the store while others hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVerdict:
    """What was verified of a dataset, and what is wrong with it.

    ``version``   that was looked at; None if the head does not tell
    ``present``   whether it is the present version, and ``whole``, whether all of that was looked at
    ``wrong``     how many things are wrong; ``findings`` are the first of them, those of the chain first
    """

    level: Level
    version: int | None
    present: bool
    whole: bool
    chain: Verdict | None = None
    table: TableVerdict | None = None
    wrong: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def first(self) -> Finding | None:
        """The first thing that is wrong."""
        return self.findings[0] if self.findings else None

    @property
    def bytes(self) -> int:
        """Of the slices and files that were read."""
        return (self.chain.bytes if self.chain else 0) + (self.table.bytes if self.table else 0)

    def __str__(self) -> str:
        """In one line: the first wrong thing, or what was looked at."""
        if self.first is not None:
            more = f" (and {self.wrong - 1:,} more)" if self.wrong > 1 else ""
            return f"{self.first}{more}"
        what = [] if self.chain is None else [count(self.chain.blocks, "block")]
        if self.level > Level.CHAIN:
            what += [] if self.chain is None else [count(self.chain.slices, "slice")]
            what += [] if self.table is None else [count(self.table.files, "file")]
            what += [count(self.bytes, "byte")]
        told = f"version {self.version} is sound{': ' if what else ''}{', '.join(what)}"
        if self.table is not None and self.table.unproven:
            told += f"; {self.table.unproven:,} of its files have no hash, as another program wrote them"
        passed_over = [each for each in self.chain.problems if each.code == NOT_REPLAYED] if self.chain else []
        if passed_over:
            told += f"; from block {passed_over[0].number} on {passed_over[0].message}"
        return told


def verify_dataset(
    store: Store,
    log: DatasetLog,
    *,
    level: Level = Level.FULL,
    version: Version | None = None,
    until_block: int | None = None,
    since: Since = NOTHING_BEFORE,
    progress: Told = lambda done, total: None,
    spread: Spread | None = None,
    inputs: Inputs | None = None,
) -> DatasetVerdict:
    """Verify a version (None: the present one), or a chain up to a block, as far as ``since`` leaves something to do.

    Blocks are those of a ledger: where one is named, only the chain is looked at. ``spread`` does the reading; None:
    threads of this process, and then ``progress`` hears of pieces done, and of all pieces.

    At level FULL the transformations of a derivative dataset are run again on what they took of its inputs, which
    ``inputs`` finds; None: in the same store. Whether the inputs are sound is not looked at: see ``recursion``.

    Raises NotALedger, InputError for bounds in the wrong order, DatasetNotFound, VersionNotFound, StoreError, and
    OSError if large objects find no room on the disk.
    """
    spread = spread or spread_here(store, max(_LEAST_THREADS, os.cpu_count() or 1), progress)
    by_block = until_block is not None or since.block is not None
    present = version is None and until_block is None
    whole = present and since == NOTHING_BEFORE
    try:
        snapshot = log.snapshot(version)
        note = snapshot.head.chain
    except (HeadUnreadable, HeadMissing, VersionIncomplete) as error:
        advice = "put the object back from a copy, then run kubothek heal"
        only = Finding(code=error.reason, message=f"{error}; {advice}")
        return DatasetVerdict(level=level, version=None, present=present, whole=whole, wrong=1, findings=(only,))
    if by_block and note is None:
        raise NotALedger(f"dataset {log.uuid!r} is no ledger, and has no blocks: name versions")
    if since.version is not None and since.version > snapshot.version:
        raise InputError(f"nothing is between version {since.version} and version {snapshot.version}: name lower ones")
    chain = None if note is None else _chain(store, log, note.head, level, until_block, since, spread)
    table = None
    if not by_block and (note is None or note.table):
        table = verify_table(store, log, snapshot, spread, level=level, since=since.version or 0)
    findings = [*(_stray(log) if chain is not None and version is None else ())]
    wrong = len(findings) + (table.wrong if table else 0)
    if chain is not None:
        if level is Level.FULL and chain.sound and chain.kind is DatasetKind.DERIVATIVE:
            chain = _with_runs(store, log, chain, inputs, since, spread)
        of_chain = [Finding.of(each) for each in chain.problems if each.severity is Severity.ERROR]
        wrong += len(of_chain)
        findings = [*of_chain, *findings]
    return DatasetVerdict(
        level=level,
        version=snapshot.version,
        present=present,
        whole=whole,
        chain=chain,
        table=table,
        wrong=wrong,
        findings=(*findings, *(table.findings if table else ())),
    )


def _chain(
    store: Store,
    log: DatasetLog,
    head: str,
    level: Level,
    until_block: int | None,
    since: Since,
    spread: Spread,
) -> Verdict:
    layout = Layout(keys.chain(log.uuid))
    first = _first_block(log, since)
    last = Multihash.parse(head)
    if until_block is not None:
        if until_block < first:
            raise InputError(f"no block is between {first} and {until_block}: name a higher last one")
        last = block_at(store, layout, last, until_block) or last
    return verify(store, layout, last, scope=Scope(level=level, first_block=first), spread=spread)


def _with_runs(
    store: Store, log: DatasetLog, chain: Verdict, inputs: Inputs | None, since: Since, spread: Spread
) -> Verdict:
    """The verdict of a derivative dataset's chain with what its transformation says."""
    assert chain.head is not None, "a sound chain has a head"
    layout = Layout(keys.chain(log.uuid))
    first = _first_block(log, since)
    found = verify_runs(store, layout, chain.head, inputs or inputs_of(store), spread, first_block=first)
    return replace(chain, problems=(*chain.problems, *found))


def _first_block(log: DatasetLog, since: Since) -> int:
    """The first that was not verified before."""
    if since.version is not None:
        before = log.snapshot(since.version).head.chain
        return before.length if before is not None else 0
    return 0 if since.block is None else since.block + 1


def block_at(store: Store, layout: Layout, head: Multihash | None, number: int) -> Multihash | None:
    """The block of this sequence number, on the way back from ``head`` (None: that of the store).

    None if the chain is broken, as its verification will say. Raises InputError if there is no such block.
    """
    try:
        blocks = read_chain(store, layout, head)
    except BrokenChain:
        return None
    if number >= len(blocks):
        raise InputError(f"the chain has no block {number}: its last one is {len(blocks) - 1}")
    return blocks[number].hash


def _stray(log: DatasetLog) -> tuple[Finding, ...]:
    """Whether other programs find another chain than ours; one that lags behind is a matter of the next commit."""
    seen = log.journal.observe()
    named = log.journal.stray_ref(seen) if seen is not None and seen.marker is not None else None
    if named is None:
        return ()
    key = keys.chain_ref(log.uuid)
    message = f"it names block {named}, which is none of this chain: kubothek heal takes it in if it goes on from ours"
    return (Finding(code="Diverged", message=message, object=key),)
