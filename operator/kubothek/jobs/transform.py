"""Bring a derivative up to what its inputs are by now, in as many runs as it takes."""

from __future__ import annotations

from kubothek.jobs import open_lineage, translate
from kubothek.jobs.chains import inputs_among
from kubothek.jobs.deriving import ON_CHANGE, Derived, derive
from kubothek.jobs.foreign import engine_of
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.lake.ledger.derivative import Derivative
from kubothek.lake.store import Store
from kubothek.resources.jobs import JobResult, TransformJob, TransformOutcome


def run(job: TransformJob, store: Store, reporter: Reporter) -> JobResult:
    """One commit for each run, which takes what is new in the inputs up to a limit. Again, it goes on after them.

    Raises LakeError: InputMissing, InputDiverged, TransformInvalid, SchemaMismatch, of another engine EngineFailed and
    EngineMisbehaved, with the dataset as the last run left it.
    """
    reporter.tell("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    derivative = Derivative(store, log, by=job.dataset.claim.owner)

    def told(so_far: Derived) -> None:
        reporter.tell("Transforming", so_far.runs, so_far.runs, so_far.consumed)

    inputs, engine = inputs_among(store, job.inputs), engine_of(job, reporter)
    with open_lineage.telling(job.lineage, derivative, inputs, run=f"{job.uid}/{job.attempt}") as end:
        done = end(derive(derivative, inputs, on_change=ON_CHANGE[job.on_change], told=told, engine=engine))
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=str(done),
        transform=TransformOutcome(version=done.version, records=done.records),
        dataset=state_of(store, log, job.dataset),
    )
