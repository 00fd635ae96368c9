"""Forecast of what a run would do for each resource, without writes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.api.skippingindex import SkippingIndex
from kubothek.api.sync import Sync
from kubothek.api.verification import Verification
from kubothek.cli.forecast_commits import Commits
from kubothek.cli.forecast_cubes import cube_step
from kubothek.cli.forecast_exchange import repository_step, sync_step
from kubothek.cli.forecast_sources import Sources
from kubothek.cli.forecast_stores import wrong
from kubothek.cli.forecast_upkeep import Upkeep
from kubothek.cli.ledger.forecast import ledger_steps
from kubothek.cli.skipping_forecast import files_outlook
from kubothek.cli.statements import wrong_statements
from kubothek.cli.steps import Step, Verb
from kubothek.errors import BucketNotFound, LakeError
from kubothek.local.changes import changes
from kubothek.local.loop import CLUSTER_ID
from kubothek.local.manifests import Key
from kubothek.table.log import Claim, DatasetLog
from kubothek.words import count


class Forecaster(Commits, Sources, Upkeep):
    """Forecast for all resources. It opens each store at most once, and never writes to one."""

    def steps(self, key: Key) -> Iterator[Step]:
        """Yield what a run would do for this resource: edits first, then their effects."""
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
            yield from ledger_steps(key, resource, self._open(self._home(resource)), self._applied.resources)
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
        else:
            yield self._other_step(key, resource)

    def _other_step(self, key: Key, resource: Resource) -> Step:
        if isinstance(resource, SkippingIndex):
            return self._files_step(key, resource)
        if isinstance(resource, Repository):
            return repository_step(key, resource)
        if isinstance(resource, Sync):
            return sync_step(key, resource, self._applied.resources)
        return Step(key, Verb.KEEP, "runs jobs on this machine")

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
            return Step(key, Verb.CREATE, _nothing_yet(dataset))
        if store is None or isinstance(store, LakeError):
            return Step(key, Verb.BLOCKED, f"needs {home}, {wrong(store)}")
        state = DatasetLog(store, dataset.uuid, claim=_claim(dataset)).inspect()
        if state.problem is not None:
            return Step(key, Verb.BLOCKED, state.problem)
        if state.deleted and dataset.spec.restore:
            return Step(key, Verb.CHANGE, "its data was deleted, and is restored")
        if state.version is None or state.deleted:
            return Step(key, Verb.CREATE, _nothing_yet(dataset))
        rows = f", {count(state.totals.rows, 'row')}" if state.totals is not None else ""
        return Step(key, Verb.KEEP, f"version {state.version}{rows}")

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
            return Step(key, Verb.BLOCKED, f"needs {absent[0]}, {wrong(None)}")
        for _, why in wrong_statements(query):
            return Step(key, Verb.BLOCKED, why)
        if query.spec.suspend:
            return Step(key, Verb.SUSPENDED, "spec.suspend is true")
        return Step(key, Verb.CREATE, f"runs, and its rows become {result.target}")

    def _files_step(self, key: Key, index: SkippingIndex) -> Step:
        homes = (Key("ObjectStore", key.namespace, place.name) for place in index.stores)
        stores = {str(home): self._open(home) for home in homes}
        verb, why = files_outlook(index, stores)
        return Step(key, Verb[verb], why)


def _nothing_yet(dataset: Dataset) -> str:
    ledger = dataset.spec.ledger
    who = "a Sync brings it" if ledger is not None and ledger.kind == "Copy" else "its first commit makes it"
    return f"nothing is at {dataset.uuid!r} yet; {who}"


def _shown(value: object) -> str:
    """Return a value as manifests write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _claim(dataset: Dataset) -> Claim:
    return Claim(f"{CLUSTER_ID}/{dataset.namespace}/{dataset.name}", dataset.metadata.uid, dataset.spec.adopt)
