"""What is to be deleted, spooled to disk in the order in which it goes, and reported by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.lake.collector.areas import Kind, Turn, turn
from kubothek.lake.store import ObjectInfo, Store

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string()),
    pa.field("kind", pa.string()),
    pa.field("bytes", pa.int64()),
    pa.field("modified", pa.timestamp("us", "UTC")),
]
OBJECTS: Final = pa.schema(_FIELDS)
"""A row of a plan."""
_GROUP_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Count:
    """So many objects of so many bytes."""

    objects: int = 0
    bytes: int = 0

    def plus(self, size: int) -> Count:
        """With one more object."""
        return Count(self.objects + 1, self.bytes + size)


NO_OBJECTS: Final = Count()


@dataclass(frozen=True, slots=True)
class Doomed:
    """One object that is to be deleted."""

    key: str
    kind: Kind
    size: int


class Spool:
    """Holds objects by the turn in which they go; a context manager while it is filled."""

    def __init__(self, directory: Path) -> None:
        self._paths = [directory / f"{each}.parquet" for each in Turn]
        self._held: list[list[tuple[ObjectInfo, Kind]]] = [[] for _ in Turn]
        self.counts: dict[Kind, Count] = defaultdict(Count)

    def __enter__(self) -> Self:
        self._writers = [pq.ParquetWriter(path, OBJECTS, compression="zstd") for path in self._paths]
        return self

    def __exit__(self, *_: object) -> None:
        for held, writer in zip(self._held, self._writers, strict=True):
            self._write(held, writer)
            writer.close()

    def add(self, info: ObjectInfo, kind: Kind) -> None:
        """One object that is to go."""
        part = turn(kind, info.key)
        self._held[part].append((info, kind))
        self.counts[kind] = self.counts[kind].plus(info.size)
        if len(self._held[part]) >= _GROUP_ROWS:
            self._write(self._held[part], self._writers[part])

    @property
    def objects(self) -> int:
        """How many there are."""
        return sum(count.objects for count in self.counts.values())

    def upload(self, store: Store, prefix: str) -> None:
        """Put the plan into the store: ``<prefix>-1.parquet`` goes first, then ``-2``, then ``-3``."""
        for number, path in enumerate(self._paths, 1):
            with path.open("rb") as file:
                store.upload(f"{prefix}-{number}.parquet", file)

    def batches(self, size: int) -> Iterator[list[Doomed]]:
        """All of them, in the order in which they go; once all are added."""
        for path in self._paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(size, columns=["key", "kind", "bytes"]):
                    columns = (batch.column(name).to_pylist() for name in ("key", "kind", "bytes"))
                    yield [Doomed(key, Kind(kind), size) for key, kind, size in zip(*columns, strict=True)]

    @staticmethod
    def _write(held: list[tuple[ObjectInfo, Kind]], writer: pq.ParquetWriter) -> None:
        if held:
            columns: dict[str, list[Any]] = {
                "key": [info.key for info, _ in held],
                "kind": [str(kind) for _, kind in held],
                "bytes": [info.size for info, _ in held],
                "modified": [info.modified for info, _ in held],
            }
            writer.write_table(pa.table(columns, schema=OBJECTS))
            held.clear()


def to_json(counts: Mapping[Kind, Count]) -> dict[str, dict[str, int]]:
    """As it stands in plans."""
    return {str(kind): {"objects": count.objects, "bytes": count.bytes} for kind, count in sorted(counts.items())}
