"""One request in a worker process, so that its SQL is limited in memory and time.

The server parses requests and sends responses; :mod:`kubothek.sandbox.limited` enforces the limits.
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
"""Executes a request; returns the encoded response."""

limited.preload(__name__)
limited.preload(querying.__name__)
limited.preload(transforming.__name__)


class Abandoned(Exception):
    """The client no longer waits for the answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request: memory of its process, and seconds until it is stopped."""

    memory: str = "4GB"
    seconds: float = 3600.0


LIMITS: Final = Limits()


class Working:
    """A running request, in a thread of the server; :meth:`abandon` may be called from any other thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._work: limited.Work | None = None
        self._abandoned = False

    def run(self, made: Made, volume: Volume, request: Any, outputs: Sequence[str]) -> bytes:
        """Return the result of ``made``, a function at module level. Raises LakeError, PathRefused, Abandoned.

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
                maps_files=True,  # checkpoints, and spilled rows
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
        """End the process, because its client has gone."""
        self._abandoned = True
        if self._work is not None:
            self._work.close()


def answered(work: Callable[[Volume, Any], Any], root: type, volume: Volume, request: Any) -> bytes:
    """Execute the request in a worker; return the encoded response."""
    return encode_message(root(value=work(volume, request)))


def _worked(ask: Ask, room: str, made: Made, volume: Volume, request: Any) -> Iterator[bytes]:
    """Run in a worker. ``room``: directory for its temporary files, which the caller removes, as it may be killed."""
    tempfile.tempdir = room
    try:
        yield _DONE + made(volume, request)
    except PathRefused as error:
        yield _REFUSED + str(error).encode()


def _ended(limits: Limits, cause: Cause) -> LakeError:
    if cause is Cause.TIME:
        return EngineFailed(f"the request took longer than {limits.seconds:g} s and was stopped")
    return TransformTooLarge(f"the request needs more than {limits.memory} of memory and was stopped")
