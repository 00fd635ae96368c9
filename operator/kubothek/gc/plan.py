"""The plan of a collection: what to delete, listed in the store in parts for one task each, and counted by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import ObjectNotFound
from kubothek.gc.areas import Kind, Turn, turn
from kubothek.storage import ObjectInfo, Store
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.table.log import DatasetLog, StoreSettings, read_settings
from kubothek.table.log.model import keys
from kubothek.table.log.records import parallel

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string()),
    pa.field("kind", pa.string()),
    pa.field("bytes", pa.int64()),
    pa.field("modified", pa.timestamp("us", "UTC")),
]
OBJECTS: Final = pa.schema(_FIELDS)
"""A row of a plan."""
PART_OBJECTS: Final = 20_000
"""Maximum number of objects in one part, and in memory for each turn during the search."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of objects, and their bytes."""

    objects: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Count:
        """Return the count with one more object."""
        return Count(self.objects + 1, self.bytes + size)

    def __add__(self, other: Count) -> Count:
        return Count(self.objects + other.objects, self.bytes + other.bytes)


NO_OBJECTS: Final = Count()

Counts = Mapping[Kind, Count]


def added(counts: Iterable[Counts]) -> dict[Kind, Count]:
    """Return the sums."""
    sums: dict[Kind, Count] = defaultdict(Count)
    for each in counts:
        for kind, count in each.items():
            sums[kind] += count
    return dict(sums)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the plan: its key, and the turn of the objects that it lists."""

    key: str
    turn: Turn


@dataclass(frozen=True, slots=True)
class Found:
    """The garbage that ``parts`` list, and objects that cannot be attributed to the dataset.

    ``young``    unreferenced objects within the grace period
    ``missing``  referenced data files that do not exist
    """

    counts: Counts = field(default_factory=dict)
    unknown: Count = NO_OBJECTS
    parts: tuple[Part, ...] = ()
    young: Count = NO_OBJECTS
    missing: int = 0

    @classmethod
    def joined(cls, found: Iterable[Self]) -> Self:
        """Return the joined result of several tasks."""
        all_found = [*found]
        return cls(
            added(each.counts for each in all_found),
            sum((each.unknown for each in all_found), NO_OBJECTS),
            tuple(part for each in all_found for part in each.parts),
            sum((each.young for each in all_found), NO_OBJECTS),
            sum(each.missing for each in all_found),
        )

    @property
    def objects(self) -> int:
        """The number of objects to delete."""
        return sum(count.objects for count in self.counts.values())


@dataclass(frozen=True, slots=True)
class Doomed:
    """One object to delete."""

    key: str
    kind: Kind
    size: int
    modified: datetime


class Spool:
    """Collects objects, and stores each part of the plan as soon as it is full.

    Parts are named ``<plan>-<turn>-<new id>.parquet``: a retried task leaves the parts of its first attempt behind.
    """

    def __init__(self, store: Store, plan: str) -> None:
        self._store = store
        self._plan = plan
        self._held: dict[Turn, list[tuple[ObjectInfo, Kind]]] = {each: [] for each in Turn}
        self._counts: dict[Kind, Count] = defaultdict(Count)
        self._unknown = NO_OBJECTS
        self._parts: list[Part] = []

    def add(self, info: ObjectInfo, kind: Kind) -> None:
        """Add an object to delete."""
        when = turn(kind, info.key)
        self._held[when].append((info, kind))
        self._counts[kind] = self._counts[kind].plus(info.size)
        if len(self._held[when]) >= PART_OBJECTS:
            self._put(when)

    def leave(self, info: ObjectInfo) -> None:
        """Count an unknown object."""
        self._unknown = self._unknown.plus(info.size)

    def finish(self) -> Found:
        """Store what is left; return all that was found."""
        for when in Turn:
            if self._held[when]:
                self._put(when)
        return Found(dict(self._counts), self._unknown, tuple(self._parts))

    def _put(self, when: Turn) -> None:
        held, self._held[when] = self._held[when], []
        columns: dict[str, list[Any]] = {
            "key": [info.key for info, _ in held],
            "kind": [str(kind) for _, kind in held],
            "bytes": [info.size for info, _ in held],
            "modified": [info.modified for info, _ in held],
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=OBJECTS), sink, compression="zstd")
        part = Part(f"{self._plan}-{when + 1}-{uuid4().hex}.parquet", when)
        self._store.put(part.key, memoryview(sink.getvalue()))
        self._parts.append(part)


def objects_of(store: Store, uuid: str, part: Part, batch: int) -> Iterator[list[Doomed]]:
    """Yield the objects of a part in batches. Raises InvalidKey if it lists an object outside of this dataset."""
    with pq.ParquetFile(pa.BufferReader(store.get(part.key))) as file:
        for rows in file.iter_batches(batch, columns=["key", "kind", "bytes", "modified"]):
            check_foreign_keys(rows.column("key").to_pylist(), keys.dataset(uuid), keys.side(uuid))
            columns = (rows.column(name).to_pylist() for name in ("key", "kind", "bytes", "modified"))
            yield [Doomed(key, Kind(kind), size, modified) for key, kind, size, modified in zip(*columns, strict=True)]


def to_json(counts: Counts) -> dict[str, dict[str, int]]:
    """Return the form in plans."""
    return {str(kind): {"objects": count.objects, "bytes": count.bytes} for kind, count in sorted(counts.items())}


# Deletion of what a plan lists, while the plan holds.


BATCH: Final = 4000
"""Keys between two reads of the head: as many as the store deletes in one batch."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What of a part was deleted; ``moved``: the plan no longer held, and the rest was not deleted."""

    deleted: Counts
    moved: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """Deletes what a part lists; plain data, which can be sent to other machines.

    ``etag``      of the head on which the plan holds; it also holds on later heads of ours
    ``final``     whether the head must not change: a tombstone's age decides whether a deletion can be undone
    ``settings``  of the store: a longer grace period protects objects that the plan counts as old
    ``spared``    keys that the plan lists, but that must stay
    """

    uuid: str
    etag: str
    final: bool
    settings: StoreSettings
    spared: frozenset[str]

    def __call__(self, store: Store, part: Part) -> Swept:
        """Delete the objects of a part; check before each batch whether the plan still holds."""
        deleted: dict[Kind, Count] = defaultdict(Count)
        etag = self.etag
        for batch in objects_of(store, self.uuid, part, BATCH):
            seen = self._current_etag(store, etag)
            if seen is None:
                return Swept(dict(deleted), moved=True)
            etag = seen
            doomed = [each for each in batch if each.key not in self.spared]
            if not self.final:
                doomed = self._without_rewritten(store, doomed)
            store.delete([each.key for each in doomed])
            for each in doomed:
                deleted[each.kind] = deleted[each.kind].plus(each.size)
        return Swept(dict(deleted), moved=False)

    def _without_rewritten(self, store: Store, doomed: list[Doomed]) -> list[Doomed]:
        """Remove objects that were written again: they are named by content, so the key is the same."""
        named = [each for each in doomed if each.kind in (Kind.CHAIN, Kind.ICEBERG)]

        def is_rewritten(each: Doomed) -> bool:
            try:
                return store.stat(each.key).modified > each.modified
            except ObjectNotFound:
                return False

        rewritten = {each.key for each, is_new in zip(named, parallel(is_rewritten, named), strict=True) if is_new}
        return [each for each in doomed if each.key not in rewritten]

    def _current_etag(self, store: Store, etag: str) -> str | None:
        """Return the head's ETag; None if the plan no longer holds: a foreign head may build on unknown objects."""
        try:
            if store.get_if_changed(keys.head(self.uuid), etag) is not None:
                seen = None if self.final else DatasetLog(store, self.uuid).journal.observe()
                if seen is None or seen.marker is None or seen.etag is None:
                    return None
                etag = seen.etag
        except ObjectNotFound:
            return None
        return etag if read_settings(store) == self.settings else None
