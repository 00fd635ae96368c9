"""Markers: the permanent answer to "has this commit happened?", in one object per commit id.

A marker also decides between a commit and a foreign writer that overwrote it before it was marked. The adopter of the
foreign head puts a *void* marker in the place of each missing one. A committer that finds one has not committed,
unless the head still holds its record. Both replace only what they have read, so exactly one of them wins, wherever
either crashes:

* the marker came first: the adopter finds it, and merges the commit again;
* the void came first: the committer finds it before it reports success, and commits again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import orjson

from kubothek.errors import ObjectNotFound, PreconditionFailed, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.checked_types import checked
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.record import Distance, Record, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The stored facts of an applied commit: enough to answer a second run, and to build on it without its record."""

    id: str
    digest: str
    version: int
    record: str
    head_digest: str
    operation: Operation
    time: datetime
    totals: Totals
    added: Totals
    since_checkpoint: Distance

    @classmethod
    def of(cls, record: Record) -> Marker:
        """Return the marker of a record that is known to be committed."""
        return cls(
            id=record.id,
            digest=record.digest,
            version=record.version,
            record=record.key,
            head_digest=record.head_digest,
            operation=record.operation,
            time=record.time,
            totals=record.totals,
            added=record.added,
            since_checkpoint=record.since_checkpoint,
        )

    def render(self, **extra: str) -> bytes:
        """Return the stored form; ``extra`` fields mean nothing, but make the bytes differ."""
        return orjson.dumps(
            {
                "id": self.id,
                "digest": self.digest,
                "version": self.version,
                "record": self.record,
                "head_digest": self.head_digest,
                "operation": self.operation,
                "time": self.time.isoformat(),
                "totals": self.totals.to_json(),
                "counts": self.added.to_json(),
                "since_checkpoint": [self.since_checkpoint.commits, self.since_checkpoint.entries],
                **extra,
            }
        )

    @classmethod
    def parse(cls, key: str, data: bytes) -> Marker | None:
        """Parse the stored form; None for a void marker. Raises VersionIncomplete if the bytes are neither."""
        try:
            found = orjson.loads(data)
            if "void" in found:
                return None
            marker = cls(
                id=found["id"],
                digest=found["digest"],
                version=found["version"],
                record=found["record"],
                head_digest=found["head_digest"],
                operation=Operation(found["operation"]),
                time=datetime.fromisoformat(found["time"]),
                totals=Totals(**found["totals"]),
                added=Totals(**found["counts"]),
                since_checkpoint=Distance(*found["since_checkpoint"]),
            )
            return checked(marker)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise VersionIncomplete(f"{key}: not the marker of a commit: {error!r}") from error


class Markers:
    """The markers of one dataset."""

    def __init__(self, store: Store, uuid: str, rng: random.Random) -> None:
        self._store = store
        self._uuid = uuid
        self._rng = rng

    def get(self, key: str) -> Marker | None:
        """Return the marker at this key; None if there is none, or a void one."""
        return self._read(key)[0]

    def mark(self, marker: Marker, *, epoch: int, still_there: Callable[[], bool]) -> bool:
        """Write the marker of a committed record; False if the head no longer names the record.

        ``epoch``        markers up to this version belong to an earlier incarnation
        ``still_there``  whether the head still names the record; called only if the key has another marker
        """
        key = keys.marker(self._uuid, marker.id)
        data = marker.render()
        try:
            self._store.put_if_absent(key, data)
        except PreconditionFailed:
            pass
        else:
            return True
        while True:
            found, etag = self._read(key)
            if found and found.record == marker.record:
                return True
            outdated = found is not None and found.version <= epoch
            if etag is not None and not outdated and not still_there():
                return False
            if self._swap(key, data, etag):
                return True

    def confirm(self, marker: Marker, *, still_there: Callable[[], bool]) -> None:
        """Write the marker of the record that a foreign head builds on, unless that head is gone.

        Always in new bytes: another writer may be about to replace it for a record that the foreign head overwrote.
        """
        key = keys.marker(self._uuid, marker.id)
        while True:
            etag = self._read(key)[1]
            if not still_there() or self._swap(key, marker.render(confirmed=self._nonce()), etag):
                return

    def decide(self, key: str, *, epoch: int) -> Marker | None:
        """Return the marker at this key; if there is none, write a void one: its commit did not happen.

        Always in new bytes, for the reason given in :meth:`confirm`. ``epoch`` as for :meth:`mark`.
        """
        while True:
            found, etag = self._read(key)
            if found and found.version <= epoch:
                found = None
            if self._swap(key, found.render(confirmed=self._nonce()) if found else self._void(), etag):
                return found

    def revoke(self, key: str) -> None:
        """Void a marker, whatever it says: its commit was lost, and its id may be used again."""
        self._store.put(key, self._void())

    def take_back(self, key: str, record: str) -> None:
        """Void a marker if it still names this record, whose commit was undone: its id may be used again."""
        found, etag = self._read(key)
        if found is not None and found.record == record:
            self._swap(key, self._void(), etag)

    def any_applied(self) -> bool:
        """Return whether any commit of this dataset was ever reported as done."""
        return any(self.get(info.key) for info in self._store.list(keys.markers(self._uuid)))

    def _void(self) -> bytes:
        return orjson.dumps({"void": self._nonce()})

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _read(self, key: str) -> tuple[Marker | None, str | None]:
        try:
            data, info = self._store.get_with_info(key)
        except ObjectNotFound:
            return None, None
        return Marker.parse(key, data), info.etag

    def _swap(self, key: str, data: bytes, etag: str | None) -> bool:
        try:
            if etag is None:
                self._store.put_if_absent(key, data)
            else:
                self._store.put_if_match(key, data, etag)
        except PreconditionFailed:
            return False
        return True
