"""Objects on their way into a store that has a place for what nobody sees: each enters once it has the hash (HS-01).

Many threads receive them; one hashes them together, where they lie, and lets them enter: threads that each did all of
that would take Python's lock from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from kubothek.errors import LakeError
from kubothek.odf.named import Named
from kubothek.odf.sync.gathering import Gathering
from kubothek.odf.sync.repository import PIECE
from kubothek.odf.sync.verified import Arriving
from kubothek.storage import Staged
from kubothek.storage.sha3_multibuffer import Lanes, Stream

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
