"""Update of a derivative to the current state of its inputs, in as many runs as needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache

from kubothek.api.jobs import JobResult, TransformJob, TransformOutcome
from kubothek.jobs import open_lineage, translate
from kubothek.jobs.chains import inputs_among
from kubothek.jobs.deriving import ON_CHANGE, Derived, derive
from kubothek.jobs.foreign import foreign_engine
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.derived import Derivative
from kubothek.odf.derived.dividing import DividedEngine
from kubothek.storage import Store
from kubothek.storage.parallel import Spread


def run(job: TransformJob, store: Store, reporter: Reporter) -> JobResult:
    """Commit once per run, each with new records of the inputs up to a limit. A repetition continues after them.

    Raises LakeError: InputMissing, InputDiverged, TransformInvalid, SchemaMismatch; from an engine of another party
    EngineFailed and EngineMisbehaved. The dataset stays as the last run left it.
    """
    reporter.tell("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    derivative = Derivative(store, log, by=job.dataset.claim.owner)

    def told(so_far: Derived) -> None:
        reporter.tell("Transforming", so_far.runs, so_far.runs, so_far.consumed)

    inputs = inputs_among(store, job.inputs)
    with ExitStack() as stack:
        ours = DividedEngine(job.dataset.uuid, _with_spark(job, store, reporter, stack), job.spark.from_bytes)
        engine = ours if job.foreign is None else foreign_engine(job, job.foreign, reporter)
        end = stack.enter_context(open_lineage.telling(job.lineage, derivative, inputs, run=f"{job.uid}/{job.attempt}"))
        done = end(derive(derivative, inputs, on_change=ON_CHANGE[job.on_change], told=told, engine=engine))
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=f"{done}{_divided(ours)}",
        transform=TransformOutcome(version=done.version, records=done.records),
        dataset=state_of(store, log, job.dataset),
    )


def _with_spark(job: TransformJob, store: Store, reporter: Reporter, stack: ExitStack) -> Callable[[], Spread]:
    """Return a function that starts one Spark session, for all divided runs of the job."""

    @cache
    def spread() -> Spread:
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.session import running
        from kubothek.spark.sweep import spread_with_spark

        reporter.tell("StartingSpark")
        session = stack.enter_context(running(job.spark.conf))
        return spread_with_spark(session, store.config, lambda done, total: reporter.tell("Transforming", done, total))

    return spread


def _divided(engine: DividedEngine) -> str:
    found = f"; divided over Spark: {engine.divided:,} of its runs" if engine.divided else ""
    return found + (f"; too large for one process, and not to be divided: {engine.whole:,}" if engine.whole else "")
