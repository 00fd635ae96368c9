"""Copies of a cube: the files of one version under new names, decoded only where indices need it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

from kubothek.cube.state import CubeSnapshot
from kubothek.cube.writing import CheckSchema, Writer
from kubothek.errors import CubeInvalid, StoreError
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.log import PartitionFile, Snapshot, partition_path
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import OWN_PREFIX
from kubothek.table.log.multi.members import LEGACY, OWN, Member
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.records import parallel
from kubothek.table.name_lists import names_in
from kubothek.table.operations import Written
from kubothek.table.operations.written import Gathered
from kubothek.table.skipping.collect.collectors import entry_schema
from kubothek.table.skipping.model import Part, SkippingState
from kubothek.table.skipping.refresh import beginning, carried
from kubothek.table.time_zones import zones_of

_NAME: Final = re.compile(r"[0-9a-f]{32}")


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
        head = member.snapshot.head
        files = measure(source, head.files().items())
        copies = [_copy_of(base.head.uuid, file) for file in files]
        try:
            parallel(partial(_copy, source, target), list(zip(files, copies, strict=True)))
        except BaseException:
            with suppress(StoreError):
                target.delete([copy.key for copy in copies])
            raise
        kept = dict.fromkeys(head.index_state.kartothek, IndexKind.KARTOTHEK)
        begins, described = _described(source, member, target, base, files, copies)
        return Written(
            tuple(copies),
            member.schema,
            head.partition_keys,
            gathered=Gathered(skipping=described),
            wanted=kept,
            dialect=head.index_state.dialect,
            begins=begins,
            zones=zones_of(head.metadata),
        )

    return write


def _described(
    source: Store,
    member: Member,
    target: Store,
    base: Snapshot,
    files: Sequence[PartitionFile],
    copies: Sequence[PartitionFile],
) -> tuple[SkippingState | None, tuple[Part, ...]]:
    """Copy the skipping metadata of the files; none if the overwritten table has its own."""
    before = member.snapshot.head.skipping
    if not before.indices or base.head.skipping.indices:
        return None, ()
    definitions = replace(before, parts=(), without=0)
    begins = beginning(target, definitions, member.schema, member.snapshot.head.partition_keys)
    if begins is None:
        return None, ()
    head = base.head
    entries = entry_schema(begins, member.schema, member.snapshot.head.partition_keys)
    keys = {file.key: copy.key for file, copy in zip(files, copies, strict=True)}
    encryption = begins.encryption
    parts = carried(source, before.parts, target, head.uuid, head.table, entries, keys, encryption=encryption)
    return begins, parts


def user_metadata(member: Member) -> dict[str, object]:
    """Return the user metadata of a member, which is copied too."""
    own = (OWN, LEGACY, OWN_PREFIX, "creation_time")
    return {key: value for key, value in member.snapshot.head.metadata.items() if not key.startswith(own)}


def _copy_of(uuid: str, file: PartitionFile) -> PartitionFile:
    """Return the file of a copy: a new name, which keeps the suffix for bucket and order."""
    old = file.key.rpartition("/")[2].removesuffix(keys.DATA_SUFFIX)
    name = uuid4().hex + (old[32:] if _NAME.match(old) else "")
    path = partition_path(file.key)
    label = f"{path}/{name}" if path else name
    key = f"{keys.data_prefix(uuid, keys.DEFAULT_TABLE)}{label}{keys.DATA_SUFFIX}"
    return replace(file, label=label, key=key)


def _copy(source: Store, target: Store, pair: tuple[PartitionFile, PartitionFile]) -> None:
    with source.open(pair[0].key) as content:
        target.upload(pair[1].key, content)
