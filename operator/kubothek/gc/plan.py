"""What is to be deleted: listed in the store, in parts that one task deletes each, and counted by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.gc.areas import Kind, Turn, turn
from kubothek.storage import ObjectInfo, Store
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.table.log.model import keys

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string()),
    pa.field("kind", pa.string()),
    pa.field("bytes", pa.int64()),
    pa.field("modified", pa.timestamp("us", "UTC")),
]
OBJECTS: Final = pa.schema(_FIELDS)
"""A row of a plan."""
PART_OBJECTS: Final = 20_000
"""What one part lists at most, and what is in memory of each turn while objects are looked for."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many objects of so many bytes."""

    objects: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Count:
        """With one more object."""
        return Count(self.objects + 1, self.bytes + size)

    def __add__(self, other: Count) -> Count:
        return Count(self.objects + other.objects, self.bytes + other.bytes)


NO_OBJECTS: Final = Count()

Counts = Mapping[Kind, Count]


def added(counts: Iterable[Counts]) -> dict[Kind, Count]:
    """The sums."""
    sums: dict[Kind, Count] = defaultdict(Count)
    for each in counts:
        for kind, count in each.items():
            sums[kind] += count
    return dict(sums)


@dataclass(frozen=True, slots=True)
class Part:
    """One object of the plan: its key, and when what it lists goes."""

    key: str
    turn: Turn


@dataclass(frozen=True, slots=True)
class Found:
    """Garbage that was found, which ``parts`` list, and objects that cannot be attributed to the dataset.

    ``young``    unreferenced objects within the grace period
    ``missing``  data files that stay, and are not there
    """

    counts: Counts = field(default_factory=dict)
    unknown: Count = NO_OBJECTS
    parts: tuple[Part, ...] = ()
    young: Count = NO_OBJECTS
    missing: int = 0

    @classmethod
    def joined(cls, found: Iterable[Self]) -> Self:
        """What several tasks found."""
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
        """How many there are to delete."""
        return sum(count.objects for count in self.counts.values())


@dataclass(frozen=True, slots=True)
class Doomed:
    """One object that is to be deleted."""

    key: str
    kind: Kind
    size: int
    modified: datetime


class Spool:
    """Takes objects in, and puts each part of them into the store as soon as it is full.

    Parts are named ``<plan>-<turn>-<new id>.parquet``: an attempt of a task that is tried again leaves its own behind.
    """

    def __init__(self, store: Store, plan: str) -> None:
        self._store = store
        self._plan = plan
        self._held: dict[Turn, list[tuple[ObjectInfo, Kind]]] = {each: [] for each in Turn}
        self._counts: dict[Kind, Count] = defaultdict(Count)
        self._unknown = NO_OBJECTS
        self._parts: list[Part] = []

    def add(self, info: ObjectInfo, kind: Kind) -> None:
        """One object that is to go."""
        when = turn(kind, info.key)
        self._held[when].append((info, kind))
        self._counts[kind] = self._counts[kind].plus(info.size)
        if len(self._held[when]) >= PART_OBJECTS:
            self._put(when)

    def leave(self, info: ObjectInfo) -> None:
        """One object that is unknown."""
        self._unknown = self._unknown.plus(info.size)

    def finish(self) -> Found:
        """Put what is left; all that was found."""
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
    """What a part lists, so many at a time. Raises InvalidKey if it lists an object of anything but this dataset."""
    with pq.ParquetFile(pa.BufferReader(store.get(part.key))) as file:
        for rows in file.iter_batches(batch, columns=["key", "kind", "bytes", "modified"]):
            check_foreign_keys(rows.column("key").to_pylist(), keys.dataset(uuid), keys.side(uuid))
            columns = (rows.column(name).to_pylist() for name in ("key", "kind", "bytes", "modified"))
            yield [Doomed(key, Kind(kind), size, modified) for key, kind, size, modified in zip(*columns, strict=True)]


def to_json(counts: Counts) -> dict[str, dict[str, int]]:
    """As it stands in plans."""
    return {str(kind): {"objects": count.objects, "bytes": count.bytes} for kind, count in sorted(counts.items())}
