"""Copies of a cube: the files of one version under new names, decoded only where indices need it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kubothek.cube.state import CubeSnapshot
from kubothek.cube.writing import CheckSchema, Writer
from kubothek.errors import CubeInvalid
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.log import Snapshot
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.name_lists import names_in
from kubothek.table.operations import Written
from kubothek.table.operations.copies import copied


def names_of(snapshot: CubeSnapshot, datasets: Collection[str] | str | None) -> dict[str, str]:
    """Return the name of each copy by dataset. ``datasets``: names, or new names by old name; None = all.

    Raises DatasetNotFound, CubeInvalid if two copies have the same name.
    """
    if datasets is None:
        return {name: name for name in snapshot.members}
    names = dict(datasets) if isinstance(datasets, Mapping) else {name: name for name in names_in("datasets", datasets)}
    for name in names:
        snapshot.member(name)
    if len(set(names.values())) < len(names):
        raise CubeInvalid(f"two datasets would have one name: {', '.join(sorted(names.values()))}")
    return names


def spec_of(spec: CubeSpec, prefix: str | None, names: Mapping[str, str]) -> CubeSpec:
    """Return the specification of the copy."""
    seed = names.get(spec.seed_dataset, spec.seed_dataset)
    return replace(spec, uuid_prefix=prefix or spec.uuid_prefix, seed_dataset=seed)


def writer(source: Store, member: Member, target: Store) -> Writer:
    """Return a writer that copies the files of a member to the target store."""

    def write(_: str, base: Snapshot, check: CheckSchema) -> Written:
        check(member.schema)
        kept = dict.fromkeys(member.snapshot.head.index_state.kartothek, IndexKind.KARTOTHEK)
        return copied(source, member.snapshot, member.schema, target, base, kept)

    return write
