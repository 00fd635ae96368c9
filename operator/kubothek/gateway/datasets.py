"""Cache of the chain heads of a catalogue's datasets."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from kubothek.errors import DatasetDeleted, DatasetNotFound, InputError, LakeError, ObjectNotFound, OwnedByAnother
from kubothek.gateway.catalogue import Catalogue, Place
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept, by_store
from kubothek.table.log import Claim, DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.log.multi.spec import SEPARATOR

_REMEMBERED: Final = 10_000
_SECONDS: Final = 1.0
"""For this time, objects of a dataset are served without another check that the dataset exists."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """A ledger with its current head."""

    name: str
    head: Multihash
    place: Place

    @property
    def store(self) -> Store:
        """The store of its objects."""
        return self.place.store

    @property
    def layout(self) -> Layout:
        """The layout of its chain."""
        return self.place.layout


@dataclass(frozen=True, slots=True)
class _Seen:
    etag: str
    at: float
    head: Multihash | None


@dataclass(frozen=True, slots=True)
class Writable:
    """A dataset that the gateway may change; picklable, for a worker."""

    store: Store
    uuid: str
    claim: Claim | None
    conditional_writes: bool

    def log(self) -> DatasetLog:
        """Return the dataset's log, under its claim."""
        return DatasetLog(
            self.store,
            self.uuid,
            claim=self.claim,
            unowned_only=self.claim is None,
            conditional_writes=self.conditional_writes,
        )


class Datasets:
    """Datasets and their heads. Methods block on I/O, so call them from threads; they are thread-safe."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._seen: Kept[Place, _Seen] = Kept(_REMEMBERED)

    def find(self, name: str, *, fresh: bool) -> Exposed:
        """Return the dataset; ``fresh``: bypass the cache. Raises DatasetNotFound, also if it is not a ledger."""
        place = self.catalogue.place(name)
        known = self._seen.recall(place)
        seen = known[0] if known else None
        now = time.monotonic()
        if seen is None or fresh or now - seen.at > _SECONDS:
            seen = _read(place, seen, now)
            self._seen.keep(place, seen, 1)
        if seen.head is None:
            raise DatasetNotFound(f"there is no ledger {name!r}")
        return Exposed(name, seen.head, place)

    def recent(self, name: str) -> Exposed | None:
        """Return the dataset from the cache, without I/O; None if it is absent or stale. Raises as :meth:`find`."""
        place = self.catalogue.place(name)
        known = self._seen.recall(place)
        if known is None or known[0].head is None or time.monotonic() - known[0].at > _SECONDS:
            return None
        return Exposed(name, known[0].head, place)

    def writable(self, name: str) -> Writable:
        """Return the dataset for a change. If a Dataset resource owns it, only that resource's gateway and jobs may.

        Raises DatasetNotFound, OwnedByAnother.
        """
        place = self.catalogue.place(name)
        if SEPARATOR in place.uuid:
            raise OwnedByAnother(f"{place.uuid!r} belongs to a cube: only changes of the cube write it")
        conditional = _conditional_writes(place.store)
        if place.claim is not None and not conditional:
            raise OwnedByAnother(f"{place.store.url} has no conditional writes: only jobs may write {name!r}")
        return Writable(place.store, place.uuid, place.claim, conditional)

    def names(self) -> list[str]:
        """Return the sorted names of all ledgers; read each head that is not in the cache."""
        found = []
        for name in self.catalogue.names():
            try:
                found.append(self.find(name, fresh=False).name)
            except LakeError:
                continue
        return found


def _read(place: Place, before: _Seen | None, now: float) -> _Seen:
    try:
        etag = place.store.stat(keys.head(place.uuid)).etag
    except ObjectNotFound:
        return _Seen("", now, None)
    if before is not None and before.etag == etag:
        return _Seen(etag, now, before.head)
    try:
        chain = DatasetLog(place.store, place.uuid).snapshot(raw=True).head.chain
    except (DatasetNotFound, DatasetDeleted, InputError):
        return _Seen(etag, now, None)
    return _Seen(etag, now, None if chain is None else Multihash.parse(chain.head))


@by_store
def _conditional_writes(store: Store) -> bool:
    return store.probe().conditional_writes
