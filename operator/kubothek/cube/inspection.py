"""Structure and size of a cube."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kubothek.cube.state import CubeSnapshot
from kubothek.storage import Store
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model.head import OWN_PREFIX
from kubothek.table.log.model.record import size_of
from kubothek.table.log.multi.members import LEGACY, OWN, Member
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.schema import type_name


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One dataset; ``columns``: stored types by name; ``indices``: indexed columns; ``metadata``: user metadata."""

    name: str
    uuid: str
    version: int
    is_seed: bool
    partition_on: tuple[str, ...]
    dimensions: tuple[str, ...]
    payload: tuple[str, ...]
    columns: Mapping[str, str]
    indices: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CubeInfo:
    """A cube at one version; the seed is the first member."""

    spec: CubeSpec
    version: int
    members: tuple[MemberInfo, ...]


@dataclass(frozen=True, slots=True)
class MemberStats:
    """The size of a dataset; ``partitions`` counts physical partitions, 1 for an unpartitioned dataset."""

    rows: int
    files: int
    bytes: int
    partitions: int


def info(snapshot: CubeSnapshot) -> CubeInfo:
    """Return the structure of a version, without I/O."""
    return CubeInfo(snapshot.spec, snapshot.version, tuple(_of(member) for member in snapshot.members.values()))


def stats(store: Store, snapshot: CubeSnapshot, names: Collection[str]) -> dict[str, MemberStats]:
    """Return the sizes of these members; file sizes are requested only if another program wrote last."""
    return {name: _size(store, snapshot.member(name)) for name in names}


def _of(member: Member) -> MemberInfo:
    metadata = member.snapshot.head.metadata
    return MemberInfo(
        name=member.name,
        uuid=member.uuid,
        version=member.snapshot.version,
        is_seed=member.is_seed,
        partition_on=member.partition_on,
        dimensions=member.dimensions,
        payload=member.payload,
        columns={field.name: type_name(field.type) for field in member.schema},
        indices=tuple(sorted(member.snapshot.head.index_state.wanted())),
        metadata={k: v for k, v in metadata.items() if not k.startswith((OWN, LEGACY, OWN_PREFIX))},
    )


def _size(store: Store, member: Member) -> MemberStats:
    head = member.snapshot.head
    totals = member.snapshot.totals or size_of(measure(store, head.files().items()))
    return MemberStats(totals.rows, totals.files, totals.bytes, max(1, len(head.directories)))
