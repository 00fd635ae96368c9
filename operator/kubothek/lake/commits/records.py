"""Reading many records at once: chains are pointers, and a request per pointer would be slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from kubothek.lake.commits import keys
from kubothek.lake.commits.journal import Journal
from kubothek.lake.commits.record import Record

_THREADS: Final = 16
_FIRST_WINDOW: Final = 16
_LARGEST_WINDOW: Final = 1024

T = TypeVar("T")
R = TypeVar("R")


def parallel(act: Callable[[T], R], items: list[T]) -> list[R]:
    """``act`` on each item, in order, many at a time: for requests that wait for a store."""
    if len(items) < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        return list(pool.map(act, items))


def chain(
    journal: Journal, start: Record, link: Callable[[Record], str | None] = lambda record: record.parent
) -> Iterator[Record]:
    """The record and what it links to, newest first; fetched in windows that grow, some read ahead in vain.

    Raises VersionIncomplete at a record that is gone.
    """
    ahead: dict[str, Record] = {}
    window = _FIRST_WINDOW
    record = start
    while True:
        yield record
        if (key := link(record)) is None:
            return
        if key not in ahead:
            ahead = _window(journal, key, window)
            window = min(2 * window, _LARGEST_WINDOW)
        record = ahead.pop(key) if key in ahead else journal.record(key)


def records_from(journal: Journal, version: int, to: int | None = None) -> Iterator[keys.RecordKey]:
    """All records, committed or not, of this version and later ones, in order of version; listed lazily."""
    for info in journal.store.list(keys.records(journal.uuid), keys.records_of(journal.uuid, version)):
        record = keys.parse_record(journal.uuid, info.key)
        if record is None:
            continue
        if to is not None and record.version > to:
            return
        yield record


def _window(journal: Journal, key: str, size: int) -> dict[str, Record]:
    newest = keys.parse_record(journal.uuid, key)
    if newest is None or newest.version <= 1:
        return {}
    by_version = defaultdict(list)
    for found in records_from(journal, max(0, newest.version - size), newest.version):
        by_version[found.version].append(found.key)
    # Where several attempts were made at a version, only the pointer tells which one to read.
    wanted = [attempts[0] for attempts in by_version.values() if len(attempts) == 1]
    return {record.key: record for record in parallel(journal.record, wanted)}
