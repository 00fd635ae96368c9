"""Forecast for Commits: applied before, waiting, impossible, or the rows that they will read."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.api.commit import Commit
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import DEFAULT_ENGINE, Engine, EngineSpec
from kubothek.api.files import Source
from kubothek.api.meta import render_time
from kubothek.api.values import render_bytes
from kubothek.cli.forecast_cubes import cube_change_step
from kubothek.cli.forecast_stores import Stores, wrong
from kubothek.cli.steps import Step, Verb
from kubothek.controller.references import profile
from kubothek.errors import BucketNotFound, FilterInvalid, LakeError, ObjectNotFound, SchemaMismatch
from kubothek.ingest.readers.values import check_names
from kubothek.local.launch import spark_from
from kubothek.local.manifests import Key
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys as lake_keys
from kubothek.table.log.model.markers import Marker, Markers
from kubothek.words import count


class Commits(Stores):
    """The steps of Commits."""

    def _waits(self, key: Key, commit: Commit) -> Step | None:
        """Return a blocked step if the Commit needs a resource that no manifest has."""
        wanted = [Key(commit.subject.kind, key.namespace, commit.subject.name)]
        wanted += [Key("Commit", key.namespace, reference.name) for reference in commit.spec.depends_on]
        absent = next((other for other in wanted if other not in self._applied.resources), None)
        return None if absent is None else Step(key, Verb.BLOCKED, f"needs {absent}, {wrong(None)}")

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
        """Return the error of ``where``; columns are checked only if the Commits that may add them are done."""
        if commit.spec.where is None:
            return None
        try:
            where = parse(commit.spec.where)
            if isinstance(store, Store) and self._comes_next(commit, dataset, store):
                schema = DatasetLog(store, dataset.uuid).snapshot().schema
                if schema is not None:
                    where.bind(schema)
        except FilterInvalid as error:
            return error
        except LakeError:  # no readable table yet: the dataset's own line reports it
            return None
        return None

    def _before(self, commit: Commit) -> Iterator[Commit]:
        """Yield the Commits of the same Dataset that this one depends on."""
        for reference in commit.spec.depends_on:
            other = self._applied.resources.get(Key("Commit", commit.namespace, reference.name))
            if isinstance(other, Commit) and other.subject == commit.subject:
                yield other

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
                return Step(key, Verb.BLOCKED, f"needs {home}, {wrong(store)}")
            for path in source.paths:
                try:
                    size += store.stat(path).size
                except ObjectNotFound:
                    return Step(key, Verb.BLOCKED, _no_source(path, home))
                if (misfit := self._misfit(commit, subject, source, store, path)) is not None:
                    return Step(key, Verb.BLOCKED, misfit)
                names.append(path)
        if not names:
            return Step(key, Verb.COMMIT, target)
        told = ", ".join(names) if any(source.urls for source in commit.sources) else _files(names)
        if not size:
            return Step(key, Verb.COMMIT, f"{target}: {told}")
        spark = size >= spark_from(self._engine(commit, subject))
        return Step(
            key, Verb.COMMIT, f"{target}: {told} ({render_bytes(size)}, {'by Spark' if spark else 'without Spark'})"
        )

    def _misfit(self, commit: Commit, subject: Dataset | Cube, source: Source, store: Store, path: str) -> str | None:
        """Return why the columns of a Parquet file do not fit the table; None if they fit or only the job can tell.

        It reads the footer. The job checks further rules (explicit schemas, evolution, files with other types).
        """
        if source.format != "Parquet" or source.columns is not None or not isinstance(subject, Dataset):
            return None
        if commit.spec.operation not in ("Append", "Replace") or subject.spec.table.schema_evolution == "Compatible":
            return None
        home = self._open(self._home(subject))
        try:
            snapshot = DatasetLog(home, subject.uuid).snapshot() if isinstance(home, Store) else None
            if snapshot is None or snapshot.schema is None or not self._comes_next(commit, subject, home):
                return None
            with store.open(path) as file:
                found = pq.read_schema(pa.PythonFile(file, mode="r")).names
            check_names(path, found, snapshot.schema.names)
        except SchemaMismatch as error:
            return f"{error.reason}: {error}"
        except (LakeError, OSError, pa.ArrowInvalid):  # no table yet, or no readable file: the job reports it
            return None
        return None

    def _comes_next(self, commit: Commit, dataset: Dataset, store: Store | LakeError | None) -> bool:
        """Return whether all Commits that it depends on are done, so that the table is in its final state."""
        return isinstance(store, Store) and all(_applied(store, dataset, other) for other in self._before(commit))

    def _engine(self, commit: Commit, subject: Dataset | Cube) -> EngineSpec:
        reference = commit.spec.engine_ref or subject.spec.engine_ref
        names = dict.fromkeys((DEFAULT_ENGINE, *([] if reference is None else [reference.name])))
        found = (self._applied.resources.get(Key("Engine", commit.namespace, name)) for name in names)
        return profile([engine for engine in found if isinstance(engine, Engine)], commit.spec.size)


def _deed(commit: Commit, subject: Dataset | Cube) -> str:
    """Return what a Commit will do."""
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
    return names[0] if len(names) == 1 else f"{count(len(names), 'file')}"


def _no_source(path: str, store: Key) -> str:
    return f"SourceNotFound: {path} is not in {store}; `kubothek put` brings it there"


def _applied(store: Store, dataset: Dataset, commit: Commit) -> Marker | None:
    """Return the marker of the commit in the current incarnation of the dataset."""
    marker = Markers(store, dataset.uuid, random.Random()).get(lake_keys.marker(dataset.uuid, commit.id))
    if marker is None:
        return None
    try:
        epoch = DatasetLog(store, dataset.uuid).snapshot().head.epoch
    except LakeError:  # deleted, or not readable: the dataset's own line reports it
        return None
    return marker if marker.version > epoch else None
