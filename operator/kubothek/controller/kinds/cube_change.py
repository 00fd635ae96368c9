"""Launch of a Commit that changes a Cube: its requirements and its job.

All datasets of the cube take part: with a claim on each, any later change can finish or undo an interrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubothek.api import jobs
from kubothek.api.commit import Commit
from kubothek.api.conditions import stalled
from kubothek.api.cube import Cube
from kubothek.api.cube_changes import CubeChange
from kubothek.api.engine import Engine
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Context, LaunchJob
from kubothek.controller.kinds.members import cube_ref, members_of
from kubothek.controller.references import (
    Blocked,
    find_engine,
    launch_job,
    source_spec,
    spark_settings,
    store_ref,
    usable_cube,
    usable_store,
)
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.maintenance_priority import alone
from kubothek.controller.scheduling.queue import datasets_of, turn


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a job needs, resolved and usable. ``stores`` by name: of the cube, of sources, of a copy."""

    change: CubeChange
    cube: Cube
    stores: Mapping[str, ObjectStore]
    engine: Engine | None


def launch(commit: Commit, attempt: int, context: Context) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for."""
    parts = _gate(commit, context)
    if isinstance(parts, Blocked):
        return parts
    return launch_job(_job(commit, attempt, parts, context), commit, parts.engine, *parts.stores.values())


def _gate(commit: Commit, context: Context) -> _Parts | Blocked:
    change = commit.spec.cube
    assert change is not None, "asked only for changes of cubes"
    cube = usable_cube(change.cube_ref.name, commit, context)
    if isinstance(cube, Blocked):
        return cube
    unknown = _unknown(change, cube)
    if unknown is not None:
        return unknown
    stores: dict[str, ObjectStore] = {}
    for name in _store_names(commit, change, cube):
        store = usable_store(name, commit, context)
        if isinstance(store, Blocked):
            return store
        stores[name] = store
    engine = find_engine((commit.spec.engine_ref, cube.spec.engine_ref), commit, context)
    if isinstance(engine, Blocked):
        return engine
    home = stores[cube.spec.store_ref.name]
    others = (alone(commit, dataset, home, context) for dataset in datasets_of(commit, context))
    blocked = turn(commit, context) or next((other for other in others if other is not None), None)
    return blocked or _Parts(change, cube, stores, engine)


def _unknown(change: CubeChange, cube: Cube) -> Blocked | None:
    """Return the state if the change names a dataset that is not a member, and so has no Dataset; otherwise None."""
    known = {member.name for member in members_of(cube, cube.status)}
    asked = [rows.name for rows in change.datasets] + list(change.members or ())
    wrong = next((name for name in asked if name not in known), None)
    if wrong is None:
        return None
    message = (
        f"Cube {cube.name!r} has no dataset {wrong!r}: add it to its spec.datasets, or correct the name in a new "
        f"Commit; there are {', '.join(sorted(known)) or 'none'}"
    )
    return Blocked(stalled("MemberNotFound", message))


def _store_names(commit: Commit, change: CubeChange, cube: Cube) -> dict[str, None]:
    """Return the names of the ObjectStores that the job needs, in the order in which they are resolved."""
    names = [cube.spec.store_ref.name]
    names += [source.store_ref.name for source in commit.sources if source.store_ref is not None]
    if change.to is not None and change.to.store_ref is not None:
        names.append(change.to.store_ref.name)
    return dict.fromkeys(names)


def _job(commit: Commit, attempt: int, parts: _Parts, context: Context) -> jobs.CubeJob:
    change, cube, home = parts.change, parts.cube, parts.cube.spec.store_ref.name
    return jobs.CubeJob(
        job=job_name(commit.name, attempt),
        uid=commit.metadata.uid,
        attempt=attempt,
        store=store_ref(parts.stores[home]),
        cube=cube_ref(cube, context),
        by=f"{context.settings.cluster_id}/{cube.namespace}/{cube.name}",
        commit_id=commit.id,
        digest=commit.digest(home),
        operation=change.operation,
        rows=tuple(
            jobs.CubeRows(
                name=rows.name,
                source=source_spec(
                    rows.source,
                    parts.stores[rows.source.store_ref.name if rows.source.store_ref else home],
                    context.settings,
                ),
            )
            for rows in change.datasets
        ),
        members=change.members,
        where=change.where,
        columns=change.columns,
        target=_target(parts),
        overwrite=change.overwrite,
        dry_run=change.dry_run,
        spark=spark_settings(parts.engine),
    )


def _target(parts: _Parts) -> jobs.CubeTarget | None:
    to, home = parts.change.to, parts.cube.spec.store_ref.name
    if to is None:
        return None
    return jobs.CubeTarget(
        store=store_ref(parts.stores[to.store_ref.name if to.store_ref else home]),
        prefix=to.uuid_prefix or parts.cube.prefix,
        rename=to.rename or {},
        overwrite=to.overwrite,
    )
