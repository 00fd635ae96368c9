"""Outlook of the jobs of ledgers: events, polls, transformations and syncs."""

from __future__ import annotations

from kubothek.api.dataset import Dataset
from kubothek.api.jobs import DatasetState, JobResult, LedgerJob, LedgerState, PollJob, SyncJob, TransformJob
from kubothek.api.meta import Resource
from kubothek.cli.steps import Outlook, Verb, done, failed
from kubothek.errors import DatasetDeleted, DatasetNotFound, SourceRefused
from kubothek.jobs.chains import inputs_among
from kubothek.odf.dataset import Root
from kubothek.odf.derived import Derivative, open_ledger
from kubothek.odf.ingest import missing
from kubothek.odf.spec.manifests import read_event
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.words import count

_AHEAD = "planned"
"""Head of a chain to which a planned job has appended."""


def ledger_outlook(
    owner: Resource, job: LedgerJob | PollJob | TransformJob | SyncJob, store: Store | None, known: DatasetState
) -> Outlook:
    """Return what a job does to a chain; ``known`` is the state in which earlier jobs leave it.

    A plan assumes that polls, transformations and pulls bring new records, so that what follows them is
    planned as well. Raises LakeError for what the job would refuse.
    """
    result = done(dataset=advanced(known, known.version))
    match job:
        case LedgerJob():
            verb, text = _chain(job, _opened(store, job.dataset.uuid))
            return Outlook(verb, text, done(dataset=known.model_copy(update={"ledger": _begun(known)})))
        case PollJob():
            ledger = owner.spec.ledger if isinstance(owner, Dataset) else None
            if ledger is not None and ledger.fetch is not None and ledger.fetch["kind"] == "Container":
                raise SourceRefused("its source is a container: poll --allow-containers, or a cluster")
            if (there := _opened(store, job.dataset.uuid)) is not None:
                there.state.readable_schema()
            return Outlook(Verb.COMMIT, "its source is polled", result)
        case TransformJob():
            return _derivation(job, _opened(store, job.dataset.uuid), result)
    if job.direction == "Push":
        return Outlook(Verb.COMMIT, f"pushes to {job.remote.url} what is new")
    pulled = advanced(known, known.version or 1)
    return Outlook(Verb.COMMIT, f"pulls {job.remote.url} what is new", done(dataset=pulled))


def advanced(known: DatasetState, version: int | None) -> DatasetState:
    """Return the state, at this version, after a job that appends records to the chain."""
    ledger = _begun(known)
    ledger = ledger.model_copy(update={"head": _AHEAD, "records": ledger.records or 1})
    return known.model_copy(update={"ledger": ledger, "version": version})


def _begun(known: DatasetState) -> LedgerState:
    return known.ledger or LedgerState(id=known.uuid, head=_AHEAD, blocks=1)


def _chain(job: LedgerJob, there: Root | Derivative | None) -> tuple[Verb, str]:
    """Return which events the chain lacks."""
    wanted = [read_event(event) for event in job.metadata]
    if there is None:
        return Verb.CREATE, f"creates its chain with {count(len(wanted), 'event')}"
    if isinstance(there, Root):
        lacking = missing(there, wanted)
    else:
        lacking = there.missing(wanted, inputs_among(there.store, job.inputs))
    if not lacking:
        return Verb.KEEP, f"its chain holds all events, in {count(there.state.length, 'block')}"
    return Verb.CHANGE, f"appends to its chain: {', '.join(event.kind for event in lacking)}"


def _derivation(job: TransformJob, there: Root | Derivative | None, result: JobResult) -> Outlook:
    """Return what waits in the inputs now; their own jobs come first, and may add more."""
    if not isinstance(there, Derivative):
        return Outlook(Verb.COMMIT, "consumes all records of its inputs", result)
    waiting = there.pending(inputs_among(there.store, job.inputs))
    for trouble in waiting.troubles:
        return failed(trouble.code, trouble.message)
    if waiting.empty:
        return Outlook(Verb.KEEP, f"waits for the first data of {', '.join(waiting.empty)}", result)
    if not waiting.moved:
        return Outlook(Verb.KEEP, "its inputs have nothing new", result)
    return Outlook(Verb.COMMIT, f"takes {count(waiting.records, 'new record')} of its inputs", result)


def _opened(store: Store | None, uuid: str) -> Root | Derivative | None:
    """Return the existing ledger; None if there is none."""
    try:
        return None if store is None else open_ledger(store, DatasetLog(store, uuid))
    except (DatasetNotFound, DatasetDeleted):
        return None
