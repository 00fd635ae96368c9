"""Heads from deltas, and deltas from heads. Pure functions, linear in the number of partitions.

Only :func:`apply` makes heads, so a version that is rebuilt from records has the bytes that it had as the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubothek.table.log.model.head import COMMIT, SCHEMA, VERSION, Head
from kubothek.table.log.model.paths import recount
from kubothek.table.log.model.record import Delta

_DERIVED = (VERSION, COMMIT)


def apply(head: Head, delta: Delta, version: int, commit: str) -> Head:
    """Return the head that the commit with this delta makes on top of ``head``."""
    dropped = {name for name, key in delta.indices.items() if key is None}
    indices = {k: v for k, v in {**head.indices, **delta.indices}.items() if k not in dropped}
    metadata = {k: v for k, v in head.metadata.items() if k not in delta.dropped}
    metadata |= delta.metadata
    metadata |= {VERSION: version, COMMIT: commit}
    if delta.schema is not None:
        metadata[SCHEMA] = delta.schema
    partitions = dict(head.partitions)
    for label, _ in delta.removed:
        del partitions[label]
    table = Head(head.uuid, partitions, metadata=metadata).table
    new = {file.label: {"files": {table: file.key}} for file in delta.added}
    if delta.positions is None:
        partitions.update(new)
    else:
        partitions = _merge(partitions, new, delta.positions)
    made = Head(
        uuid=head.uuid,
        partitions=partitions,
        partition_keys=head.partition_keys if delta.partition_keys is None else delta.partition_keys,
        indices=indices,
        metadata=metadata,
    )
    if "directories" in vars(head):  # counted already
        removed, added = (key for _, key in delta.removed), (file.key for file in delta.added)
        vars(made)["directories"] = recount(head.directories, removed=removed, added=added)
    return made


def difference(
    before: Head, after: Head
) -> tuple[tuple[str, ...], tuple[int, ...] | None, tuple[tuple[str, str], ...]]:
    """Return what turns one head's partitions into the other's: added labels, their positions, what was removed.

    A label counts as removed and added if its file changed, or its position among the labels that stay.
    """
    ranks = {label: rank for rank, label in enumerate(before.partitions)}
    added: list[str] = []
    positions: list[int] = []
    highest = -1
    for position, (label, partition) in enumerate(after.partitions.items()):
        rank = ranks.get(label, -1)
        if rank > highest and before.partitions[label]["files"] == partition["files"]:
            highest = rank
            del ranks[label]
        else:
            added.append(label)
            positions.append(position)
    kept = len(after.partitions) - len(added)
    at_the_end = not positions or positions[0] == kept
    removed = tuple((label, before.file(label)) for label in ranks)
    return tuple(added), None if at_the_end else tuple(positions), removed


def metadata_delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what to set and what to drop, without the keys that :func:`apply` derives."""
    own = (*_DERIVED, SCHEMA)
    to_set = {k: v for k, v in after.items() if k not in own and (k not in before or before[k] != v)}
    return to_set, tuple(k for k in before if k not in after and k not in _DERIVED)


def _merge(kept: dict[str, Any], new: dict[str, Any], positions: Sequence[int]) -> dict[str, Any]:
    place = dict(zip(positions, new.items(), strict=True))
    old = iter(kept.items())
    return dict(place[i] if i in place else next(old) for i in range(len(kept) + len(new)))
