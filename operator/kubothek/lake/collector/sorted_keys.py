"""Sets of keys that do not fit into memory: sorted runs on disk, merged as they are read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from kubothek.lake.errors import StoreError
from kubothek.lake.store import ObjectInfo

_IN_MEMORY: Final = 100_000
_BATCH: Final = 4096


class SortedKeys:
    """A set of keys that is filled first and then read, any number of times, in the order of store listings.

    ``directory`` takes the runs; ``in_memory`` keys are held at most, and a small batch of each run.
    """

    def __init__(self, directory: Path, in_memory: int = _IN_MEMORY) -> None:
        self._directory = directory
        self._limit = in_memory
        self._held: set[str] = set()
        self._runs: list[Path] = []

    def update(self, keys: Iterable[str]) -> None:
        """Add them."""
        for key in keys:
            self._held.add(key)
            if len(self._held) >= self._limit:
                self._spill()

    def __iter__(self) -> Iterator[str]:
        """Each key once, ascending: Python orders text by code point, which is the order of its UTF-8 bytes."""
        streams = [*map(_read, self._runs), iter(sorted(self._held))]
        return (key for key, _ in groupby(heapq.merge(*streams)))

    def _spill(self) -> None:
        path = self._directory / f"{id(self):x}-{len(self._runs)}.arrow"
        ordered = sorted(self._held)
        schema = pa.schema([("key", pa.string())])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for start in range(0, len(ordered), _BATCH):
                writer.write_batch(pa.record_batch([pa.array(ordered[start : start + _BATCH])], schema=schema))
        self._runs.append(path)
        self._held.clear()


def unreferenced(listing: Iterable[ObjectInfo], references: Iterable[str]) -> Iterator[ObjectInfo]:
    """What of an ascending listing is not among these ascending keys: a merge join, which holds one of each.

    Raises StoreError for a listing that does not ascend: all that is referenced would be taken for garbage.
    """
    ascending = iter(references)
    reference = next(ascending, None)
    last = ""
    for info in listing:
        if info.key <= last:
            raise StoreError(
                f"the store lists {info.key!r} after {last!r}, which is not the order of keys: nothing can be "
                "collected safely"
            )
        last = info.key
        while reference is not None and reference < info.key:
            reference = next(ascending, None)
        if reference != info.key:
            yield info


def _read(path: Path) -> Iterator[str]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from cast("list[str]", batch.column(0).to_pylist())
