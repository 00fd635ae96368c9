"""Iceberg metadata that stays: what a reader that opened the table within the grace period may still need.

A reader opens table metadata that ``version-hint.text`` names, and then reads manifest lists and manifests that this
metadata names. Each export swaps the hint from the metadata that it continued from to its own, which lists the former
ones in ``metadata-log``. So the hint's values are a chain. Let X be the newest metadata of the chain that was written
one and a half grace periods ago or earlier. Then:

* The hint named X, or later metadata, during the whole last grace period: an export that takes longer than half a grace
  period between the read and the swap of the hint fails. So every reader of that time opened X or later metadata.
* Later metadata names only what X names, and what was written after X. An export writes all files that it names and
  does not find named by the one that it continues from, even if they exist.

A rebuild starts a chain in place of metadata of the same version, and the hint can keep its ETag: an export that
remembers the former metadata, for half a grace period, continues from that. So metadata that starts a chain is X only
while the hint names it.

So garbage is what X does not name and what was written before X. Table metadata goes first, then manifest lists, then
manifests: a crash leaves no file that names a missing one. If the chain or a list of X cannot be read, nothing is
garbage, until an export has repaired it and has aged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from kubothek.errors import ObjectNotFound
from kubothek.gc.mark import Moment, References, each_of
from kubothek.gc.retention import may_be_read
from kubothek.storage import ObjectInfo, Store
from kubothek.table.log.model import keys

_METADATA: Final = re.compile(r"v(\d+)\.metadata\.json")
_DAMAGED: Final = (ObjectNotFound, ValueError, KeyError, TypeError, AttributeError, EOFError, IndexError)


def mark_iceberg(store: Store, uuid: str, moment: Moment, into: References) -> datetime | None:
    """Mark the Iceberg metadata of a dataset that stays; what is not marked and older than the result is garbage.

    None: nothing is garbage, for example because pyiceberg, which reads manifest lists, is not installed.
    """
    try:
        from kubothek.table.iceberg.objects import manifests_in
    except ModuleNotFoundError:
        return None
    prefix = keys.iceberg_metadata(uuid)
    present = {number: info for info in store.list(f"{prefix}v") if (number := _number(info.key)) is not None}
    if not present:
        return None

    def lists_manifests(key: str) -> list[str]:
        return [_key(prefix, each.manifest_path) for each in manifests_in(key, store.get(key))]

    try:
        hinted = int(store.get(keys.iceberg_hint(uuid)))
        named = _last_old(store, present, hinted, moment)
        if named is None:
            return None
        metadata = _read(store, named.key)
        if not metadata["metadata-log"] and named is not present[hinted]:
            return None
        lists = [_key(prefix, each["manifest-list"]) for each in metadata["snapshots"]]
        manifests = {key for found in each_of(lists_manifests, lists) for key in found}
    except _DAMAGED:
        return None
    later = (info.key for number, info in present.items() if number > hinted)  # a restored backup can have less
    into.add((keys.iceberg_hint(uuid), named.key, *lists, *later))
    into.add(manifests)
    return named.modified


def _last_old(store: Store, present: Mapping[int, ObjectInfo], hinted: int, moment: Moment) -> ObjectInfo | None:
    """Return the newest metadata of the chain that ends at the hinted one, which was replaced before the grace period.

    None if the chain ends before.
    """
    for info in _chain(store, present, hinted):
        if not may_be_read(replaced=info.modified, now=moment.now, grace=moment.grace):
            return info
    return None


def _chain(store: Store, present: Mapping[int, ObjectInfo], hinted: int) -> Iterator[ObjectInfo]:
    """Yield the metadata of the chain, newest first. Reads one object for each hundred."""
    number = hinted
    yield present[number]
    while True:
        log = [_number(entry["metadata-file"]) for entry in _read(store, present[number].key)["metadata-log"]]
        former = [each for each in log if each is not None and each in present]
        yield from (present[each] for each in reversed(former))
        if not former or former[0] >= number:
            return
        number = former[0]


def _read(store: Store, key: str) -> Any:
    return orjson.loads(store.get(key))


def _number(location: str) -> int | None:
    match = _METADATA.fullmatch(location.rpartition("/")[2])
    return int(match[1]) if match else None


def _key(prefix: str, location: str) -> str:
    return f"{prefix}{location.rpartition('/')[2]}"
