"""Creation or extension of a dataset's chain, so that it holds the events of the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kubothek.api.jobs import JobResult, LedgerJob
from kubothek.errors import DatasetNotFound, InputError
from kubothek.jobs import translate
from kubothek.jobs.chains import inputs_among, owner_key, table_of
from kubothek.jobs.deriving import ON_CHANGE
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.dataset import Ingested, Root, Types, create
from kubothek.odf.derived import Derivative, open_ledger
from kubothek.odf.derived import create as create_derivative
from kubothek.odf.ingest import missing
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot, MetadataEvent, SetTransform
from kubothek.odf.spec.manifests import read_event
from kubothek.odf.spec.needed_version import require_version
from kubothek.odf.spec.versions import NEWEST, SpecVersion
from kubothek.storage import Store
from kubothek.table.layout import Layout
from kubothek.table.log import Change, DatasetLog, Operation, Snapshot
from kubothek.words import count


def run(job: LedgerJob, store: Store, reporter: Reporter) -> JobResult:
    """Create the chain, or append the events that it lacks. Idempotent.

    Raises LakeError: EventInvalid for events that may not follow the chain; for a derivative TransformInvalid,
    TransformChanged, and InputError for missing inputs.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    wanted = tuple(read_event(event, f"ledger.metadata[{number}]") for number, event in enumerate(job.metadata))
    try:
        there = open_ledger(store, log, by=job.dataset.claim.owner)
    except DatasetNotFound:
        made = _created(job, store, log, wanted)
        message = f"version {made.snapshot.version}: the chain begins with {count(made.state.length, 'block')}"
    else:
        done = _edited(job, there, wanted)
        _lay_out(job, log)
        message = f"version {done.version}: {done.blocks} new blocks" if done.blocks else "the chain holds all events"
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, dataset=state)


def _created(job: LedgerJob, store: Store, log: DatasetLog, wanted: Sequence[MetadataEvent]) -> Root | Derivative:
    if job.identity_dir is None:
        raise InputError(
            f"dataset {job.dataset.uuid!r} no longer has a chain: request an inspection of its ObjectStore"
        )
    snapshot = DatasetSnapshot(name=job.dataset.uuid, kind=DatasetKind(job.kind), metadata=tuple(wanted))
    key = owner_key(job.identity_dir)
    table = table_of(job.dataset, view=job.view)
    types, by = Types(job.types.lower()), job.dataset.claim.owner
    version = SpecVersion(job.spec_version or NEWEST)
    if snapshot.kind is DatasetKind.DERIVATIVE:
        inputs = inputs_among(store, job.inputs)
        return create_derivative(
            store, log, snapshot, key, inputs, table=table, types=types, version=version, by=by, foreign=job.foreign
        )
    return create(store, log, snapshot, key, table=table, types=types, version=version, by=by)


def _edited(job: LedgerJob, there: Root | Derivative, wanted: Sequence[MetadataEvent]) -> Ingested:
    """Append the events that the chain lacks; ``job.on_change`` says what a changed transformation does to the data."""
    derived = isinstance(there, Derivative)
    if derived != (job.kind == "Derivative"):
        found = "derivative" if derived else "root"
        raise InputError(
            f"{job.dataset.uuid!r} is a {found} dataset, and a {job.kind} is wanted: create another Dataset"
        )
    if job.spec_version is not None:
        require_version(wanted, SpecVersion(job.spec_version))
        there.write_in(SpecVersion(job.spec_version))
    if isinstance(there, Root):
        return there.append_events(missing(there, wanted))
    inputs = inputs_among(there.store, job.inputs)
    lacking = there.missing(wanted, inputs)
    transforms = [event for event in lacking if isinstance(event, SetTransform)]
    on_change, foreign = ON_CHANGE[job.on_change], job.foreign
    set_now = [there.set_transform(event, inputs, on_change=on_change, foreign=foreign) for event in transforms]
    done = there.append_events([event for event in lacking if not isinstance(event, SetTransform)])
    return replace(done, blocks=done.blocks + sum(each.blocks for each in set_now))


def _lay_out(job: LedgerJob, log: DatasetLog) -> None:
    """Commit the manifest's layout, which applies from the next write on."""

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
