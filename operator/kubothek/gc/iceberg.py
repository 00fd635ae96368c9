"""Iceberg metadata that stays: what a reader that opened the table within the grace period may still need.

A reader opens table metadata that ``version-hint.text`` names, and then reads manifest lists and manifests that this
metadata names. Each export swaps the hint from the metadata that it continued from to its own, which lists the former
ones in ``metadata-log``. So the hint's values are a chain. Without a hint, readers open the latest metadata, and the
chain is that of its ``metadata-log``. Let X be the newest metadata of the chain that was written
one and a half grace periods ago or earlier. Then:

* X, or later metadata, was the last during the whole last grace period: an export that takes longer than half a grace
  period between the read and the swap of the last one fails. So every reader of that time opened X or later metadata.
* Later metadata names only what X names, and what was written after X. An export writes all files that it names and
  does not find named by the one that it continues from, even if they exist.

A rebuild starts a chain in place of metadata of the same version, and the hint can keep its ETag: an export that
remembers the former metadata, for half a grace period, continues from that. So metadata that starts a chain is X only
while the hint names it.

Without a hint, two exports at a time can continue from the same one, and the chain then has only the later version. A
reader can have opened the other one. So what metadata of later versions than X beside the chain names stays.

So garbage is what X does not name and what was written before X. Table metadata goes first, then manifest lists, then
manifests: a crash leaves no file that names a missing one. If the chain or a list of X cannot be read, nothing is
garbage, until an export has repaired it and has aged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from kubothek.errors import ObjectNotFound
from kubothek.gc.mark import Moment, References, each_of
from kubothek.gc.retention import may_be_read
from kubothek.storage import ObjectInfo, Store
from kubothek.table.log.exports import exported_versions
from kubothek.table.log.model import keys

_DAMAGED: Final = (ObjectNotFound, ValueError, KeyError, TypeError, AttributeError, EOFError, IndexError)


def mark_iceberg(store: Store, uuid: str, version: int, moment: Moment, into: References) -> datetime | None:
    """Mark the Iceberg metadata of a dataset that stays; what is not marked and older than the result is garbage.

    ``version``  of the dataset: table metadata of a later one is not its own

    None: nothing is garbage, for example because pyiceberg, which reads manifest lists, is not installed.
    """
    try:
        from kubothek.table.iceberg.objects import manifests_in
    except ModuleNotFoundError:
        return None
    prefix = keys.iceberg_metadata(uuid)
    present = exported_versions(store, uuid)
    if not present:
        return None

    def lists_manifests(key: str) -> list[str]:
        return [_key(prefix, each.manifest_path) for each in manifests_in(key, store.get(key))]

    try:
        last = _last(store, uuid, present, version)
        chain = _young_chain(store, present, last, moment)
        if chain is None:
            return None
        metadata = _read(store, present[chain[-1]].key)
        if not metadata["metadata-log"] and chain[-1] != last:
            return None
        beside = [number for number in present if chain[-1] < number < last and number not in chain]
        snapshots = [*metadata["snapshots"]]
        for number in beside:
            snapshots += _read(store, present[number].key)["snapshots"]
        lists = sorted({_key(prefix, each["manifest-list"]) for each in snapshots})
        manifests = {key for found in each_of(lists_manifests, lists) for key in found}
    except _DAMAGED:
        return None
    later = (number for number in present if number > last)  # a restored backup can have less
    into.add((keys.iceberg_hint(uuid), *lists, *(present[each].key for each in (chain[-1], *beside, *later))))
    into.add(manifests)
    return present[chain[-1]].modified


def _last(store: Store, uuid: str, present: Mapping[int, ObjectInfo], version: int) -> int:
    """Return the version of the last export. Raises ValueError or KeyError if there is none."""
    try:
        return int(store.get(keys.iceberg_hint(uuid)))
    except ObjectNotFound:
        return max(number for number in present if number <= version)


def _young_chain(store: Store, present: Mapping[int, ObjectInfo], last: int, moment: Moment) -> list[int] | None:
    """Return the versions of the chain from the last one to the newest that was replaced before the grace period.

    None if the chain ends before.
    """
    young = []
    for number in _chain(store, present, last):
        young.append(number)
        if not may_be_read(replaced=present[number].modified, now=moment.now, grace=moment.grace):
            return young
    return None


def _chain(store: Store, present: Mapping[int, ObjectInfo], last: int) -> Iterator[int]:
    """Yield the versions of the chain, newest first. Reads one object for each hundred."""
    number = last
    yield number
    while True:
        log = [
            keys.iceberg_version(entry["metadata-file"]) for entry in _read(store, present[number].key)["metadata-log"]
        ]
        former = [each for each in log if each is not None and each in present]
        yield from reversed(former)
        if not former or former[0] >= number:
            return
        number = former[0]


def _read(store: Store, key: str) -> Any:
    return orjson.loads(store.get(key))


def _key(prefix: str, location: str) -> str:
    return f"{prefix}{location.rpartition('/')[2]}"
