"""What a run would do about each resource, found by reading only."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from kubothek.cli.stores import reachable
from kubothek.lake.commits import Claim, DatasetLog
from kubothek.lake.commits import keys as lake_keys
from kubothek.lake.commits.markers import Marker, Markers
from kubothek.lake.errors import BucketNotFound, LakeError, ObjectNotFound
from kubothek.lake.store import Store, open_store
from kubothek.resources.commit import Commit
from kubothek.resources.dataset import Dataset
from kubothek.resources.engine import DEFAULT_ENGINE, Engine, EngineSpec
from kubothek.resources.objectstore import ObjectStore
from kubothek.resources.values import parse_quantity, render_bytes
from kubothek.runtime.local.apply import Applied
from kubothek.runtime.local.changes import changes
from kubothek.runtime.local.manifests import Key
from kubothek.runtime.local.runner import CLUSTER_ID
from kubothek.runtime.local.words import count


class Verb(StrEnum):
    """What happens to a resource."""

    KEEP = "as it is"
    CREATE = "create"
    CHANGE = "change"
    COMMIT = "commit"
    SUSPENDED = "suspended"
    BLOCKED = "blocked"

    @property
    def mark(self) -> str:
        """One character for it."""
        return {"as it is": "=", "create": "+", "change": "~", "commit": ">", "suspended": "‖"}.get(self, "!")

    @property
    def color(self) -> str:
        """A terminal's colour for it."""
        return {"!": "red", "=": "bright_black", "‖": "bright_black"}.get(self.mark, "green")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the plan."""

    key: Key
    verb: Verb
    why: str


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
        elif isinstance(resource, Commit):
            yield self._commit_step(key, resource)
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

    def _commit_step(self, key: Key, commit: Commit) -> Step:
        dataset_key = Key("Dataset", key.namespace, commit.spec.dataset_ref.name)
        dataset = self._applied.resources.get(dataset_key)
        if not isinstance(dataset, Dataset):
            return Step(key, Verb.BLOCKED, f"needs {dataset_key}, {_wrong(None)}")
        for reference in commit.spec.depends_on:
            other = Key("Commit", key.namespace, reference.name)
            if other not in self._applied.resources:
                return Step(key, Verb.BLOCKED, f"needs {other}, {_wrong(None)}")
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
        return self._new_commit(key, commit, dataset)

    def _new_commit(self, key: Key, commit: Commit, dataset: Dataset) -> Step:
        source = commit.spec.source
        target = f"{commit.spec.operation.lower()} to dataset/{dataset.name}"
        if source.paths is None:
            return Step(key, Verb.COMMIT, f"{target}: {', '.join(source.urls or ())}")
        home = self._home(commit) if source.store_ref is not None else self._home(dataset)
        store = self._open(home)
        if isinstance(store, BucketNotFound):
            return Step(key, Verb.BLOCKED, _no_source(source.paths[0], home))
        if not isinstance(store, Store):
            return Step(key, Verb.BLOCKED, f"needs {home}, {_wrong(store)}")
        size = 0
        for path in source.paths:
            try:
                size += store.stat(path).size
            except ObjectNotFound:
                return Step(key, Verb.BLOCKED, _no_source(path, home))
        spark = size >= parse_quantity(self._engine(commit, dataset).spark_from)
        how = "by Spark" if spark else "without Spark"
        names = source.paths[0] if len(source.paths) == 1 else f"{len(source.paths)} files"
        return Step(key, Verb.COMMIT, f"{target}: {names} ({render_bytes(size)}, {how})")

    def _home(self, resource: Dataset | Commit) -> Key:
        """The ObjectStore of a Dataset, or the one that a Commit's source names."""
        reference = resource.spec.store_ref if isinstance(resource, Dataset) else resource.spec.source.store_ref
        assert reference is not None, "asked only of a source that names one"
        return Key("ObjectStore", resource.namespace, reference.name)

    def _engine(self, commit: Commit, dataset: Dataset) -> EngineSpec:
        reference = commit.spec.engine_ref or dataset.spec.engine_ref
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


def _claim(dataset: Dataset) -> Claim:
    return Claim(f"{CLUSTER_ID}/{dataset.namespace}/{dataset.name}", dataset.metadata.uid)


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
