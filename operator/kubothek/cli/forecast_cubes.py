"""Forecast for cubes and their changes, without writes."""

from __future__ import annotations

from kubothek.api.commit import Commit
from kubothek.api.cube import Cube
from kubothek.cli.forecast_stores import wrong
from kubothek.cli.steps import Step, Verb
from kubothek.cube.log import CubeLog
from kubothek.errors import BucketNotFound, DatasetNotFound, FilterInvalid, LakeError
from kubothek.local.manifests import Key
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.words import count


def cube_step(key: Key, cube: Cube, store: Store | LakeError | None, home: Key) -> Step:
    """Return the step of a Cube: whether the cube exists, and its version."""
    nothing = Step(key, Verb.CREATE, f"nothing is at {cube.prefix!r} yet; its first commit builds it")
    if isinstance(store, BucketNotFound):
        return nothing
    if store is None or isinstance(store, LakeError):
        return Step(key, Verb.BLOCKED, f"needs {home}, {wrong(store)}")
    try:
        snapshot = CubeLog(store, cube.prefix).snapshot()
    except DatasetNotFound:
        return nothing
    except LakeError as error:
        return Step(key, Verb.BLOCKED, f"{error.reason}: {str(error).partition(chr(10))[0]}")
    datasets = count(len(snapshot.members), "dataset")
    if not snapshot.version:
        made = f"made by another program, {datasets}"
        if cube.spec.adopt:
            return Step(key, Verb.CHANGE, f"taken over: {made}")
        return Step(key, Verb.BLOCKED, f"NotAdopted: {made}; spec.adopt: true takes it over")
    return Step(key, Verb.KEEP, f"version {snapshot.version}, {datasets}")


def cube_change_step(key: Key, commit: Commit, cube: Cube, store: Store | LakeError | None) -> Step | None:
    """Return the step of a cube change without a read of its sources; None if it will be made."""
    change = commit.spec.cube
    assert change is not None, "asked only for changes of cubes"
    if isinstance(store, Store):
        known = _made(key, commit, cube, store)
        if known is not None:
            return known
    if commit.spec.suspend:
        return Step(key, Verb.SUSPENDED, "spec.suspend is true")
    if change.where is not None:
        try:
            parse(change.where)
        except FilterInvalid as error:
            return Step(key, Verb.BLOCKED, f"{error.reason}: {str(error).partition(chr(10))[0]}")
    return None


def _made(key: Key, commit: Commit, cube: Cube, store: Store) -> Step | None:
    journal = CubeLog(store, cube.prefix).journal
    try:
        seen = journal.observe()
        record = journal.applied(commit.id, commit.digest(cube.spec.store_ref.name), seen.head if seen else None)
    except LakeError as error:
        return Step(key, Verb.BLOCKED, f"{error.reason}: {error}")
    if record is None:
        return None
    return Step(key, Verb.KEEP, f"is version {record.version} of cube/{cube.name}")
