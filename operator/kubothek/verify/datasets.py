"""Verification of a dataset: its chain, if it is a ledger, and its table. Any damage results in a verdict.

Exceptions only report what prevents verification: the store does not answer, a version is not kept, a name is unknown.
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
from kubothek.storage.parallel import ReportProgress, Spread, spread_here
from kubothek.table.log import DatasetLog, Version
from kubothek.table.log.model import keys
from kubothek.verify.finding import Finding
from kubothek.verify.tables import TableVerdict, verify_table
from kubothek.words import count


@dataclass(frozen=True, slots=True)
class Since:
    """What was verified before, and is skipped: all up to this version, or block (by its sequence number)."""

    version: int | None = None
    block: int | None = None


NOTHING_BEFORE: Final = Since()
_LEAST_THREADS: Final = 4
"""Some of them wait for the store while others compute hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVerdict:
    """The result of verifying a dataset.

    ``version``   the verified one; None if the head cannot be read
    ``present``   whether it is the current version, and ``whole``, whether all of that was verified
    ``wrong``     number of findings; ``findings`` are the first of them, those of the chain first
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
        """Whether there is no finding."""
        return not self.findings

    @property
    def first(self) -> Finding | None:
        """The first finding."""
        return self.findings[0] if self.findings else None

    @property
    def bytes(self) -> int:
        """The size of the slices and files that were read."""
        return (self.chain.bytes if self.chain else 0) + (self.table.bytes if self.table else 0)

    def __str__(self) -> str:
        """Return one line: the first finding, or what was verified."""
        if self.first is not None:
            more = f" (and {self.wrong - 1:,} more)" if self.wrong > 1 else ""
            return f"{self.first}{more}"
        what = [] if self.chain is None else [count(self.chain.blocks, "block")]
        if self.level > Level.CHAIN:
            what += [] if self.chain is None else [count(self.chain.slices, "slice")]
            what += [] if self.table is None else [count(self.table.files, "file")]
            what += [count(self.bytes, "byte")]
        text = f"version {self.version} is sound{': ' if what else ''}{', '.join(what)}"
        if self.table is not None and self.table.unproven:
            text += f"; {self.table.unproven:,} of its files have no hash, as another program wrote them"
        passed_over = [each for each in self.chain.problems if each.code == NOT_REPLAYED] if self.chain else []
        if passed_over:
            text += f"; from block {passed_over[0].number} on {passed_over[0].message}"
        return text + (self.chain.unverified if self.chain else "")


def verify_dataset(
    store: Store,
    log: DatasetLog,
    *,
    level: Level = Level.FULL,
    version: Version | None = None,
    until_block: int | None = None,
    since: Since = NOTHING_BEFORE,
    progress: ReportProgress = lambda done, total: None,
    spread: Spread | None = None,
    inputs: Inputs | None = None,
) -> DatasetVerdict:
    """Verify a version (None: the current one), or a chain up to a block, without what ``since`` excludes.

    Blocks are those of a ledger: if a block is given, only the chain is verified. ``spread`` runs the tasks that read;
    None: threads of this process, and then ``progress`` gets the pieces done, and all pieces.

    Level FULL runs the transformations of a derivative dataset again on the consumed records of its inputs, which
    ``inputs`` locates; None: in the same store. It does not verify the inputs: see ``recursion``.

    Raises NotALedger, InputError for bounds in the wrong order, DatasetNotFound, VersionNotFound, StoreError, and
    OSError if the disk has no room for large objects.
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
    """Return the verdict of a derivative dataset's chain, extended by problems of its transformations."""
    assert chain.head is not None, "a sound chain has a head"
    layout = Layout(keys.chain(log.uuid))
    first = _first_block(log, since)
    found = verify_runs(store, layout, chain.head, inputs or inputs_of(store), spread, first_block=first)
    return replace(chain, problems=(*chain.problems, *found))


def _first_block(log: DatasetLog, since: Since) -> int:
    """Return the sequence number of the first block that was not verified before."""
    if since.version is not None:
        before = log.snapshot(since.version).head.chain
        return before.length if before is not None else 0
    return 0 if since.block is None else since.block + 1


def block_at(store: Store, layout: Layout, head: Multihash | None, number: int) -> Multihash | None:
    """Return the block of this sequence number in the chain below ``head`` (None: the store's).

    None if the chain is broken, which its verification will report. Raises InputError if there is no such block.
    """
    try:
        blocks = read_chain(store, layout, head)
    except BrokenChain:
        return None
    if number >= len(blocks):
        raise InputError(f"the chain has no block {number}: its last one is {len(blocks) - 1}")
    return blocks[number].hash


def _stray(log: DatasetLog) -> tuple[Finding, ...]:
    """Return a finding if ``refs/head`` names another chain; one that only lags is left to the next commit."""
    seen = log.journal.observe()
    named = log.journal.stray_ref(seen) if seen is not None and seen.marker is not None else None
    if named is None:
        return ()
    key = keys.chain_ref(log.uuid)
    message = f"it names block {named}, which is not in this chain; kubothek heal adds it if it continues this chain"
    return (Finding(code="Diverged", message=message, object=key),)
