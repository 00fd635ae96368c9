"""Discovery of the cubes in a store by the names of datasets, whatever program wrote them; it writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from kubothek.cube.state import CubeSnapshot, Member
from kubothek.errors import DatasetNotFound, HeadMissing, ObjectNotFound
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Snapshot
from kubothek.table.log.model import keys
from kubothek.table.log.multi.head import CubeHead, head_key
from kubothek.table.log.multi.members import in_order, spec_in
from kubothek.table.log.multi.rules import check
from kubothek.table.log.multi.spec import SEPARATOR, check_prefix, memberships
from kubothek.table.log.records import parallel

_HEAD_ENDS: Final = (keys.head(""), keys.packed_head(""))


def cubes(store: Store) -> list[str]:
    """Return the sorted prefixes of dataset names; :func:`discover` checks whether one is a cube."""
    names = (name for end in _HEAD_ENDS for name in store.list_names("") if name.endswith(end))
    prefixes = {name[: name.find(SEPARATOR)] for name in names if SEPARATOR in name}
    return sorted(prefix for prefix in prefixes if prefix)


def member_names(store: Store, prefix: str) -> list[str]:
    """Return the names of the datasets whose uuids begin with this prefix and ``++``; list the store's root once."""
    start = f"{check_prefix(prefix)}{SEPARATOR}"
    found = {
        name.removeprefix(start).removesuffix(end)
        for name in store.list_names("")
        for end in _HEAD_ENDS
        if name.startswith(start) and name.endswith(end)
    }
    return sorted(
        name for name in found if name and SEPARATOR not in name and another_cube_of(store, prefix, name) is None
    )


def another_cube_of(store: Store, prefix: str, name: str) -> str | None:
    """Return the prefix of another cube whose head names this dataset; no request if the uuid is unambiguous."""
    for other, there in memberships(f"{prefix}{SEPARATOR}{name}"):
        if other != prefix:
            with suppress(ObjectNotFound):
                if there in CubeHead.parse(other, store.get(head_key(other))).members:
                    return other
    return None


def discover(store: Store, prefix: str) -> CubeSnapshot:
    """Return the cube that the datasets' own heads describe, after checks (``kartothek.io.eager_cube``).

    Raises DatasetNotFound if no dataset has this prefix, CubeInvalid if the datasets do not form a cube.
    """
    names = member_names(store, prefix)
    found = dict(zip(names, parallel(partial(_snapshot, store, prefix), names), strict=True))
    return described(store, prefix, {name: snapshot for name, snapshot in found.items() if snapshot is not None})


def described(store: Store, prefix: str, snapshots: Mapping[str, Snapshot]) -> CubeSnapshot:
    """Return the cube that these snapshots, by member name, describe. Raises what :func:`discover` raises."""
    if not snapshots:
        raise DatasetNotFound(f"there is no cube {prefix!r} in {store.url}: no dataset is named {prefix}{SEPARATOR}…")
    spec = spec_in(prefix, {name: snapshot.head for name, snapshot in snapshots.items()})
    members = {name: Member(name, spec, snapshots[name]) for name in in_order(spec, snapshots)}
    check(spec, members)
    return CubeSnapshot(spec, 0, members)


def _snapshot(store: Store, prefix: str, name: str) -> Snapshot | None:
    """Return the snapshot; None for a deleted dataset, which discovery skips as kartothek's does."""
    try:
        return DatasetLog(store, f"{prefix}{SEPARATOR}{name}").snapshot(raw=True)
    except HeadMissing:
        raise
    except DatasetNotFound:
        return None
