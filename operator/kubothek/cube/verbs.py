"""Common steps of a cube's write operations: from the caller's data to one commit of all changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubothek.cube import copying, removing, validation
from kubothek.cube.state import CubeSnapshot
from kubothek.cube.transaction import CubeCommitted, CubeTransaction
from kubothek.cube.writing import Data, Part, change, written
from kubothek.errors import DatasetNotFound
from kubothek.storage import Store
from kubothek.table.layout import Layout
from kubothek.table.log import Change
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.operations.copies import user_metadata
from kubothek.table.skipping.model import SkippingState

Columns = Mapping[str, Sequence[str]]
Metadata = Mapping[str, Mapping[str, Any]]
Require = Callable[[CubeSpec | None, Collection[str]], None]
"""Takes spec and members of the cube that a commit builds on; raises if the commit is not allowed."""


@dataclass(frozen=True, slots=True)
class Begins:
    """Properties of new datasets, by name; see :meth:`~kubothek.cube.handle.Cube.build`."""

    partition_on: Columns | None = None
    metadata: Metadata | None = None
    layouts: Mapping[str, Layout] | None = None
    skipping: Mapping[str, SkippingState] | None = None


def spec_of(started: CubeTransaction) -> CubeSpec:
    """Return the specification of the existing cube. Raises DatasetNotFound."""
    if not started.exists:
        raise DatasetNotFound(f"there is no cube {started.prefix!r} in {started.store.url}; build it first")
    return started.spec


def write_anew(
    started: CubeTransaction,
    operation: str,
    spec: CubeSpec,
    given: Mapping[str, Data],
    begins: Begins,
    require: Require,
) -> CubeCommitted:
    """Commit datasets that these rows create or replace."""
    require(None, set(started.members()))
    metadata, layouts, skipping = begins.metadata or {}, begins.layouts or {}, begins.skipping or {}
    validation.check_metadata(given, metadata)
    keys = validation.partition_on(spec, given, begins.partition_on or {})
    parts = [
        Part(name, data, True, keys[name], metadata.get(name, {}), layouts.get(name), skipping.get(name))
        for name, data in given.items()
    ]
    return _commit(started, operation, spec, parts, becomes=spec, require=require)


def write_more(
    started: CubeTransaction,
    operation: str,
    given: Mapping[str, Data],
    *,
    metadata: Metadata | None,
    evolve: Collection[str],
    removals: Mapping[str, Change],
) -> CubeCommitted:
    """Commit rows to existing datasets, and removals."""
    spec, members = spec_of(started), started.members()
    validation.check_names(given)
    validation.check_known(spec, given, members)
    validation.check_metadata(given, metadata or {})
    validation.check_known(spec, evolve, members)
    parts = [
        Part(name, data, False, members[name].partition_on, (metadata or {}).get(name, {}), evolves=name in evolve)
        for name, data in given.items()
    ]
    return _commit(started, operation, spec, parts, removals=removals)


def write_copies(
    source: Store,
    snapshot: CubeSnapshot,
    names: Mapping[str, str],
    started: CubeTransaction,
    spec: CubeSpec,
    *,
    overwrite: bool,
) -> CubeCommitted:
    """Commit copies of members, by the name of each copy; without the seed they extend the existing cube."""
    members = {new: snapshot.member(name) for name, new in names.items()}
    builds = spec.seed_dataset in members
    spec = spec if builds else spec_of(started)

    def require(_: CubeSpec | None, there: Collection[str]) -> None:
        allowed = validation.check_build if builds else validation.check_extend
        allowed(spec, members, there, overwrite=overwrite)

    require(None, set(started.members()))
    parts = [
        Part(
            new,
            copying.writer(source, member, started.store),
            True,
            member.partition_on,
            user_metadata(member.snapshot),
            Layout.of(member.snapshot.head),
            is_copy=True,
        )
        for new, member in members.items()
    ]
    return _commit(started, "Copy", spec, parts, becomes=spec if builds else None, require=require)


def _commit(
    started: CubeTransaction,
    operation: str,
    spec: CubeSpec,
    parts: list[Part],
    *,
    becomes: CubeSpec | None = None,
    removals: Mapping[str, Change] | None = None,
    require: Require = lambda _spec, _names: None,
) -> CubeCommitted:
    """Check, write and commit all parts and removals; ``becomes``: the cube's new spec, if it may change."""
    changes = dict(removals or {})
    started.require_claims({*changes, *(part.name for part in parts)})
    with started:
        made = written(started.store, started, spec, parts)
        for part in parts:
            new = change(spec, part, made[part.name], started.base(part.name), by=started.by)
            removal = changes.get(part.name)
            changes[part.name] = new if removal is None else removing.replaced(new, removal)
        return started.commit(operation, changes, spec=becomes, require=require)
