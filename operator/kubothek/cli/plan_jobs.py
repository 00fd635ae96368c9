"""Simulation of the jobs that a dry run records: what each would do, from metadata, and the least that it reports."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from kubothek.api import jobs
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.values import render_bytes
from kubothek.api.verification import Verification
from kubothek.cli.manifest_stores import reachable
from kubothek.cli.plan_commits import commit_outlook
from kubothek.cli.plan_ledgers import advanced, ledger_outlook
from kubothek.cli.statements import wrong_statements
from kubothek.cli.steps import Outlook, Verb, done, failed
from kubothek.controller.context import LaunchJob
from kubothek.errors import BucketNotFound, DatasetDeleted, DatasetNotFound, LakeError
from kubothek.external.matching import matched, versions_listed
from kubothek.external.state import read
from kubothek.ingest.watch import Ledger, page_key, waiting_files
from kubothek.jobs import translate
from kubothek.jobs.compact import compaction_request
from kubothek.jobs.inspect import inspected
from kubothek.jobs.intake import terms_of
from kubothek.jobs.skip_files import files_of
from kubothek.jobs.state import cube_state
from kubothek.local.apply import Applied
from kubothek.local.manifests import Key, key_of
from kubothek.storage import Store, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.maintenance import plan_compaction
from kubothek.words import count

_OF_DATASETS = {
    "heal": "rebuilds missing or outdated indexes and statistics",
    "index": "makes its indices what spec.table.indices says",
    "restore": "its data was deleted, and is restored",
    "skip": "makes its skipping metadata what spec.table.skipping says",
    "tag": "makes its tags what spec.tags says",
}
"""What the other jobs of Datasets do, by verb."""


class PlannedJobs:
    """Jobs of one dry run. It opens each store at most once, and writes nothing."""

    def __init__(self, applied: Applied, base: Path, held: ExitStack, now: datetime) -> None:
        self.outlooks: dict[Key, list[Outlook]] = {}
        """What was recorded of each resource, in the order of the first job."""
        self._applied = applied
        self._base = base
        self._held = held
        self._now = now
        self._stores: dict[Key, Store | LakeError] = {}
        self._known: dict[tuple[Key, str], jobs.DatasetState] = {}
        """State in which the jobs so far leave a dataset, by store and uuid."""
        self._changed: set[tuple[Key, str]] = set()
        """Datasets and Cubes that a Commit of this plan changes."""

    def simulate(self, action: LaunchJob) -> jobs.JobResult:
        """Record what a job would do, and return the result that it would report."""
        try:
            outlook = self._outlook(action)
        except LakeError as error:
            outlook = failed(error.reason, str(error))
        self._record(key_of(action.owner), outlook)
        return outlook.result

    def _record(self, key: Key, outlook: Outlook) -> None:
        recorded = self.outlooks.setdefault(key, [])
        if outlook.why and all(outlook.why != other.why for other in recorded):
            recorded.append(outlook)

    def _outlook(self, action: LaunchJob) -> Outlook:
        job, owner = action.job, action.owner
        for _, why in wrong_statements(owner):
            reason, _, message = why.partition(": ")
            return failed(reason, message)
        if isinstance(job, jobs.InspectJob):
            return self._inspection(owner, job)

        def opened(ref: jobs.StoreRef) -> Store | None:
            return self._open(Key("ObjectStore", owner.namespace, ref.name))

        store = opened(job.store)
        home = Key("ObjectStore", owner.namespace, job.store.name)
        if isinstance(job, jobs.CommitJob | jobs.CubeJob):
            place = (home, job.dataset.uuid if isinstance(job, jobs.CommitJob) else job.cube.prefix)
            return self._commit(place, commit_outlook(action, job, opened, first=place not in self._changed))
        if isinstance(job, jobs.LedgerJob | jobs.PollJob | jobs.TransformJob | jobs.SyncJob):
            place = (home, job.dataset.uuid)
            known = self._known.get(place) or jobs.DatasetState(uuid=job.dataset.uuid)
            outlook = ledger_outlook(owner, job, store, known)
            self._known[place] = outlook.result.dataset or known
            return outlook
        match job:
            case jobs.IntakeJob():
                return self._intake(job, store, opened(job.source.store or job.store))
            case jobs.CompactJob():
                return _compaction(owner, job, store)
            case jobs.SkipFilesJob():
                return _description(job, opened(job.files.store), store)
            case jobs.CollectJob():
                return _collection(job)
        if isinstance(owner, Verification):
            return Outlook(Verb.KEEP, f"reads what was committed to {_dataset(owner)}, and changes nothing")
        if isinstance(owner, Query):
            return Outlook(Verb.CREATE, f"runs, and {owner.spec.result.effect}")
        return Outlook(Verb.CHANGE, _OF_DATASETS[job.verb])

    def _commit(self, place: tuple[Key, str], outlook: Outlook) -> Outlook:
        """Note the change; of a ledger, report the records, so that what is derived from it is planned as well."""
        if outlook.verb is not Verb.COMMIT:
            return outlook
        self._changed.add(place)
        known = self._known.get(place)
        if known is None or known.ledger is None:
            return outlook
        self._known[place] = advanced(known, (known.version or 0) + 1)
        return replace(outlook, result=done(dataset=self._known[place]))

    # --- stores ---

    def _open(self, key: Key) -> Store | None:
        """Return the store; None for a directory that the run creates. Raises LakeError if it cannot be read."""
        resource = self._applied.resources[key]
        assert isinstance(resource, ObjectStore), "that is its kind"
        if key not in self._stores:
            try:
                store = open_store(self._held.enter_context(reachable(resource, self._applied.secrets, self._base)))
                next(store.list(".kubothek/"), None)
                self._stores[key] = store
            except LakeError as error:
                self._stores[key] = error
        found = self._stores[key]
        if isinstance(found, BucketNotFound) and resource.spec.url.startswith("file:"):
            return None
        if isinstance(found, LakeError):
            raise found
        return found

    def _inspection(self, owner: Resource, job: jobs.InspectJob) -> Outlook:
        """Return whether the store can be used, and record what is in it. A plan assumes conditional writes."""
        assert isinstance(owner, ObjectStore), "only ObjectStores have such jobs"
        store, url = self._open(key_of(owner)), owner.spec.url
        cubes = tuple(self._cube(owner.namespace, cube, store) for cube in job.cubes)
        datasets = tuple(jobs.DatasetState(uuid=ref.uuid) for ref in job.datasets)
        if store is not None:
            datasets = tuple(inspected(job.datasets, store, conditional_writes=True, writes=False))
        for ref, state in zip(job.datasets, datasets, strict=True):
            self._note_dataset(Key("Dataset", owner.namespace, ref.claim.owner.rpartition("/")[2]), state)
        self._known = {(key_of(owner), state.uuid): state for state in datasets} | self._known
        result = done(store=jobs.StoreState(conditional_writes=True), cubes=cubes, datasets=datasets)
        if store is None:
            return Outlook(Verb.CREATE, f"the directory {url.removeprefix('file:')}", result)
        return Outlook(Verb.KEEP, f"{url} can be read", result)

    def _note_dataset(self, key: Key, state: jobs.DatasetState) -> None:
        """Record the state of a dataset for its resource, unless a problem blocks that."""
        outlook = Outlook(Verb.KEEP, f"version {state.version}, {count(state.totals.rows, 'row')}")
        if state.version is None or state.deleted:
            dataset = self._applied.resources.get(key)
            ledger = dataset.spec.ledger if isinstance(dataset, Dataset) else None
            origin = "a Sync brings it" if ledger is not None and ledger.kind == "Copy" else "its first commit makes it"
            outlook = Outlook(Verb.CREATE, f"nothing is at {state.uuid!r} yet; {origin}")
        self._record(key, Outlook() if state.problem else outlook)

    def _cube(self, namespace: str, ref: jobs.CubeRef, store: Store | None) -> jobs.CubeState:
        """Return the state of a cube, and record it for its resource unless a problem blocks that."""
        cubes = (resource for resource in self._applied.resources.values() if isinstance(resource, Cube))
        cube = next(cube for cube in cubes if cube.namespace == namespace and cube.prefix == ref.prefix)
        state = jobs.CubeState(prefix=ref.prefix)
        if store is not None:
            state = cube_state(translate.cube_log(store, ref, by="", conditional_writes=True), ref)
        datasets = count(len(state.members), "dataset")
        outlook = Outlook(Verb.KEEP, f"version {state.version}, {datasets}")
        if state.version is None:
            outlook = Outlook(Verb.CREATE, f"nothing is at {ref.prefix!r} yet; its first commit builds it")
        elif state.version == 0:
            outlook = Outlook(
                Verb.CHANGE, f"taken over: made by another program, {datasets}" if cube.spec.adopt else ""
            )
        self._record(key_of(cube), Outlook() if state.problem else outlook)
        return state

    def _intake(self, job: jobs.IntakeJob, store: Store | None, landed_in: Store | None) -> Outlook:
        """Return which files wait at a source."""
        result = done(intake=jobs.IntakeOutcome(current_until=self._now.isoformat()))
        if store is not None and landed_in is not None:
            ledger = Ledger(store, job.dataset.uuid, job.name)
            page = ledger.page(page_key(DatasetLog(store, job.dataset.uuid), job.name))
            waiting = waiting_files(ledger, page, landed_in, terms_of(job))[0]
            if waiting.files:
                text = f"source {job.name!r}: {count(waiting.files, 'file')} ({render_bytes(waiting.bytes)})"
                return Outlook(Verb.COMMIT, text, result)
        return Outlook(Verb.KEEP, f"source {job.name!r}: nothing new", result)


def _dataset(run: Compaction | Verification) -> str:
    return f"dataset/{run.spec.dataset_ref.name}"


def _compaction(owner: Resource, job: jobs.CompactJob, store: Store | None) -> Outlook:
    """Return which files a compaction rewrites now; Commits come first, and may add more."""
    of, files = f" of {_dataset(owner)}" if isinstance(owner, Compaction) else "", 0
    if store is not None:
        log = DatasetLog(store, job.dataset.uuid)
        try:
            files = plan_compaction(store, log, log.snapshot(), compaction_request(job, log)).rewritten.files
        except (DatasetNotFound, DatasetDeleted):
            files = 0
    if not files:
        return Outlook(Verb.KEEP, f"no file{of} is worth rewriting yet" if of else "")
    ordered = (job.clustering or job.dataset.clustering) is not None
    what, gain = ("file", "can be put in order") if ordered else ("small file", "can be fewer")
    return Outlook(Verb.KEEP if job.dry_run else Verb.CHANGE, f"{count(files, what)}{of} {gain}")


def _description(job: jobs.SkipFilesJob, files: Store | None, metadata: Store | None) -> Outlook:
    """Return which plain files lack metadata."""
    wanted, definitions = files_of(job), translate.skipping(job.skipping)
    listed = wanted.listed(files) if files is not None else None
    number = 0 if listed is None else listed.num_rows
    there = read(metadata, job.name).index if metadata is not None else None
    if there is None or metadata is None or listed is None:
        return Outlook(Verb.CHANGE, f"describes {count(number, 'file')}")
    indices = there.definitions.indices[: len(definitions.indices)] if job.skipping.auto else there.definitions.indices
    if (
        indices != definitions.indices
        or there.table.files != wanted
        or there.definitions.encryption != definitions.encryption
    ):
        text = f"rebuilds the metadata of {count(number, 'file')}: the spec defines other metadata"
        return Outlook(Verb.CHANGE, text)
    described = matched(metadata, job.name, there, versions_listed(listed)).described
    if described < number:
        return Outlook(Verb.CHANGE, f"describes {count(number - described, 'new file')} of {number:,}")
    return Outlook(Verb.KEEP, f"all of {count(number, 'file')} are described")


def _collection(job: jobs.CollectJob) -> Outlook:
    after = job.targets[-1].name if job.targets and job.leftovers is None else jobs.LEFTOVERS
    result, datasets = done(collect=jobs.CollectOutcome(after=after)), count(len(job.targets), "dataset")
    if job.enforce:
        return Outlook(Verb.CHANGE, f"deletes what no kept version of {datasets} needs", result)
    return Outlook(Verb.KEEP, f"says what it would delete of {datasets}", result)
