"""The current Iceberg metadata of datasets: of the current head if it can be exported, else that of the last export."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys

_KEPT_BYTES: Final = 64 << 20
_REMEMBERED: Final = 10_000
_DENIED_SECONDS: Final = 60.0
"""For this time after a denied write, the gateway does not try to export to a store."""


_ABSENT: Final = (DatasetNotFound, DatasetDeleted)
_IMPOSSIBLE: Final = (*_ABSENT, InputError, VersionIncomplete)
"""What an export of a head raises, until another head follows."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The Iceberg metadata of a dataset.

    ``location``  of the metadata, absolute
    ``data``      ``metadata.json``
    ``digest``    hash of ``data``
    """

    location: str
    data: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class _Current:
    """``head``: ETag of a head that the metadata shows, or a former one; ``since``: when its export began."""

    head: str
    since: float
    metadata: TableMetadata


class Tables:
    """The tables of a gateway. An export runs in a worker process, one at a time for each dataset."""

    def __init__(self, limits: Limits, workers: Workers) -> None:
        self._limits = limits
        self._workers = workers
        self._current: Kept[Place, _Current] = Kept(_KEPT_BYTES)
        self._failures: Kept[Place, tuple[str, LakeError]] = Kept(_REMEMBERED)
        self._denials: WeakKeyDictionary[Store, tuple[float, LakeError]] = WeakKeyDictionary()
        self._existing: Kept[Place, str] = Kept(_REMEMBERED)
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def load(self, name: str, place: Place, client: str) -> TableMetadata:
        """Return the metadata of the current version, after its export unless that has been done.

        If the gateway may not write, or the version cannot be exported, this is the last export. Raises DatasetNotFound
        if there is none, DatasetDeleted, the errors of :meth:`Workers.place`, StoreError.
        """
        if place.iceberg == "Off":
            raise DatasetNotFound(
                f"{name!r} is not exported as an Iceberg table: set spec.export.iceberg.enabled of the Dataset to true"
            )
        asked = time.monotonic()
        head = await asyncio.to_thread(_head, place)
        if (known := self._known(place)) is not None and known.head == head:
            return known.metadata
        if (reason := self._obstacle(place, head)) is not None:
            return await asyncio.to_thread(self._last, name, place, head, reason)
        lock = self._locks.setdefault(place, asyncio.Lock())
        async with lock:
            if (known := self._known(place)) is not None and known.since > asked:
                return known.metadata  # of an export that began after this request
            since, head = time.monotonic(), await asyncio.to_thread(_head, place)
            try:
                async with self._workers.place(client):
                    metadata = await to_its_end(partial(self._export, name, place))
            except AccessDenied as error:
                self._denials[place.store] = since, error
                return await asyncio.to_thread(self._last, name, place, head, error)
            except _IMPOSSIBLE as error:
                self._failures.keep(place, (head, error), 1)
                return await asyncio.to_thread(self._last, name, place, head, error)
            self._current.keep(place, _Current(head, since, metadata), len(metadata.data))
            return metadata

    def is_loadable(self, place: Place) -> bool:
        """Return whether :meth:`load` can succeed, as far as this gateway knows. Blocks on I/O."""
        try:
            reason = self._obstacle(place, _head(place))
            if place.iceberg == "Off" or isinstance(reason, _ABSENT):
                return False
            if reason is not None:
                place.store.stat(_hint(place.uuid))
        except LakeError:
            return False
        return True

    def _obstacle(self, place: Place, head: str) -> LakeError | None:
        """Return why an export of this head would fail, if an attempt has shown it."""
        since, denial = self._denials.get(place.store, (0.0, None))
        if denial is not None and time.monotonic() - since < _DENIED_SECONDS:
            return denial
        known = self._failures.recall(place)
        return known[0][1] if known and known[0][0] == head else None

    def _last(self, name: str, place: Place, head: str, reason: LakeError) -> TableMetadata:
        """Return the last export. Raises DatasetNotFound if there is none, DatasetDeleted."""
        if isinstance(reason, _ABSENT):
            raise reason
        if self._existing.recall(place) != (head,):
            DatasetLog(place.store, place.uuid).tags()  # raises DatasetNotFound, DatasetDeleted
            self._existing.keep(place, head, 1)
        try:
            version = int(place.store.get(_hint(place.uuid)))
            data = place.store.get(f"{_directory(place.uuid)}v{version}.metadata.json")
            table = orjson.loads(data)["location"]
        except (ObjectNotFound, ValueError, KeyError):
            raise DatasetNotFound(
                f"{name!r} has no Iceberg metadata, and the gateway cannot write it: {reason}. Write it with "
                f"`kubothek iceberg {name}`"
            ) from None
        return _metadata(f"{table}/metadata/v{version}.metadata.json", data)

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
        location, _, data = b"".join(work).partition(b"\n")
        return _metadata(location.decode(), data)


def load() -> None:
    """Import pyiceberg once for all workers, if it is installed."""
    with suppress(ModuleNotFoundError):
        import kubothek.table.iceberg.export  # noqa: F401


limited.preload(__name__, once=load.__name__)


def _exported(ask: Ask, store: Store, uuid: str, omit: bool) -> Iterator[bytes]:
    """Export a dataset, in a worker; yield the location of the metadata, a newline and the metadata."""
    from kubothek.catalog import Lake

    location = Lake(store).dataset(uuid).export_iceberg(omit_unsupported=omit).metadata_location
    yield location.encode() + b"\n"
    yield store.get(_key(uuid, location))


def _stopped(limits: Limits, name: str, cause: Cause) -> LakeError:
    limit = f"{limits.ingest_seconds:g} s" if cause is Cause.TIME else f"{limits.ingest_memory} of memory"
    return InputError(
        f"the Iceberg export of {name!r} needs more than {limit}; run `kubothek iceberg` where more is free"
    )


def _head(place: Place) -> str:
    try:
        return place.store.stat(keys.head(place.uuid)).etag
    except ObjectNotFound:
        raise DatasetNotFound(f"there is no dataset {place.uuid!r} in {place.store.url}") from None


def _metadata(location: str, data: bytes) -> TableMetadata:
    return TableMetadata(location, data, hashlib.sha256(data).hexdigest()[:32])


def _directory(uuid: str) -> str:
    return f"{keys.iceberg(uuid)}metadata/"


def _hint(uuid: str) -> str:
    return f"{_directory(uuid)}version-hint.text"


def _key(uuid: str, location: str) -> str:
    return _directory(uuid) + location.rpartition("/")[2]
