"""Objects from a repository into a store: many at a time, hashed together as they come, none of them twice.

What arrived stays, whatever happens to the rest: it is named by its content, and the next try finds it. It is hashed
once more then, from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Final, Self

from kubothek.errors import LakeError, ObjectNotFound
from kubothek.odf.named import Named
from kubothek.odf.spec.layout import Layout
from kubothek.odf.sync.gathering import Gathering
from kubothek.odf.sync.repository import PIECE, Repository
from kubothek.odf.sync.verified import Arriving, Verified
from kubothek.storage import Staged, Store
from kubothek.storage.sha3_multibuffer import Lanes, Stream

_WAITING: Final = 32 << 20
"""Bytes that came and wait to be hashed with those of other objects: one often comes as a whole before the next."""
_YOUNG: Final = timedelta(hours=1)
"""Well below half of any usual grace period: an older object is written again, so that no collector takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a transfer is; totals are 0 as long as they are not known.

    ``objects``, ``bytes``  are there and verified; ``fetched`` bytes of them, and of what is under way, came just now
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
    """What a transfer did: all objects and their bytes, and those among them that were fetched."""

    objects: int
    bytes: int
    fetched_objects: int
    fetched_bytes: int


class _Meter:
    """Counts for several threads."""

    def __init__(self, named: Sequence[Named], blocks: int, told: Told) -> None:
        self._lock = Lock()
        self._told = told
        self._blocks = blocks
        self._total = len(named), sum(each.size for each in named)
        self.objects = self.bytes = self.fetched = self.fetched_objects = 0

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
    *,
    at_once: int = 8,
    blocks: int = 0,
    told: Told = lambda progress: None,
    note_written: Callable[[str], None] = lambda key: None,
) -> Brought:
    """See to it that all objects are where they belong, durably.

    Memory: a few pieces of each that is under way, and what waits.

    ``blocks``        that name them, for those who watch
    ``note_written``  hears of the first key

    Raises ChainCorrupt for an object that is gone, cut off or another one; StoreError. What came before stays.
    """
    meter, lanes = _Meter(named, blocks, told), Lanes(_WAITING)
    for each in named[:1]:
        note_written(each.key(layout))

    def bring(each: Named) -> None:
        if _is_there(store, layout, each, lanes):
            meter.done(each, fetched=False)
            return
        arriving, place = Arriving(repository, each, meter.came), store.stage(each.key(layout))
        if place is not None:
            staging.receive(arriving, place)
            return
        with arriving, Verified(arriving, lanes) as source:
            store.upload(each.key(layout), source)
        meter.done(each, fetched=True)

    with Staging(lanes, partial(meter.done, fetched=True), at_once) as staging:
        each_of(bring, named, at_once)
    store.flush(each.key(layout) for each in named)  # also what an earlier transfer left
    return Brought(
        objects=meter.objects, bytes=meter.bytes, fetched_objects=meter.fetched_objects, fetched_bytes=meter.fetched
    )


def each_of(act: Callable[[Named], None], named: Sequence[Named], at_once: int) -> None:
    """Act on each, many at a time. After the first error nothing new is begun; it is raised when all else has ended."""
    with ThreadPoolExecutor(max(1, min(at_once, len(named))), thread_name_prefix="objects") as pool:
        pending: list[Future[None]] = [pool.submit(act, each) for each in named]
        done, waiting = wait(pending, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()


def _is_there(store: Store, layout: Layout, named: Named, lanes: Lanes) -> bool:
    """Whether the very bytes are in the store; if they are old, they are young afterwards."""
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


# Objects on their way into a store that has a place for what nobody sees: each enters once it has the hash (HS-01).
#
# Many threads receive them; one hashes them together, where they lie, and lets them enter: threads that each did all of
# that would take Python's lock from each other.


_WINDOW: Final = 2 << 20
"""Bytes that are handed over to be hashed at a time: many, as each time costs, and few that wait."""


@dataclass(frozen=True, slots=True)
class _Arrived:
    """An object of which all bytes have come. ``held``: what goes with it if it does not enter."""

    arriving: Arriving
    staged: Staged
    hashing: Stream
    held: ExitStack


class Staging:
    """A context manager: at its end all objects that were received have entered, or what is wrong with one is raised.

    ``entered``  hears of each that has
    ``most``     of those that were received may wait, beside as many that are about to enter
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
        """Take in all that arrives; it enters later. Raises ChainCorrupt, StoreError, also of objects before it."""
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
