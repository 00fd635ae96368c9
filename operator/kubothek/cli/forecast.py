"""What a run would do about each resource, found by reading only."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from kubothek.cli.forecast_cubes import cube_change_step, cube_step
from kubothek.cli.ledger.forecast import ledger_steps
from kubothek.cli.skipping_forecast import files_outlook
from kubothek.cli.steps import Step, Verb
from kubothek.cli.stores import reachable
from kubothek.jobs.translate import clustering
from kubothek.lake.commits import Claim, DatasetLog
from kubothek.lake.commits import keys as lake_keys
from kubothek.lake.commits.markers import Marker, Markers
from kubothek.lake.errors import (
    BucketNotFound,
    DatasetDeleted,
    DatasetNotFound,
    FilterInvalid,
    LakeError,
    ObjectNotFound,
)
from kubothek.lake.intake import Backlog, Landing, Ledger, Terms, look, page_key
from kubothek.lake.maintenance import Wish, plan_compaction
from kubothek.lake.predicates import parse
from kubothek.lake.store import Store, open_store
from kubothek.reconcile.references import clustering_of
from kubothek.reconcile.schedule import fault
from kubothek.reconcile.sources import reading_of
from kubothek.reconcile.targets import matcher
from kubothek.resources.commit import Commit
from kubothek.resources.compaction import Compaction
from kubothek.resources.conditions import state_of
from kubothek.resources.cube import Cube
from kubothek.resources.dataset import Dataset
from kubothek.resources.engine import DEFAULT_ENGINE, Engine, EngineSpec
from kubothek.resources.gcpolicy import GCPolicy
from kubothek.resources.maintenance import Thresholds
from kubothek.resources.meta import render_time
from kubothek.resources.objectstore import ObjectStore
from kubothek.resources.query import Query
from kubothek.resources.skippingindex import SkippingIndex
from kubothek.resources.sources import StandingSource
from kubothek.resources.values import parse_quantity, render_bytes
from kubothek.resources.verification import Verification
from kubothek.runtime.local.apply import Applied
from kubothek.runtime.local.changes import changes
from kubothek.runtime.local.manifests import Key
from kubothek.runtime.local.runner import CLUSTER_ID
from kubothek.runtime.local.words import count


class Forecaster:
    """Looks at stores, each at most once, and never writes to one."""

    def __init__(self, applied: Applied, base: Path) -> None:
        self._applied = applied
        self._base = base
        self._held = ExitStack()
        self._stores: dict[Key, Store | LakeError] = {}

    def __enter__(self) -> Forecaster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def steps(self, key: Key) -> Iterator[Step]:
        """What a run would do about this resource: edits first, then what they come to."""
        resource = self._applied.resources[key]
        state = self._applied.states.get(key)
        old = state.load(type(resource), key) if state is not None else None
        if old is not None:
            for change in changes(old.spec, resource.spec):
                effect = f" ({change.effect})" if change.effect else ""
                yield Step(key, Verb.CHANGE, f"{change.path}: {_shown(change.before)} → {_shown(change.after)}{effect}")
        if isinstance(resource, ObjectStore):
            yield self._store_step(key, resource)
        elif isinstance(resource, Dataset):
            yield self._dataset_step(key, resource)
            yield from ledger_steps(key, resource, self._open(self._home(resource)))
            yield from self._source_steps(key, resource)
            yield from self._upkeep_steps(key, resource)
        elif isinstance(resource, Cube):
            home = self._home(resource)
            yield cube_step(key, resource, self._open(home), home)
        elif isinstance(resource, Commit):
            yield self._waits(key, resource) or self._commit_step(key, resource)
        elif isinstance(resource, Query):
            yield self._query_step(key, resource)
        elif isinstance(resource, Compaction):
            yield self._compaction_step(key, resource)
        elif isinstance(resource, Verification):
            yield self._verification_step(key, resource)
        elif isinstance(resource, GCPolicy):
            yield self._policy_step(key, resource)
        elif isinstance(resource, SkippingIndex):
            yield self._files_step(key, resource)
        else:
            yield Step(key, Verb.KEEP, "runs jobs on this machine")

    def _store_step(self, key: Key, store: ObjectStore) -> Step:
        opened = self._open(key)
        if isinstance(opened, BucketNotFound) and store.spec.url.startswith("file:"):
            return Step(key, Verb.CREATE, f"the directory {store.spec.url.removeprefix('file:')}")
        if isinstance(opened, LakeError):
            return Step(key, Verb.BLOCKED, f"{opened.reason}: {opened}")
        return Step(key, Verb.KEEP, f"{store.spec.url} can be read")

    def _dataset_step(self, key: Key, dataset: Dataset) -> Step:
        home = self._home(dataset)
        store = self._open(home)
        if isinstance(store, BucketNotFound):
            return Step(key, Verb.CREATE, f"nothing is at {dataset.uuid!r} yet; its first commit makes it")
        if store is None or isinstance(store, LakeError):
            return Step(key, Verb.BLOCKED, f"needs {home}, {_wrong(store)}")
        state = DatasetLog(store, dataset.uuid, claim=_claim(dataset)).inspect()
        if state.problem is not None:
            return Step(key, Verb.BLOCKED, state.problem)
        if state.deleted and dataset.spec.restore:
            return Step(key, Verb.CHANGE, "its data was deleted, and is restored")
        if state.version is None or state.deleted:
            return Step(key, Verb.CREATE, f"nothing is at {dataset.uuid!r} yet; its first commit makes it")
        rows = f", {count(state.totals.rows, 'row')}" if state.totals is not None else ""
        return Step(key, Verb.KEEP, f"version {state.version}{rows}")

    def _source_steps(self, key: Key, dataset: Dataset) -> Iterator[Step]:
        """What waits at each source."""
        store = self._open(self._home(dataset))
        for source in dataset.spec.sources:
            reference = source.store_ref or dataset.spec.store_ref
            home = Key("ObjectStore", key.namespace, reference.name)
            landed_in = self._open(home)
            if source.suspend or dataset.spec.suspend:
                yield Step(key, Verb.SUSPENDED, f"source {source.name!r} is not looked at")
            elif landed_in is None or isinstance(landed_in, LakeError):
                yield Step(key, Verb.BLOCKED, f"source {source.name!r} needs {home}, {_wrong(landed_in)}")
            elif isinstance(store, Store):
                waiting = _waiting(store, landed_in, dataset, source)
                if waiting.files:
                    size = render_bytes(waiting.bytes)
                    yield Step(key, Verb.COMMIT, f"source {source.name!r}: {count(waiting.files, 'file')} ({size})")
                else:
                    yield Step(key, Verb.KEEP, f"source {source.name!r}: nothing new")

    def _waits(self, key: Key, commit: Commit) -> Step | None:
        """What the Commit needs and no manifest has."""
        wanted = [Key(commit.subject.kind, key.namespace, commit.subject.name)]
        wanted += [Key("Commit", key.namespace, reference.name) for reference in commit.spec.depends_on]
        absent = next((other for other in wanted if other not in self._applied.resources), None)
        return None if absent is None else Step(key, Verb.BLOCKED, f"needs {absent}, {_wrong(None)}")

    def _commit_step(self, key: Key, commit: Commit) -> Step:
        dataset_key = Key(commit.subject.kind, key.namespace, commit.subject.name)
        dataset = self._applied.resources[dataset_key]
        if isinstance(dataset, Cube):
            known = cube_change_step(key, commit, dataset, self._open(self._home(dataset)))
            return known or self._new_commit(key, commit, dataset)
        assert isinstance(dataset, Dataset), "that is its kind"
        if dataset.cube is not None:
            return Step(key, Verb.BLOCKED, f"MemberOfCube: {dataset_key} is written through cube/{dataset.cube} only")
        store = self._open(self._home(dataset))
        if isinstance(store, Store):
            marker = _applied(store, dataset, commit)
            digest = commit.digest(dataset.spec.store_ref.name)
            if marker is not None and marker.digest == digest:
                return Step(key, Verb.KEEP, f"is version {marker.version} of {dataset_key}")
            if marker is not None:
                told = f"IdReused: the id {commit.id!r} was another change, version {marker.version} of {dataset_key}"
                return Step(key, Verb.BLOCKED, told)
        if commit.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        wrong = self._wrong_filter(commit, dataset, store)
        if wrong is not None:
            return Step(key, Verb.BLOCKED, f"{wrong.reason}: {str(wrong).partition(chr(10))[0]}")
        return self._new_commit(key, commit, dataset)

    def _wrong_filter(self, commit: Commit, dataset: Dataset, store: Store | LakeError | None) -> FilterInvalid | None:
        """What is wrong with ``where``: its columns can be checked once the Commits are done that may bring them."""
        if commit.spec.where is None:
            return None
        try:
            where = parse(commit.spec.where)
            if isinstance(store, Store) and all(_applied(store, dataset, other) for other in self._before(commit)):
                schema = DatasetLog(store, dataset.uuid).snapshot().schema
                if schema is not None:
                    where.bind(schema)
        except FilterInvalid as error:
            return error
        except LakeError:  # no table yet, or none that can be read: the dataset's own line says so
            return None
        return None

    def _before(self, commit: Commit) -> Iterator[Commit]:
        """The Commits of the same Dataset that this one depends on."""
        for reference in commit.spec.depends_on:
            other = self._applied.resources.get(Key("Commit", commit.namespace, reference.name))
            if isinstance(other, Commit) and other.subject == commit.subject:
                yield other

    def _query_step(self, key: Key, query: Query) -> Step:
        result = query.spec.result
        if query.finished and query.status.holds("Complete"):
            return Step(key, Verb.KEEP, f"its rows are {result.target}")
        wanted = [Key("ObjectStore", key.namespace, query.spec.store_ref.name)]
        wanted += [Key("Commit", key.namespace, reference.name) for reference in query.spec.depends_on]
        if result.dataset_ref is not None:
            wanted.append(Key("Dataset", key.namespace, result.dataset_ref.name))
        absent = [other for other in wanted if other not in self._applied.resources]
        if absent:
            return Step(key, Verb.BLOCKED, f"needs {absent[0]}, {_wrong(None)}")
        if query.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        return Step(key, Verb.CREATE, f"runs, and its rows become {result.target}")

    def _compaction_step(self, key: Key, compaction: Compaction) -> Step:
        """What there is to rewrite at present: Commits come first, and may bring more."""
        dataset_key = Key("Dataset", key.namespace, compaction.spec.dataset_ref.name)
        dataset = self._applied.resources.get(dataset_key)
        state = state_of(compaction.status)
        if state is not None and state.ended == "Complete":
            return Step(key, Verb.KEEP, state.message)
        if not isinstance(dataset, Dataset):
            return Step(key, Verb.BLOCKED, f"needs {dataset_key}, {_wrong(None)}")
        if compaction.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        found = self._worth_rewriting(dataset, compaction.spec, compaction.spec.where)
        if isinstance(found, LakeError):
            return Step(key, Verb.BLOCKED, f"{found.reason}: {str(found).partition(chr(10))[0]}")
        if found is not None:
            verb = Verb.KEEP if compaction.spec.dry_run else Verb.CHANGE
            return Step(key, verb, f"{found[0]} of {dataset_key} {found[1]}")
        return Step(key, Verb.KEEP, f"no file of {dataset_key} is worth rewriting yet")

    def _verification_step(self, key: Key, verification: Verification) -> Step:
        dataset_key = Key("Dataset", key.namespace, verification.spec.dataset_ref.name)
        state = state_of(verification.status)
        if state is not None and state.ended == "Complete":
            return Step(key, Verb.KEEP, state.message)
        if not isinstance(self._applied.resources.get(dataset_key), Dataset):
            return Step(key, Verb.BLOCKED, f"needs {dataset_key}, {_wrong(None)}")
        if verification.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        return Step(key, Verb.KEEP, f"reads what was committed to {dataset_key}, and changes nothing")

    def _upkeep_steps(self, key: Key, dataset: Dataset) -> Iterator[Step]:
        """What the Dataset's own compaction finds to do at present: Commits come first, and may bring more."""
        wish = dataset.spec.maintenance.compaction
        if wish is None:
            return
        problem = None if wish.schedule is None else fault(wish.schedule)
        if problem is not None:
            yield Step(key, Verb.BLOCKED, f"InvalidSchedule: maintenance.compaction.schedule: {problem}")
        elif dataset.spec.suspend:
            yield Step(key, Verb.SUSPENDED, "its small files are left as they are")
        else:
            found = self._worth_rewriting(dataset, wish)
            if isinstance(found, LakeError):
                yield Step(key, Verb.BLOCKED, f"{found.reason}: {str(found).partition(chr(10))[0]}")
            elif found is not None and wish.schedule is None:
                yield Step(key, Verb.CHANGE, f"{found[0]} {found[1]}")
            elif found is not None:
                yield Step(key, Verb.KEEP, f"{found[0]} {found[1]}, in a window of its schedule")

    def _worth_rewriting(
        self, dataset: Dataset, thresholds: Thresholds, where: str | None = None
    ) -> tuple[str, str] | LakeError | None:
        """Which files a compaction would rewrite, and to what end; None if there are none, or no table yet."""
        store = self._open(self._home(dataset))
        if not isinstance(store, Store):
            return None
        try:
            files, ordered = _to_rewrite(store, dataset, thresholds, where)
        except (DatasetNotFound, DatasetDeleted):
            return None
        except LakeError as error:
            return error
        if not files:
            return None
        if ordered:
            return count(files, "file"), "can be put in order"
        return count(files, "small file"), "can be fewer"

    def _policy_step(self, key: Key, policy: GCPolicy) -> Step:
        """A policy of which a slot came since the last run collects now: see ``runtime.local.apply``."""
        problem = fault(policy.spec.schedule)
        if problem is not None:
            return Step(key, Verb.BLOCKED, f"InvalidSchedule: {problem}")
        if policy.spec.suspend:
            return Step(key, Verb.SUSPENDED, "nothing is collected; what it keeps stays")
        selects = matcher(policy.spec.selector)
        datasets = [d for d in self._applied.resources.values() if isinstance(d, Dataset)]
        number = sum(selects(dataset) for dataset in datasets if dataset.namespace == policy.namespace)
        if policy.requested_at in (None, policy.status.handled_request):
            return Step(key, Verb.KEEP, f"collects {count(number, 'dataset')} at its next slot")
        if policy.spec.mode == "DryRun":
            return Step(key, Verb.KEEP, f"says what it would delete of {count(number, 'dataset')}")
        return Step(key, Verb.CHANGE, f"deletes what no kept version of {count(number, 'dataset')} needs")

    def _files_step(self, key: Key, index: SkippingIndex) -> Step:
        homes = (Key("ObjectStore", key.namespace, place.name) for place in index.stores)
        stores = {str(home): self._open(home) for home in homes}
        verb, why = files_outlook(index, stores)
        return Step(key, Verb[verb], why)

    def _new_commit(self, key: Key, commit: Commit, subject: Dataset | Cube) -> Step:
        target, size, names = _deed(commit, subject), 0, list[str]()
        for source in commit.sources:
            names += source.urls or ()
            if source.paths is None:
                continue
            home = self._home(subject)
            if source.store_ref is not None:
                home = Key("ObjectStore", commit.namespace, source.store_ref.name)
            store = self._open(home)
            if isinstance(store, BucketNotFound):
                return Step(key, Verb.BLOCKED, _no_source(source.paths[0], home))
            if not isinstance(store, Store):
                return Step(key, Verb.BLOCKED, f"needs {home}, {_wrong(store)}")
            for path in source.paths:
                try:
                    size += store.stat(path).size
                except ObjectNotFound:
                    return Step(key, Verb.BLOCKED, _no_source(path, home))
                names.append(path)
        if not names:
            return Step(key, Verb.COMMIT, target)
        told = ", ".join(names) if any(source.urls for source in commit.sources) else _files(names)
        if not size:
            return Step(key, Verb.COMMIT, f"{target}: {told}")
        spark = size >= parse_quantity(self._engine(commit, subject).spark_from)
        return Step(
            key, Verb.COMMIT, f"{target}: {told} ({render_bytes(size)}, {'by Spark' if spark else 'without Spark'})"
        )

    def _home(self, resource: Dataset | Cube) -> Key:
        return Key("ObjectStore", resource.namespace, resource.spec.store_ref.name)

    def _engine(self, commit: Commit, subject: Dataset | Cube) -> EngineSpec:
        reference = commit.spec.engine_ref or subject.spec.engine_ref
        key = Key("Engine", commit.namespace, reference.name if reference is not None else DEFAULT_ENGINE)
        engine = self._applied.resources.get(key)
        return engine.spec if isinstance(engine, Engine) else EngineSpec()

    def _open(self, key: Key) -> Store | LakeError | None:
        """The store, what is wrong with it, or None if no manifest has it."""
        resource = self._applied.resources.get(key)
        if not isinstance(resource, ObjectStore):
            return None
        if key not in self._stores:
            try:
                config = self._held.enter_context(reachable(resource, self._applied.secrets, self._base))
                self._stores[key] = _readable(open_store(config))
            except LakeError as error:
                self._stores[key] = error
        return self._stores[key]


def _to_rewrite(store: Store, dataset: Dataset, thresholds: Thresholds, where: str | None) -> tuple[int, bool]:
    """How many files a compaction would rewrite, and whether to put rows in order. Raises LakeError."""
    log = DatasetLog(store, dataset.uuid)
    order = clustering_of(thresholds) or clustering_of(dataset.spec.maintenance.compaction)
    wish = Wish(
        where=None if where is None else parse(where),
        target_bytes=None if thresholds.target_file_size is None else parse_quantity(thresholds.target_file_size),
        min_files=thresholds.min_files,
        min_small_share=thresholds.min_small_percent / 100,
        clustering=clustering(order),
    )
    return plan_compaction(store, log, log.snapshot(), wish).rewritten.files, order is not None


def _deed(commit: Commit, subject: Dataset | Cube) -> str:
    """What a Commit is going to do."""
    spec, name = commit.spec, f"{subject.kind.lower()}/{subject.name}"
    if spec.cube is not None:
        where = f" where {spec.cube.where}" if spec.cube.where else ""
        verb = "remove partitions of" if spec.cube.operation == "RemovePartitions" else spec.cube.operation.lower()
        return f"{verb} {name}{where}"
    match spec.operation:
        case "Append":
            return f"append to {name}"
        case "Rollback":
            to = f"version {spec.to_version}" if spec.to_tag is None else f"tag {spec.to_tag}"
            return f"roll {name} back to {to if spec.to_time is None else render_time(spec.to_time)}"
        case operation:
            verb = "purge" if spec.purge else (operation or "").lower()
            return f"{verb} {name}" + (f" where {spec.where}" if spec.where else "")


def _files(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} files"


def _shown(value: object) -> str:
    """A value as manifests write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _readable(store: Store) -> Store:
    """The store, once it has answered a request. Raises StoreError."""
    next(store.list(".kubothek/"), None)
    return store


def _no_source(path: str, store: Key) -> str:
    return f"SourceNotFound: {path} is not in {store}; `kubothek put` brings it there"


def _wrong(store: LakeError | None) -> str:
    return "which no manifest has" if store is None else f"which cannot be read: {store.reason}: {store}"


def _waiting(store: Store, landed_in: Store, dataset: Dataset, source: StandingSource) -> Backlog:
    own = (f"{dataset.uuid}/",) if store.url == landed_in.url else ()
    terms = Terms(
        source=source.name,
        landing=Landing.of(source.prefix or "", source.glob or "", foreign=own),
        reading=reading_of(dataset, source),
        max_files=source.batch.max_files,
        max_bytes=parse_quantity(source.batch.max_bytes),
    )
    ledger = Ledger(store, dataset.uuid, source.name)
    page = ledger.page(page_key(DatasetLog(store, dataset.uuid), source.name))
    return look(ledger, page, landed_in, terms)[0]


def _claim(dataset: Dataset) -> Claim:
    return Claim(f"{CLUSTER_ID}/{dataset.namespace}/{dataset.name}", dataset.metadata.uid, dataset.spec.adopt)


def _applied(store: Store, dataset: Dataset, commit: Commit) -> Marker | None:
    """The marker of the commit in the present incarnation of the dataset."""
    marker = Markers(store, dataset.uuid, random.Random()).get(lake_keys.marker(dataset.uuid, commit.id))
    if marker is None:
        return None
    try:
        epoch = DatasetLog(store, dataset.uuid).snapshot().head.epoch
    except LakeError:  # deleted, or not readable: the dataset's own line says so
        return None
    return marker if marker.version > epoch else None
