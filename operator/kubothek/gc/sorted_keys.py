"""Sets of keys larger than memory: sorted runs on disk, merged when they are read."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby, islice
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from kubothek.errors import StoreError
from kubothek.storage import ObjectInfo

_IN_MEMORY: Final = 200_000
_BATCH: Final = 1024
_FAN_IN: Final = 16
_RUN: Final = pa.schema({"key": pa.string()})


class SortedKeys:
    """A set of keys that is filled first, then read any number of times, in the order of store listings.

    ``directory`` holds the runs. In memory are at most ``in_memory`` keys, and a small batch of each of a few runs:
    many runs of about the same size are merged into one.
    """

    def __init__(self, directory: Path, in_memory: int = _IN_MEMORY) -> None:
        self._directory = directory
        self._limit = in_memory
        self._held: set[str] = set()
        self._levels: list[list[Path]] = []
        self._names = count()

    def update(self, keys: Iterable[str]) -> None:
        """Add keys."""
        remaining = iter(keys)
        while more := list(islice(remaining, max(1, self._limit - len(self._held)))):
            self._held.update(more)
            if len(self._held) >= self._limit:
                self._keep(0, sorted(self._held))
                self._held.clear()

    def __iter__(self) -> Iterator[str]:
        """Yield each key once, ascending: Python orders text by code point, which is the order of its UTF-8 bytes."""
        return _merged([*(_read(run) for level in self._levels for run in level), iter(sorted(self._held))])

    def _keep(self, level: int, ascending: Iterable[str]) -> None:
        """Write a run of this level; when the level is full, merge its runs into one of the next level."""
        path = self._directory / f"{id(self):x}-{next(self._names)}.arrow"
        _write(path, ascending)
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(path)
        if len(self._levels[level]) >= _FAN_IN:
            full, self._levels[level] = self._levels[level], []
            self._keep(level + 1, _merged([_read(run) for run in full]))
            for run in full:
                run.unlink()


def unreferenced(
    listing: Iterable[ObjectInfo],
    references: Iterable[str],
    after: str = "",
    missed: Callable[[str], None] = lambda key: None,
) -> Iterator[ObjectInfo]:
    """Yield what an ascending listing has beyond these ascending keys, by a merge join with one of each in memory.

    ``missed`` is called with keys that the listing lacks. Raises StoreError for a listing that does not ascend, or does
    not begin after ``after``: referenced objects would pass for garbage.
    """
    ascending = iter(references)
    reference = next(ascending, None)
    last = after
    for info in listing:
        if info.key <= last:
            raise StoreError(
                f"the store lists {info.key!r} after {last!r}, which is not the order of keys: nothing can be "
                "collected safely"
            )
        last = info.key
        while reference is not None and reference < info.key:
            missed(reference)
            reference = next(ascending, None)
        if reference == info.key:
            reference = next(ascending, None)
        else:
            yield info
    while reference is not None:
        missed(reference)
        reference = next(ascending, None)


def _merged(streams: Sequence[Iterator[str]]) -> Iterator[str]:
    return (key for key, _ in groupby(heapq.merge(*streams)))


def _write(path: Path, ascending: Iterable[str]) -> None:
    remaining = iter(ascending)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, _RUN) as writer:
        while batch := list(islice(remaining, _BATCH)):
            writer.write_batch(pa.record_batch([pa.array(batch, pa.string())], schema=_RUN))


def _read(path: Path) -> Iterator[str]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from cast("list[str]", batch.column(0).to_pylist())
