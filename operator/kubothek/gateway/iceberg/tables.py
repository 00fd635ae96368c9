"""The current Iceberg metadata of datasets: of the current head if it can be exported, else of the last export."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import orjson

from kubothek.errors import (
    AccessDenied,
    DatasetDeleted,
    DatasetNotFound,
    InputError,
    LakeError,
    ObjectNotFound,
    StoreUnavailable,
    VersionIncomplete,
)
from kubothek.gateway.catalogue import Place
from kubothek.gateway.limits import Limits
from kubothek.gateway.workers import Workers, to_its_end
from kubothek.sandbox import limited
from kubothek.sandbox.limited import Ask, Cause
from kubothek.sandboxed_sql import expect
from kubothek.sql.query import memory_bytes
from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg.locations import Locations
from kubothek.table.log import DatasetLog
from kubothek.table.log.exports import exported_version
from kubothek.table.log.model import keys

_KEPT_BYTES: Final = 64 << 20
_REMEMBERED: Final = 10_000
_RECENT_SECONDS: Final = 60.0
"""For this time after a denied write, or after limits ended an export, the gateway does not try again."""
_ABSENT: Final = (DatasetNotFound, DatasetDeleted)
_IMPOSSIBLE: Final = (*_ABSENT, InputError, VersionIncomplete)
"""What an export of a head raises, until another head follows."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The Iceberg metadata of a dataset.

    ``location``  of the metadata, absolute
    ``etag``      of its object in the store
    ``data``      ``metadata.json``
    ``digest``    hash of ``data``
    """

    location: str
    etag: str
    data: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class _Current:
    """``head``: of :func:`_head`, that the metadata shows, or a former one; ``since``: when its export began."""

    head: str
    since: float
    metadata: TableMetadata


class _StoppedError(InputError):
    """An export exceeded the limits of a worker; it can succeed under less load."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed export of a head; ``at``: when it failed."""

    head: str
    reason: LakeError
    at: float = field(default_factory=lambda: time.monotonic())

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.at < _RECENT_SECONDS


class Tables:
    """The tables of a gateway. An export runs in a worker process, one at a time for each dataset."""

    def __init__(self, limits: Limits, workers: Workers) -> None:
        self._limits = limits
        self._workers = workers
        self._current: Kept[Place, _Current] = Kept(_KEPT_BYTES)
        self._failures: Kept[Place, _Failure] = Kept(_REMEMBERED)
        self._denials: WeakKeyDictionary[Store, _Failure] = WeakKeyDictionary()
        self._existing: Kept[Place, str] = Kept(_REMEMBERED)
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def load(self, name: str, place: Place, client: str) -> TableMetadata:
        """Return the metadata of the current version, after its export unless that has been done.

        If the gateway may not write, or the version cannot be exported, this is the last export. Raises DatasetNotFound
        if there is none, DatasetDeleted, the errors of :meth:`Workers.place`, StoreError.
        """
        asked = time.monotonic()
        known = self._known(place)
        head, is_unchanged = await asyncio.to_thread(_observe, place, known)
        if known is not None and is_unchanged:
            return known.metadata
        if (reason := self._obstacle(place, head)) is not None:
            return await asyncio.to_thread(self._last, name, place, head, reason)
        lock = self._locks.setdefault(place, asyncio.Lock())
        async with lock:
            if (known := self._known(place)) is not None and known.since > asked:
                return known.metadata  # of an export that began after this request
            since, head = time.monotonic(), await asyncio.to_thread(_head, place)
            if (reason := self._obstacle(place, head)) is not None:  # found while this request waited
                return await asyncio.to_thread(self._last, name, place, head, reason)
            try:
                async with self._workers.place(client):
                    metadata = await to_its_end(partial(self._export, name, place))
            except AccessDenied as error:
                self._denials[place.store] = _Failure("", error)
                return await asyncio.to_thread(self._last, name, place, head, error)
            except _IMPOSSIBLE as error:
                self._failures.keep(place, _Failure(head, error), 1)
                return await asyncio.to_thread(self._last, name, place, head, error)
            self._current.keep(place, _Current(head, since, metadata), len(metadata.data))
            return metadata

    def is_loadable(self, place: Place) -> bool:
        """Return whether :meth:`load` can succeed, as far as this gateway knows. Blocks on I/O.

        Raises StoreUnavailable.
        """
        try:
            reason = self._obstacle(place, _head(place))
            if place.iceberg == "Off" or isinstance(reason, _ABSENT):
                return False
            if reason is not None:
                return _exported_version(place) > 0
        except StoreUnavailable:
            raise
        except LakeError:
            return False
        return True

    def _obstacle(self, place: Place, head: str) -> LakeError | None:
        """Return why an export of this head would fail, if an attempt has shown it."""
        denial, known = self._denials.get(place.store), self._failures.recall(place)
        if denial is not None and denial.is_recent:
            return denial.reason
        if known is None or known[0].head != head:
            return None
        failure = known[0]
        return failure.reason if failure.is_recent or not isinstance(failure.reason, _StoppedError) else None

    def _last(self, name: str, place: Place, head: str, reason: LakeError) -> TableMetadata:
        """Return the last export. Raises DatasetNotFound if there is none, DatasetDeleted."""
        if isinstance(reason, _ABSENT):
            raise reason
        if self._existing.recall(place) != (head,):
            DatasetLog(place.store, place.uuid).tags()  # raises DatasetNotFound, DatasetDeleted
            self._existing.keep(place, head, 1)
        try:
            key = keys.iceberg_table(place.uuid, _exported_version(place))
            data, info = place.store.get_with_info(key)
            return _metadata(Locations(place.store, place.uuid).of(key), info.etag, data)
        except ObjectNotFound:
            raise DatasetNotFound(
                f"{name!r} has no Iceberg metadata, and the gateway cannot write it: {reason}. Write it with "
                f"`kubothek iceberg {name}`"
            ) from None

    def _known(self, place: Place) -> _Current | None:
        known = self._current.recall(place)
        return known[0] if known else None

    def _export(self, name: str, place: Place) -> TableMetadata:
        limits = self._limits
        expect(place.store)
        work = limited.run(
            _exported,
            place.store,
            place.uuid,
            place.iceberg == "Omit",
            memory=memory_bytes(limits.ingest_memory),
            seconds=limits.ingest_seconds,
            named=partial(_stopped, limits, name),
        )
        about, _, data = b"".join(work).partition(b"\n")
        location, etag = orjson.loads(about)
        return _metadata(location, etag, data)


limited.preload(__name__)


def _exported(ask: Ask, store: Store, uuid: str, omit: bool) -> Iterator[bytes]:
    """Export a dataset, in a worker; yield location and ETag of the metadata, a newline and the metadata."""
    from kubothek.catalog import Lake

    location = Lake(store).dataset(uuid).export_iceberg(omit_unsupported=omit).metadata_location
    data, info = store.get_with_info(_key(uuid, location.rpartition("/")[2]))
    yield orjson.dumps([location, info.etag]) + b"\n"
    yield data


def _stopped(limits: Limits, name: str, cause: Cause) -> LakeError:
    limit = f"{limits.ingest_seconds:g} s" if cause is Cause.TIME else f"{limits.ingest_memory} of memory"
    return _StoppedError(
        f"the Iceberg export of {name!r} needs more than {limit}; run `kubothek iceberg` where more is free"
    )


def _observe(place: Place, known: _Current | None) -> tuple[str, bool]:
    """Return what :func:`_head` returns, and whether head and metadata are those that are known.

    The same version is exported again after damage. The metadata then names other files, and the former are deleted.
    """
    if known is None:
        return _head(place), False
    key = _key(place.uuid, known.metadata.location.rpartition("/")[2])
    head, etag = place.store.together(lambda: _head(place), lambda: _etag(place.store, key))
    return head, (head, etag) == (known.head, known.metadata.etag)


def _etag(store: Store, key: str) -> str | None:
    try:
        return store.stat(key).etag
    except ObjectNotFound:
        return None


def _head(place: Place) -> str:
    """Return the ETag of the head; of a member of a cube, the record of the version in the head of the cube."""
    if (in_cube := DatasetLog(place.store, place.uuid).record_in_cube()) is not None:
        return in_cube
    if (etag := _etag(place.store, keys.head(place.uuid))) is None:
        raise DatasetNotFound(f"there is no dataset {place.uuid!r} in {place.store.url}")
    return etag


def _exported_version(place: Place) -> int:
    """Return the version of the last export; 0 if there is none."""
    seen = DatasetLog(place.store, place.uuid).journal.observe()
    return exported_version(place.store, place.uuid, seen.version if seen else 0)


def _metadata(location: str, etag: str, data: bytes) -> TableMetadata:
    return TableMetadata(location, etag, data, hashlib.sha256(data).hexdigest()[:32])


def _key(uuid: str, name: str) -> str:
    return keys.iceberg_metadata(uuid) + name
