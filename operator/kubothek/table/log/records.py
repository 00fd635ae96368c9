"""Read many records at once: a chain is linked by pointers, and one request after another would be slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from kubothek.errors import ObjectNotFound, VersionIncomplete
from kubothek.storage.base import ObjectInfo
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import keys
from kubothek.table.log.model.record import Record, parse_all

_THREADS: Final = 16
_FIRST_WINDOW: Final = 16
_LARGEST_WINDOW: Final = 1024

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stored:
    """A record, and the time of its write by the store's clock."""

    record: Record
    written: datetime


def parallel(act: Callable[[T], R], items: list[T], threads: int = _THREADS) -> list[R]:
    """Return ``act`` of each item, in order, run in threads: for requests that wait for a store."""
    if (threads := min(threads, len(items))) < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(act, items))


def chain(
    journal: Journal,
    start: Record,
    link: Callable[[Record], str | None] = lambda record: record.parent,
    *,
    window: int = _FIRST_WINDOW,
) -> Iterator[Record]:
    """Yield the record and what it links to, newest first. Reads ahead in growing windows, some of it in vain.

    ``window``  number of records of the first window

    Raises VersionIncomplete at a record that is gone.
    """
    yield start
    if (key := link(start)) is not None:
        for found in stored_chain(journal, key, link, window=window):
            yield found.record


def stored_chain(
    journal: Journal,
    key: str,
    link: Callable[[Record], str | None] = lambda record: record.parent,
    *,
    window: int = _FIRST_WINDOW,
) -> Iterator[Stored]:
    """Yield as :func:`chain` does, starting at the record of this key, with the time of each write."""
    ahead: dict[str, Stored] = {}
    window = min(window, _LARGEST_WINDOW)
    following: str | None = key
    while following is not None:
        if following not in ahead:
            ahead = _window(journal, following, window)
            window = min(2 * window, _LARGEST_WINDOW)
        found = ahead.pop(following, None) or stored(journal, following)
        yield found
        following = link(found.record)


def stored(journal: Journal, key: str) -> Stored:
    """Return one record. Raises VersionIncomplete if it is gone or is not a record."""
    try:
        data, info = journal.store.get_with_info(key)
    except ObjectNotFound as error:
        raise VersionIncomplete(f"{key}: the record no longer exists; restore it from a backup") from error
    return Stored(Record.parse(key, data), info.modified)


def down_to(uuid: str, version: int) -> Callable[[Record], str | None]:
    """Return a link to the parent that ends at ``version``: records of expired versions may be gone."""

    def link(record: Record) -> str | None:
        parent = keys.parse_record(uuid, record.parent)
        return parent.key if parent is not None and parent.version >= version else None

    return link


def records_from(journal: Journal, version: int, to: int | None = None) -> Iterator[keys.RecordKey]:
    """Yield all records of this and later versions, committed or not, in order of version; listed lazily."""
    for info in journal.store.list(keys.records(journal.uuid), keys.records_of(journal.uuid, version)):
        record = keys.parse_record(journal.uuid, info.key)
        if record is None:
            continue
        if to is not None and record.version > to:
            return
        yield record


def _window(journal: Journal, key: str, size: int) -> dict[str, Stored]:
    newest = keys.parse_record(journal.uuid, key)
    if newest is None or newest.version <= 1:
        return {}
    by_version = defaultdict(list)
    for found in records_from(journal, max(0, newest.version - size), newest.version):
        by_version[found.version].append(found.key)
    # Of several attempts at a version, only the pointer of the version above tells which one to read.
    wanted = [attempts[0] for attempts in by_version.values() if len(attempts) == 1]

    def read_ahead(key: str) -> tuple[bytes, ObjectInfo] | None:
        try:
            return journal.store.get_with_info(key)
        except ObjectNotFound:
            return None  # it may not be needed: a collector deletes what is below the horizon

    found_ahead = parallel(read_ahead, wanted, journal.store.reads_at_once)
    read = {key: found for key, found in zip(wanted, found_ahead, strict=True) if found is not None}
    records = parse_all({key: data for key, (data, _) in read.items()})
    return {key: Stored(record, read[key][1].modified) for key, record in records.items()}
