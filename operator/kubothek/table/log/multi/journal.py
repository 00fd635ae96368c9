"""The protocol's steps on the head of a cube: read, swap, mark, walk its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from typing import Final

import orjson

from kubothek.errors import IdReused, ObjectNotFound, PreconditionFailed, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import keys
from kubothek.table.log.model.record import utc
from kubothek.table.log.model.swap import HeadSwap
from kubothek.table.log.multi.head import CubeHead, CubeRecord, head_key, own
from kubothek.table.log.multi.spec import check_prefix
from kubothek.table.log.records import parallel

_FIRST_WINDOW: Final = 8
_LARGEST_WINDOW: Final = 1024

Open = Callable[[str], Journal]
"""Returns the journal of a dataset by its uuid."""


@dataclass(frozen=True, slots=True)
class SeenCube:
    """The head of a cube as it was read; ``etag`` None: there is none yet."""

    head: CubeHead
    etag: str | None


class CubeJournal:
    """One cube's head, records and markers, and the cached journals of its members."""

    def __init__(self, store: Store, prefix: str, open_member: Open) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        self._side = own(prefix)
        self._open = open_member
        self._members: dict[str, Journal] = {}
        self._known: tuple[str, SeenCube] | None = None
        self._marked: str | None = None
        self._swap = HeadSwap(store, head_key(prefix))
        self._put: CubeRecord | None = None

    @cached_property
    def _own(self) -> Journal:
        """A journal, for its clock and random numbers."""
        return self._open(f"{self.prefix}++x")

    def member(self, name: str) -> Journal:
        """Return the journal of the member of this name."""
        if name not in self._members:
            self._members[name] = self._open(f"{self.prefix}++{name}")
        return self._members[name]

    def now(self) -> datetime:
        """Return the time by the local clock."""
        return utc(self._own.clock())

    def nonce(self) -> str:
        """Return random digits that make a name unique."""
        return f"{self._own.rng.getrandbits(48):012x}"

    def own_id(self, what: str) -> str:
        """Return a new id for a commit that Kubothek makes without a request."""
        return self._own.own_id(what)

    def observe(self) -> SeenCube | None:
        """Return the head; None if there is none. One request. Raises HeadUnreadable."""
        key, known = head_key(self.prefix), self._known
        try:
            found = self.store.get_if_changed(key, known[0]) if known else self.store.get_with_info(key)
        except ObjectNotFound:
            return None
        if found is None:
            assert known, "nothing else can be unchanged"
            return known[1]
        data, info = found
        return self._remember(SeenCube(CubeHead.parse(self.prefix, data), info.etag))

    def swap(self, head: CubeHead, on: SeenCube | None) -> SeenCube | None:
        """Replace the head that was read. None if the swap failed, or its answer was lost: read the head again."""
        etag = self._swap.compare_and_swap(head.render(), None if on is None else on.etag)
        return None if etag is None else self._remember(SeenCube(head, etag))

    def put_record(self, record: CubeRecord) -> None:
        """Store a record under its key, which must be new."""
        self.store.put(record.key, record.render())
        self._put = record

    def new_key(self, version: int, commit_id: str) -> str:
        """Return a new key for the record of this version."""
        return keys.record(self._side, version, commit_id, self.nonce())

    def record(self, key: str) -> CubeRecord:
        """Return the record at this key. Raises VersionIncomplete if it is gone."""
        return self._put if self._put is not None and self._put.key == key else self._stored(key)[0]

    def records(self, head: CubeHead) -> Iterator[CubeRecord]:
        """Return the records of this version and of those below, newest first, read lazily."""
        return (record for record, _ in self.stored(head))

    def stored(self, head: CubeHead) -> Iterator[tuple[CubeRecord, datetime]]:
        """Yield the same, with the time of each write by the store's clock; some are read ahead in vain."""
        key, window = head.record, _FIRST_WINDOW
        ahead: dict[str, tuple[CubeRecord, datetime]] = {}
        while key is not None:
            if key not in ahead:
                ahead = self._ahead(key, window)
                window = min(2 * window, _LARGEST_WINDOW)
            found = ahead.pop(key, None) or self._stored(key)
            yield found
            key = found[0].parent

    def _ahead(self, key: str, window: int) -> dict[str, tuple[CubeRecord, datetime]]:
        """Return records of this version and of some below it by key, with all attempts at a version."""
        last = keys.parse_record(self._side, key)
        if last is None or last.version <= 1:
            return {}
        start = keys.records_of(self._side, max(0, last.version - window))
        end = keys.records_of(self._side, last.version + 1)
        listed = (info.key for info in self.store.list(keys.records(self._side), start))
        wanted = list(takewhile(lambda each: each < end, listed))
        found = parallel(self._stored, wanted, self.store.reads_at_once)
        return {record.key: (record, written) for record, written in found}

    def _stored(self, key: str) -> tuple[CubeRecord, datetime]:
        try:
            data, info = self.store.get_with_info(key)
        except ObjectNotFound as error:
            raise VersionIncomplete(
                f"{key}: the record of a version no longer exists; restore it from a backup"
            ) from error
        return CubeRecord.parse(key, data), info.modified

    def applied(self, commit_id: str, digest: str, head: CubeHead | None) -> CubeRecord | None:
        """Return the record of this commit if it was applied in this incarnation. The commit that ended a cube
        counts until a new cube begins. Raises IdReused if the id was another commit's.
        """
        try:
            found = orjson.loads(self.store.get(keys.marker(self._side, commit_id)))
        except ObjectNotFound:
            return None
        if head is not None and found["version"] <= (head.since if head.members else head.since - 1):
            return None
        record = self.record(found["record"])
        if record.id != commit_id or record.digest != digest:
            raise IdReused(
                f"commit id {commit_id!r} of cube {self.prefix!r} was used for another change (version "
                f"{record.version}, {record.time.isoformat()}); give this one an id of its own"
            )
        return record

    def mark(self, seen: SeenCube) -> None:
        """Write the marker of the head's commit: before anything is built on it, and before success is reported.

        Kubothek's own ids need no marker: they are never used for a second run.
        """
        key = seen.head.record
        if key is None or key == self._marked:
            return
        record = self.record(key)
        if not record.id.startswith(keys.OWN_ID_PREFIX):
            marker = keys.marker(self._side, record.id)
            data = orjson.dumps({"version": record.version, "record": record.key})
            try:
                self.store.put_if_absent(marker, data)
            except PreconditionFailed:
                if orjson.loads(self.store.get(marker))["version"] <= seen.head.since:
                    self.store.put(marker, data)
        self._marked = key

    def _remember(self, seen: SeenCube) -> SeenCube:
        if seen.etag is not None:
            self._known = seen.etag, seen
        return seen
