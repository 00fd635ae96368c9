"""Verification that chain, files and indices of a dataset are what was committed. It changes no data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from kubothek.api.jobs import FindingState, JobResult, VerifyJob, VerifyOutcome
from kubothek.errors import LakeError
from kubothek.jobs import outcome, translate
from kubothek.jobs.progress import Reporter
from kubothek.odf import Level
from kubothek.storage import Store
from kubothek.storage.parallel import Spread
from kubothek.table.log import DatasetLog, owner_of
from kubothek.verify import DatasetVerdict, Finding, Since, keep_damage, verify_dataset
from kubothek.verify.recursion import verify_recursively

_LEVELS: Final = {"Chain": Level.CHAIN, "Physical": Level.PHYSICAL, "Full": Level.FULL}
_SUMMED: Final = ("blocks", "slices", "files", "unproven", "rows", "bytes", "wrong")
_RECORD_BYTES: Final = 32
"""Estimated size of a record of a chain."""
_LONGEST_MESSAGE: Final = 600
_LONGEST_NAME: Final = 300


def run(job: VerifyJob, store: Store, reporter: Reporter) -> JobResult:
    """Verify the dataset. Damage of the data is a result, and is stored for inspections.

    Raises LakeError if the dataset cannot be read. A repetition verifies again.
    """
    reporter.report("Starting")
    if job.recursive:
        return _recursively(job, store, reporter)
    log = translate.dataset_log(store, job.dataset, conditional_writes=True)  # nothing is committed
    with ExitStack() as stack:
        verdict = verify_dataset(
            store,
            log,
            level=_LEVELS[job.level],
            version=job.until_version,
            until_block=job.until_block,
            since=Since(job.since_version, job.since_block),
            progress=lambda done, total: reporter.report("Verifying", done, total),
            spread=_spread(job, store, log, reporter, stack),
        )
    if owner_of(store, job.dataset.uuid) == job.dataset.claim.owner:
        keep_damage(store, job.dataset.uuid, verdict)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded" if verdict.sound else "Corrupt",
        message=outcome.shortened(str(verdict)),
        verify=_outcome(verdict),
    )


def _recursively(job: VerifyJob, store: Store, reporter: Reporter) -> JobResult:
    """Verify the dataset and all datasets that it derives from, roots first."""
    log = translate.dataset_log(store, job.dataset, conditional_writes=True)
    with ExitStack() as stack:
        found = verify_recursively(
            store,
            job.dataset.uuid,
            level=_LEVELS[job.level],
            progress=lambda done, total: reporter.report("Verifying", done, total),
            spread=_spread(job, store, log, reporter, stack),
        )
    ours = job.dataset.claim.owner.rpartition("/")[0]
    for each in found:
        owner = owner_of(store, each.uuid)
        if owner is not None and owner.rpartition("/")[0] == ours:
            keep_damage(store, each.uuid, each.verdict)
    bad = next((each for each in found if not each.verdict.sound), None)
    outcomes = [_outcome(each.verdict) for each in found]
    sums = {name: sum(getattr(each, name) or 0 for each in outcomes) for name in _SUMMED}
    last = found[-1].verdict
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded" if bad is None else "Corrupt",
        message=outcome.shortened(recursive_message([(each.uuid, each.verdict) for each in found])),
        verify=VerifyOutcome(
            version=last.version,
            datasets=len(found),
            dataset=None if bad is None else bad.uuid,
            first=None if bad is None or bad.verdict.first is None else _finding(bad.verdict.first),
            **sums,
        ),
    )


def recursive_message(found: Sequence[tuple[str, DatasetVerdict]]) -> str:
    """Return a message about a dataset and all datasets that it derives from."""
    for name, verdict in found:
        if not verdict.sound:
            return f"{name}: {verdict}"
    names = ", ".join(name for name, _ in found)
    unverified = next((each for _, verdict in found if verdict.chain and (each := verdict.chain.unverified)), "")
    return f"{names}: sound, {sum(verdict.bytes for _, verdict in found):,} bytes{unverified}"


def _spread(job: VerifyJob, store: Store, log: DatasetLog, reporter: Reporter, stack: ExitStack) -> Spread | None:
    """Return a spread over Spark if there is much to read; None means threads of this process."""
    if job.level == "Chain" or _bytes(log) < job.spark.from_bytes:
        return None
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.session import running
    from kubothek.spark.sweep import spread_with_spark

    session = stack.enter_context(running(job.spark.conf))
    return spread_with_spark(session, store.config, lambda done, total: reporter.report("Verifying", done, total))


def _bytes(log: DatasetLog) -> int:
    """Return the estimated number of bytes to read; 0 if unknown."""
    try:
        snapshot = log.snapshot()
        chain = snapshot.head.chain
    except LakeError:
        return 0
    records = 0 if chain is None or chain.offset is None else chain.offset + 1
    return (snapshot.totals.bytes if snapshot.totals is not None else 0) + records * _RECORD_BYTES


def _outcome(verdict: DatasetVerdict) -> VerifyOutcome:
    chain, table = verdict.chain, verdict.table
    return VerifyOutcome(
        version=verdict.version,
        blocks=None if chain is None else chain.blocks,
        slices=None if chain is None else chain.slices,
        files=None if table is None else table.files,
        unproven=None if table is None else table.unproven,
        rows=(chain.records if chain else 0) + (table.rows if table else 0),
        bytes=verdict.bytes,
        wrong=verdict.wrong,
        first=None if verdict.first is None else _finding(verdict.first),
    )


def _finding(found: Finding) -> FindingState:
    return FindingState(
        code=found.code,
        message=outcome.shortened(found.message, _LONGEST_MESSAGE),
        block=found.block,
        block_number=found.number,
        object=None if found.object is None else outcome.shortened(found.object, _LONGEST_NAME),
        column=None if found.column is None else outcome.shortened(found.column, _LONGEST_NAME),
        row=found.row,
    )
