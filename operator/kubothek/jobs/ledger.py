"""Make the chain of a dataset hold the events that its manifest asks for."""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.jobs import translate
from kubothek.jobs.chains import opened, owner_key, table_of
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.lake.commits import Change, DatasetLog, Operation, Snapshot
from kubothek.lake.errors import DatasetNotFound, InputError
from kubothek.lake.ledger.events import DatasetKind, DatasetSnapshot, MetadataEvent
from kubothek.lake.ledger.feeding import missing
from kubothek.lake.ledger.manifests import read_event
from kubothek.lake.ledger.root import Root, Types, create
from kubothek.lake.store import Store
from kubothek.lake.table.layout import Layout
from kubothek.resources.jobs import JobResult, LedgerJob


def run(job: LedgerJob, store: Store, reporter: Reporter) -> JobResult:
    """Create the chain, or append what it lacks; again, or where nothing is to be done, changes nothing.

    Raises LakeError: EventInvalid for events that may not follow what is there.
    """
    reporter.tell("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    wanted = tuple(read_event(event, f"ledger.metadata[{number}]") for number, event in enumerate(job.metadata))
    try:
        root = opened(store, log, job.dataset)
    except DatasetNotFound:
        root = _created(job, store, log, wanted)
        message = f"version {root.snapshot.version}: the chain begins with {root.state.length} blocks"
    else:
        done = root.append_events(missing(root, wanted))
        _lay_out(job, log)
        message = f"version {done.version}: {done.blocks} new blocks" if done.blocks else "the chain holds all events"
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, dataset=state)


def _created(job: LedgerJob, store: Store, log: DatasetLog, wanted: Sequence[MetadataEvent]) -> Root:
    if job.identity_dir is None:
        raise InputError(f"dataset {job.dataset.uuid!r} has no chain any more: request a look at its ObjectStore")
    snapshot = DatasetSnapshot(name=job.dataset.uuid, kind=DatasetKind(job.kind), metadata=tuple(wanted))
    return create(
        store,
        log,
        snapshot,
        owner_key(job.identity_dir),
        table=table_of(job.dataset, view=job.view),
        types=Types(job.types.lower()),
        by=job.dataset.claim.owner,
    )


def _lay_out(job: LedgerJob, log: DatasetLog) -> None:
    """From the next write on the table lies as the manifest says."""

    def make(snapshot: Snapshot) -> Change:
        return Change(operation=Operation.LAYOUT, layout=wanted_for(snapshot).to_json(), by=job.dataset.claim.owner)

    def wanted_for(snapshot: Snapshot) -> Layout:
        wanted = Layout.of(snapshot.head, translate.layout(job.dataset, snapshot.head))
        if snapshot.schema is not None:
            wanted.check(snapshot.schema)
        return wanted

    snapshot = log.snapshot()
    if job.view and wanted_for(snapshot).to_json() != Layout.of(snapshot.head).to_json():
        started = log.begin_new("layout")
        started.commit(make(started.snapshot), on_conflict=make)
