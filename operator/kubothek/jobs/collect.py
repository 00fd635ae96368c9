"""Garbage collection of several datasets of a store, one at a time."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Final, Self

from kubothek.api.jobs import LEFTOVERS, CollectJob, CollectOutcome, CollectTarget, JobResult, KindCount
from kubothek.api.values import render_bytes
from kubothek.errors import BucketNotFound, InvalidCredentials, StoreUnavailable
from kubothek.gc import Mode, Retention, collect
from kubothek.gc.leftovers import leftovers
from kubothek.gc.plan import Counts, added
from kubothek.jobs import outcome, translate
from kubothek.jobs.progress import Reporter
from kubothek.spark.errors import SparkFailed, SparkUnavailable
from kubothek.storage import Store
from kubothek.storage.parallel import Spread
from kubothek.table.log import Claim, DatasetLog, ask_for_grace
from kubothek.words import count

ENOUGH_SECONDS: Final = 1800.0
"""After this time a job leaves the remaining targets to the next job, well before a deadline can end it silently."""
MOST_PROBLEMS: Final = 6
PROBLEM_LIMIT: Final = 240
"""Most characters of one dataset's problem in a result, which holds several problems."""
_FILE_BYTES: Final = 64
"""The cost of listing a file, in bytes. With an Engine's default, Spark lists tables from half a million files on."""
_NO_TARGETS_FAULT: Final = (
    BucketNotFound,
    InvalidCredentials,
    StoreUnavailable,
    SparkFailed,
    SparkUnavailable,
    MemoryError,
)

log = logging.getLogger(__name__)


def run(job: CollectJob, store: Store, reporter: Reporter) -> JobResult:
    """Collect each target; a failure of one target does not stop the others.

    ``after`` in the result is the last target that was handled. It is the last of all, unless the store or Spark failed
    or time ran out. Raises LakeError if no target was handled. Repeated and concurrent runs are safe.
    """
    reporter.report("Starting")
    able = job.store.conditional_writes
    if able is None:
        able = store.probe().conditional_writes
    _agree_on_grace(job, store, conditional_writes=able)
    began, tally = time.monotonic(), Tally()
    with Spreads(job, store, reporter) as spreads:
        for target in job.targets:
            if tally.after and time.monotonic() - began > ENOUGH_SECONDS:
                return _result(job, tally, "time is up")
            reporter.report("Collecting", tally.datasets, len(job.targets))
            try:
                tally.add(target.name, _collect(job, target, store, spreads, conditional_writes=able))
            except _NO_TARGETS_FAULT as error:
                if not tally.after:
                    raise
                end = outcome.failure(error)[0]
                return _result(job, tally, f"{end.reason}: {end.message}")
            except Exception as error:  # noqa: BLE001 - the other datasets do not depend on this one
                tally.add_failure(target.name, outcome.failure(error)[0])
        if job.leftovers is not None:
            _collect_leftovers(job, job.leftovers, store, spreads, tally, began)
    return _result(job, tally, None)


def _collect_leftovers(
    job: CollectJob, owners: str, store: Store, spreads: Spreads, tally: Tally, began: float
) -> None:
    """Collect the leftovers of deleted datasets, as far as time allows; the next round continues."""
    reached = tally.after or LEFTOVERS
    for uuid, owner in leftovers(store, owners):
        if time.monotonic() - began > ENOUGH_SECONDS:
            break
        own = DatasetLog(store, uuid, claim=Claim(owner, incarnation=""))
        mode = Mode.ENFORCE if job.enforce else Mode.DRY_RUN
        try:
            done = collect(
                store, own, [Retention()], mode=mode, max_deletes=job.max_deletes, spread=spreads.of(0), keeps_plan=True
            )
            tally.add(uuid, done.deleted if job.enforce else done.found)
        except _NO_TARGETS_FAULT as error:
            tally.add_failure(uuid, outcome.failure(error)[0])
            break
        except Exception as error:  # noqa: BLE001 - as above
            tally.add_failure(uuid, outcome.failure(error)[0])
    tally.after = reached


class Spreads:
    """Choice of what lists and deletes: threads of this process, or for large tables one shared Spark session.

    A context manager, which ends the session.
    """

    def __init__(self, job: CollectJob, store: Store, reporter: Reporter) -> None:
        self._job = job
        self._store = store
        self._report = partial(reporter.report, "Sweeping")
        self._session = ExitStack()
        self._spark: Spread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def of(self, files: int) -> Spread | None:
        """Return the spread for a table of ``files`` files; None means threads. Raises SparkUnavailable."""
        if files * _FILE_BYTES < self._job.spark.from_bytes:
            return None
        if self._spark is None:
            # PySpark takes half a second to import, and jobs below the limit must not need it at all.
            from kubothek.spark.session import running
            from kubothek.spark.sweep import spread_with_spark

            session = self._session.enter_context(running(self._job.spark.conf))
            self._spark = spread_with_spark(session, self._store.config, self._report)
        return self._spark


class Tally:
    """Results so far; ``after`` is the last target that was handled."""

    def __init__(self) -> None:
        self.after = ""
        self.datasets = 0
        self.failed = 0
        self.problems: list[str] = []
        self.collected: Counts = {}

    def add(self, name: str, counts: Counts) -> None:
        """Record a collected target."""
        self.after, self.datasets = name, self.datasets + 1
        self.collected = added([self.collected, counts])

    def add_failure(self, name: str, end: JobResult) -> None:
        """Record a target that could not be collected."""
        self.add(name, {})
        self.failed += 1
        problem = f"{name}: {end.reason}: {end.message}"
        log.warning("not collected: %s", problem)
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(outcome.shortened(problem, PROBLEM_LIMIT))


def _agree_on_grace(job: CollectJob, store: Store, *, conditional_writes: bool) -> None:
    """Set the grace period of all the ObjectStore's policies. A dry run never shortens it, as a writer could fail."""
    cluster_and_namespace = (job.leftovers or job.targets[0].dataset.claim.owner).rpartition("/")[0]
    ask_for_grace(
        store,
        timedelta(seconds=job.grace_seconds),
        by=f"{cluster_and_namespace}/{job.store.name}",
        shorten=job.enforce,
        conditional_writes=conditional_writes,
    )


def _collect(
    job: CollectJob, target: CollectTarget, store: Store, spreads: Spreads, *, conditional_writes: bool
) -> Counts:
    """What was deleted, or would be. A Dataset without a first commit is not claimed for it: what failed first commits
    left goes once there is one, or by `kubothek gc`.
    """
    own = translate.dataset_log(store, target.dataset, conditional_writes=conditional_writes)
    seen = own.inspect()
    if seen.version is None and seen.problem is None:
        return {}
    done = collect(
        store,
        own,
        [translate.retention(policy) for policy in target.policies],
        mode=Mode.ENFORCE if job.enforce else Mode.DRY_RUN,
        max_deletes=job.max_deletes,
        by=target.dataset.claim.owner,
        spread=spreads.of(seen.totals.files if seen.totals else 0),
        keeps_plan=True,
    )
    return done.deleted if job.enforce else done.found


def _result(job: CollectJob, tally: Tally, stopped: str | None) -> JobResult:
    counts = [
        KindCount(kind=kind, objects=count.objects, bytes=count.bytes)
        for kind, count in sorted(tally.collected.items())
    ]
    objects, size = sum(count.objects for count in counts), sum(count.bytes for count in counts)
    done = "deleted" if job.enforce else "would be deleted"
    messages = [f"{count(objects, 'object')} ({render_bytes(size)}) of {count(tally.datasets, 'dataset')} {done}"]
    if tally.failed:
        messages.append(f"{count(tally.failed, 'dataset')} could not be collected")
    if stopped:
        messages.append(f"stopped after {tally.after}: {stopped}")
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=outcome.shortened("; ".join(messages)),
        collect=CollectOutcome(
            after=tally.after,
            datasets=tally.datasets,
            failed=tally.failed,
            problems=tuple(tally.problems),
            collected=tuple(counts),
        ),
    )
