"""One request in a worker process: its SQL may take the memory and the time of that process, and no more.

The server reads requests and answers them; :mod:`kubothek.sandbox.limited` keeps the limits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

from kubothek.errors import EngineFailed, LakeError, TransformTooLarge
from kubothek.odf.engines.server import querying, transforming
from kubothek.odf.engines.server.volume import PathRefused, Volume
from kubothek.odf.spec.engine_messages import encode_message
from kubothek.sandbox import limited
from kubothek.sandbox.limited import Ask, Cause
from kubothek.sql.query import memory_bytes

_DONE: Final = b"D"
_REFUSED: Final = b"R"

Made = Callable[[Volume, Any], bytes]
"""Does a request; the message that says what it gave."""

limited.preload(__name__)
limited.preload(querying.__name__)
limited.preload(transforming.__name__)


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request: memory of its process, and seconds until it ends."""

    memory: str = "4GB"
    seconds: float = 3600.0


LIMITS: Final = Limits()


class Working:
    """A request under way, in a thread of the server; :meth:`abandon` may come from any other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._work: limited.Work | None = None
        self._abandoned = False

    def run(self, made: Made, volume: Volume, request: Any, outputs: Sequence[str]) -> bytes:
        """What ``made`` returns, which is a function of a module. Raises LakeError, PathRefused, Abandoned.

        ``outputs``  the files that it writes
        """
        with TemporaryDirectory(prefix="kubothek-engine-", ignore_cleanup_errors=True) as room:
            self._work = work = limited.run(
                _worked,
                room,
                made,
                volume,
                request,
                memory=memory_bytes(self._limits.memory),
                seconds=self._limits.seconds,
                named=partial(_ended, self._limits),
                maps_files=True,  # checkpoints, and rows that are spilled
            )
            if self._abandoned:
                work.close()
            try:
                said = b"".join(work)
            finally:
                work.close()
                for path in outputs:
                    volume.tidy(path, work.pid)
        if self._abandoned or not said:
            raise Abandoned
        if said[:1] == _REFUSED:
            raise PathRefused(said[1:].decode())
        return said[1:]

    def abandon(self) -> None:
        """Its client has gone: end its process."""
        self._abandoned = True
        if self._work is not None:
            self._work.close()


def answered(work: Callable[[Volume, Any], Any], root: type, volume: Volume, request: Any) -> bytes:
    """In a worker: do it; the message that says what it gave."""
    return encode_message(root(value=work(volume, request)))


def _worked(ask: Ask, room: str, made: Made, volume: Volume, request: Any) -> Iterator[bytes]:
    """In a worker. ``room``: the directory for its files, as it may be killed."""
    tempfile.tempdir = room
    try:
        yield _DONE + made(volume, request)
    except PathRefused as error:
        yield _REFUSED + str(error).encode()


def _ended(limits: Limits, cause: Cause) -> LakeError:
    if cause is Cause.TIME:
        return EngineFailed(f"the request took longer than {limits.seconds:g} s and was stopped")
    return TransformTooLarge(f"the request needs more than {limits.memory} of memory and was stopped")
