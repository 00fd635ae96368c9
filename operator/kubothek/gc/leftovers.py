"""What datasets without a table have left in a store: deleted ones, and those whose first commit never happened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kubothek.errors import CommitError, InputError, ObjectNotFound
from kubothek.gc.areas import Kind, areas
from kubothek.storage import Store
from kubothek.table.log import Head
from kubothek.table.log.model import keys
from kubothek.table.log.ownership import owner_of
from kubothek.table.log.records import parallel

_SIDE: Final = ".kubothek/"
_AT_ONCE: Final = 256
_LARGEST_TOMBSTONE: Final = 1 << 20
"""A larger head lists files: it cannot be a tombstone, and is not read."""
_OF_NO_WEIGHT: Final = (Kind.CHECKPOINTS, Kind.JOBS, Kind.PLANS)
"""Each collection leaves a plan, so such objects alone are no reason for another collection."""


def leftovers(store: Store, owners: str) -> Iterator[tuple[str, str]]:
    """Yield uuid and owner of deleted datasets that an owner with this prefix claimed and that have objects left.

    One listing of the names of all datasets, and some small requests for each. Skips datasets that exist, have another
    owner or none, or cannot be read.
    """
    names = (name.rstrip("/") for name in store.list_names(_SIDE) if name.endswith("/"))
    while batch := list(islice(names, _AT_ONCE)):
        for uuid, owner in zip(batch, parallel(lambda uuid: _left_by(store, uuid, owners), batch), strict=True):
            if owner is not None:
                yield uuid, owner


def _left_by(store: Store, uuid: str, owners: str) -> str | None:
    """Return the owner if the dataset is deleted, objects of it are left, and the owner has the prefix."""
    try:
        key = keys.head(keys.check_uuid(uuid))
        if store.stat(key).size > _LARGEST_TOMBSTONE:
            return None
        head = Head.parse(uuid, store.get(key))
        owner = owner_of(store, uuid) if head.tombstone else None
    except (ObjectNotFound, InputError, CommitError):
        return None
    return owner if owner is not None and owner.startswith(owners) and has_objects(store, head) else None


def has_objects(store: Store, head: Head) -> bool:
    """Whether a dataset with this head, which has no table, has objects that a collection may delete."""
    for area in areas(head.uuid, head.table):
        if area.kind not in _OF_NO_WEIGHT:
            owned = (info.key for info in store.list(area.prefix) if area.owns(info.key) and info.key != head.commit)
            if next(owned, None) is not None:
                return True
    return False
