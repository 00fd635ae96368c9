"""Transfer of objects from a repository into a store: concurrent, hashed on arrival, each fetched once.

Stored objects stay if the rest fails: their names are their hashes, and the next attempt finds them. It then hashes
them again, from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Final, Self, TypeVar

from kubothek.errors import LakeError, ObjectNotFound
from kubothek.odf.named import Kind, Named
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.sync.gathering import Gathering
from kubothek.odf.sync.repository import PIECE, Repository
from kubothek.odf.sync.verified import Arriving, Verified
from kubothek.odf.validation.linked import MOST_MISSING
from kubothek.storage import Staged, Store
from kubothek.storage.sha3_multibuffer import Lanes, Stream

T = TypeVar("T")

_WAITING: Final = 32 << 20
"""Received bytes that wait to be hashed with those of other objects; an object often arrives whole before the next."""
_YOUNG: Final = timedelta(hours=1)
"""Age from which an existing object is rewritten, so that the garbage collector keeps it; well below half of any usual
grace period.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a transfer; totals are 0 until they are known.

    ``objects``, ``bytes``  are stored and verified; ``fetched`` bytes were received now, unfinished objects included
    """

    blocks: int = 0
    blocks_total: int = 0
    objects: int = 0
    objects_total: int = 0
    bytes: int = 0
    bytes_total: int = 0
    fetched: int = 0


Told = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Result of a transfer: all objects and their bytes, and those of them that were fetched.

    ``missing``  linked objects that the repository lacks, at most 131,072
    """

    objects: int
    bytes: int
    fetched_objects: int
    fetched_bytes: int
    missing: tuple[Multihash, ...] = ()


class _Meter:
    """Thread-safe counters."""

    def __init__(self, named: Sequence[Named], blocks: int, told: Told) -> None:
        self._lock = Lock()
        self._told = told
        self._blocks = blocks
        self._total = len(named), sum(each.size for each in named)
        self.missing: list[Multihash] = []
        self.objects = self.bytes = self.fetched = self.fetched_objects = 0

    def expect(self, named: Named) -> None:
        """Count one object more."""
        with self._lock:
            objects, size = self._total
            self._total = objects + 1, size + named.size

    def miss(self, link: Multihash) -> None:
        with self._lock:
            if len(self.missing) < MOST_MISSING:
                self.missing.append(link)

    def came(self, size: int) -> None:
        with self._lock:
            self.fetched += size
            self._tell()

    def done(self, named: Named, *, fetched: bool) -> None:
        with self._lock:
            self.objects += 1
            self.bytes += named.size
            self.fetched_objects += fetched
            self._tell()

    def _tell(self) -> None:
        objects, size = self._total
        self._told(
            Progress(
                blocks=self._blocks,
                blocks_total=self._blocks,
                objects=self.objects,
                objects_total=objects,
                bytes=self.bytes,
                bytes_total=size,
                fetched=self.fetched,
            )
        )


def bring_objects(
    repository: Repository,
    named: Sequence[Named],
    store: Store,
    layout: Layout,
    linked: Iterable[Sequence[Multihash]] = (),
    *,
    at_once: int = 8,
    blocks: int = 0,
    told: Told = lambda progress: None,
    note_written: Callable[[str], None] = lambda key: None,
) -> Brought:
    """Store all objects durably.

    ``linked``  linked objects, in portions; read once the named ones are stored, as the slices among them have the
                links. Those that the repository lacks are no error: implementations without RFC-017 do not copy them

    Memory: a few pieces of each running transfer, and the bytes that wait to be hashed.

    ``blocks``        number of blocks that name them, for progress
    ``note_written``  called with the first key

    Raises ChainCorrupt for an object that is gone, truncated or has another hash; StoreError. Stored objects stay.
    """
    meter, lanes = _Meter(named, blocks, told), Lanes(_WAITING)
    for each in named[:1]:
        note_written(each.key(layout))

    def bring(staging: Staging, each: Named) -> None:
        if _is_there(store, layout, each, lanes):
            meter.done(each, fetched=False)
        else:
            receive(staging, each)

    def receive(staging: Staging, each: Named) -> None:
        arriving, place = Arriving(repository, each, meter.came), store.stage(each.key(layout))
        if place is not None:
            staging.receive(arriving, place)
            return
        with arriving, Verified(arriving, lanes) as source:
            store.upload(each.key(layout), source)
        meter.done(each, fetched=True)

    def bring_linked(staging: Staging, link: Multihash) -> None:
        ours = _linked(store, layout, link, lanes)
        try:
            each = ours or Named(Kind.DATA, link, _size(repository, link))
        except ObjectNotFound:
            meter.miss(link)
            return
        meter.expect(each)
        if ours is None:
            receive(staging, each)
        else:
            meter.done(each, fetched=False)

    with Staging(lanes, partial(meter.done, fetched=True), at_once) as staging:
        each_of(partial(bring, staging), named, at_once)
    store.flush(each.key(layout) for each in named)  # including objects of an earlier transfer
    for links in linked:
        with Staging(lanes, partial(meter.done, fetched=True), at_once) as staging:
            each_of(partial(bring_linked, staging), links, at_once)
        store.flush(layout.data(each) for each in links)
    return Brought(
        objects=meter.objects,
        bytes=meter.bytes,
        fetched_objects=meter.fetched_objects,
        fetched_bytes=meter.fetched,
        missing=tuple(meter.missing),
    )


def _size(repository: Repository, link: Multihash) -> int:
    if link.codec != Codec.SHA3_256:
        raise ObjectNotFound(str(link), repository.url)  # objects are named by SHA3-256 (HS-01)
    return repository.size(link)


def _linked(store: Store, layout: Layout, link: Multihash, lanes: Lanes) -> Named | None:
    """Return a linked object that the store has."""
    try:
        named = Named(Kind.DATA, link, store.stat(layout.data(link)).size)
    except ObjectNotFound:
        return None
    return named if _is_there(store, layout, named, lanes) else None


def each_of(act: Callable[[T], None], named: Sequence[T], at_once: int) -> None:
    """Call ``act`` for each, concurrently. After the first error no call starts; it is raised once all have ended."""
    with ThreadPoolExecutor(max(1, min(at_once, len(named))), thread_name_prefix="objects") as pool:
        pending: list[Future[None]] = [pool.submit(act, each) for each in named]
        done, waiting = wait(pending, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()


def _is_there(store: Store, layout: Layout, named: Named, lanes: Lanes) -> bool:
    """Return whether the store has these bytes; an old object is rewritten."""
    key = named.key(layout)
    try:
        info = store.stat(key)
        if info.size != named.size:
            return False
        stream = lanes.stream()
        with store.open(key) as source:
            while piece := source.read(PIECE):
                stream.update(piece)
            if stream.digest() != named.hash.digest:
                return False
            if datetime.now(UTC) - info.modified > _YOUNG:
                source.seek(0)
                store.upload(key, source)
    except ObjectNotFound:
        return False
    return True


# Staging, in stores that support it: each object becomes visible once its hash is verified (HS-01).
#
# Many threads receive objects; one hashes them together in place and makes them visible: if each thread did all of
# that, they would compete for Python's lock.


_WINDOW: Final = 2 << 20
"""Bytes submitted for hashing at a time: each submission has a cost, and waiting bytes take memory."""


@dataclass(frozen=True, slots=True)
class _Arrived:
    """An object that was received completely. ``held``: its resources, released if it is rejected."""

    arriving: Arriving
    staged: Staged
    hashing: Stream
    held: ExitStack


class Staging:
    """A context manager: on exit all received objects are visible, or the first error is raised.

    ``entered``  called for each visible object
    ``most``     largest number of received objects that wait, besides as many in the current batch
    """

    def __init__(self, lanes: Lanes, entered: Callable[[Named], None], most: int) -> None:
        self._lanes = lanes
        self._entered = entered
        self._arrived = Gathering(self._enter, most, "entering")

    def __enter__(self) -> Self:
        self._arrived.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrived.__exit__(kind, error, trace)

    def receive(self, arriving: Arriving, place: AbstractContextManager[Staged]) -> None:
        """Receive an object, which becomes visible later. Raises ChainCorrupt, StoreError, also for earlier objects."""
        with ExitStack() as held:
            staged = held.enter_context(place)
            hashing, handed = self._lanes.stream(), 0
            with arriving:
                while piece := arriving.read(PIECE):
                    staged.write(piece)
                    if staged.size - handed >= _WINDOW:
                        stop = staged.size - staged.size % _WINDOW
                        hashing.update(staged.memory(handed, stop))
                        handed = stop
            if handed < staged.size:
                hashing.update(staged.memory(handed, staged.size))
            staged.begin_sync()
            kept = held.pop_all()
        try:
            self._arrived.give(_Arrived(arriving, staged, hashing, kept))
        except BaseException:
            kept.close()
            raise

    def _enter(self, arrived: Sequence[_Arrived]) -> None:
        failed: list[LakeError] = []
        with ExitStack() as all_held:
            for each in arrived:
                all_held.push(each.held)
            for each, digest in zip(arrived, self._lanes.digests([each.hashing for each in arrived]), strict=True):
                try:
                    with each.held:
                        each.arriving.require(digest)
                        each.staged.sync()
                        each.staged.enter()
                except LakeError as error:
                    failed.append(error)
                else:
                    self._entered(each.arriving.named)
        if failed:
            raise failed[0]
