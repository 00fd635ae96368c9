"""The versions of a dataset, and which of them readers can request (commit-protocol, "History")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from kubothek.errors import InputError, ObjectNotFound, VersionIncomplete, VersionNotFound
from kubothek.storage import Store
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record, utc
from kubothek.table.log.records import chain, down_to, parallel, records_from

_SHOWN: Final = 5

Version: TypeAlias = int | datetime | str
"""How a version is requested: by number, by a time at which it was current, or by tag.

Text that begins with a digit is a time in ISO 8601; tags begin with a letter."""


@dataclass(frozen=True, slots=True)
class History:
    """The versions below one observed head.

    A version is found by pointers from the nearest version above that is known to be on the chain. Markers tell which
    are: a writer marks a commit before it builds on it, in place of the one that it merged again, if any. Some
    versions on the chain are not found this way, but none that is off it.
    """

    journal: Journal
    seen: Observed

    def records(self) -> Iterator[Record]:
        """Yield all commits of the chain down to the horizon, newest first.

        Includes those of a deleted incarnation below this one: history is not rewritten.
        """
        newest = self.newest()
        if newest is None:
            return
        yield from chain(self.journal, newest, down_to(self.journal.uuid, self.seen.head.horizon))

    def find(self, version: Version) -> Record:
        """Return the commit that made a version. Raises VersionNotFound."""
        if isinstance(version, str):
            return self.as_of(_time_in(version)) if version[:1].isdigit() else self.tagged(version)
        return self.as_of(version) if isinstance(version, datetime) else self.at(version)

    def tagged(self, name: str) -> Record:
        """Return the commit that made the version of this tag. Raises VersionNotFound."""
        tags = self.seen.head.tags
        if name not in tags:
            raise VersionNotFound(
                f"dataset {self.journal.uuid!r} has no tag {name!r}; its tags: {', '.join(sorted(tags)) or 'none'}"
            )
        return self.journal.record(tags[name].record)

    def at(self, version: int) -> Record:
        """Return the commit that made this version. Raises VersionNotFound."""
        for tag in self.seen.head.tags.values():
            if tag.version == version:
                return self.journal.record(tag.record)
        newest = self.newest()
        if newest is None or not self.oldest <= version <= newest.version:
            raise self.no_version(version)
        candidates = records_from(self.journal, version, newest.version)
        start = self._first_on_chain(candidates)
        for record in chain(self.journal, self.journal.record(start) if start else newest):
            if record.version == version:
                return record
            if record.version < version:
                break
        raise self.no_version(version)

    def as_of(self, time: datetime) -> Record:
        """Return the commit that was the newest at this time, by the writers' clocks. Raises VersionNotFound."""
        moment, newest = utc(time), self.newest()
        if newest and newest.time <= moment:
            return newest
        if newest:
            start = self._first_after(list(records_from(self.journal, self.oldest, newest.version)), moment)
            above = self.journal.record(start) if start else newest
            for record in chain(self.journal, above, down_to(self.journal.uuid, self.oldest)):
                if record.time <= moment:
                    return record
        raise VersionNotFound(
            f"dataset {self.journal.uuid!r} has no version as old as {moment.isoformat()}; the oldest that can "
            f"be asked for is {self.oldest}"
        )

    def require_files(self, head: Head, version: int) -> None:
        """Raise VersionIncomplete if a file of an old version is gone. Files of the current head are not checked.

        A foreign writer's garbage collection deletes what the current head does not list.
        """
        current = set(self.seen.head.files().values())
        old = [key for key in head.files().values() if key not in current]
        if missing := missing_files(self.journal, head, old):
            raise VersionIncomplete(
                f"version {version} of {self.journal.uuid!r}: {len(missing)} of its files no longer exist, among them "
                f"{', '.join(missing[:_SHOWN])}; another program's garbage collection deletes what only history "
                "needs"
            )

    def newest(self) -> Record | None:
        """Return the commit that made the head, or that a foreign head builds on."""
        return self.journal.record(self.seen.marker.record) if self.seen.marker else self.seen.base

    @property
    def oldest(self) -> int:
        """The oldest version that readers can request, except tagged ones."""
        return max(self.seen.head.horizon, self.seen.head.epoch + 1)

    def no_version(self, version: int) -> VersionNotFound:
        """Return the error for a number that is no version, or not any longer."""
        if 0 < version < self.oldest:
            return VersionNotFound(
                f"version {version} of {self.journal.uuid!r} has expired; the oldest that is kept is {self.oldest}"
            )
        return VersionNotFound(
            f"dataset {self.journal.uuid!r} has no version {version}; its versions are from {self.oldest} to "
            f"{self.seen.version}, and numbers can be missing"
        )

    def _first_on_chain(self, candidates: Iterable[keys.RecordKey]) -> str | None:
        return next((candidate.key for candidate in candidates if self._marker(candidate)), None)

    def _first_after(self, listed: Sequence[keys.RecordKey], moment: datetime) -> str | None:
        """Return the first that is known to be on the chain and younger; times never fall along it."""
        found = None
        low, high = 0, len(listed)
        while low < high:
            middle = (low + high) // 2
            marked = ((place, marker) for place in range(middle, high) if (marker := self._marker(listed[place])))
            place, marker = next(marked, (middle, None))
            if marker is None:
                high = middle
            elif marker.time > moment:
                found, high = listed[place].key, middle
            else:
                low = place + 1
        return found

    def _marker(self, candidate: keys.RecordKey) -> Marker | None:
        """Return the marker of a record that is known to be on the chain."""
        head = self.seen.head
        if candidate.key in head.overwritten or candidate.key in head.lost:
            return None
        newest = keys.parse_record(self.journal.uuid, head.commit)
        if newest and newest.marker == candidate.marker and newest.key != candidate.key:
            return None  # the head's own commit merged it again, perhaps still without a marker
        marker = self.journal.markers.get(candidate.marker)
        return marker if marker and marker.record == candidate.key else None


def missing_files(journal: Journal, head: Head, wanted: Sequence[str]) -> list[str]:
    """Return those of these data files that do not exist: a request each if they are few, else one listing."""
    return absent(journal.store, keys.data_prefix(journal.uuid, head.table), wanted)


# Which of the objects that something names do not exist.


_STAT_LIMIT: Final = 200


def absent(store: Store, prefix: str, wanted: Iterable[str]) -> list[str]:
    """Return those of these keys that do not exist, in order: a request each if they are few, else a listing.

    ``prefix`` is what is listed. Keys outside of it are safe: a key that the listing lacks gets a request. Memory grows
    with ``wanted``, not with the number of objects.
    """
    left = dict.fromkeys(wanted)
    if len(left) > _STAT_LIMIT:
        for info in store.list(prefix):
            left.pop(info.key, None)
            if not left:
                break
    return [key for key in parallel(lambda key: _absent(store, key), list(left)) if key]


def _absent(store: Store, key: str) -> str | None:
    try:
        store.stat(key)
    except ObjectNotFound:
        return key
    return None


def _time_in(text: str) -> datetime:
    """Return the time of a text. Raises InputError."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"{text!r} is neither a tag, which begins with a letter, nor a time like 2026-11-21T14:00"
        ) from error
