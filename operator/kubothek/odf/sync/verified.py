"""An object being received into a store, which shows it only if the received bytes have its hash (HS-01)."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from kubothek.errors import ChainCorrupt, ObjectNotFound, StoreUnavailable
from kubothek.odf.chain import ADVICE
from kubothek.odf.named import Named
from kubothek.odf.sync.repository import PIECE, Repository, Stream
from kubothek.storage.sha3_multibuffer import Lanes

_ATTEMPTS: Final = 5
"""Attempts for the same position: a connection that brought bytes before it broke resets the count."""
PAUSE: Final = 0.2
"""Seconds before the second attempt; doubled before each further one."""


class Arriving:
    """The bytes of an object as they arrive; resumes at its position if the connection breaks. A context manager.

    ``told``  called with each piece's size
    """

    def __init__(self, repository: Repository, named: Named, told: Callable[[int], None]) -> None:
        self.named = named
        self.position = 0
        self._repository = repository
        self._told = told
        self._held = ExitStack()
        self._stream: Stream | None = None
        self._broken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._held.close()
        self._stream = None

    def read(self, size: int) -> bytes | memoryview:
        """Return at most ``size`` of the next bytes, valid until the next read; none after the last.

        Raises ChainCorrupt, StoreError.
        """
        size = min(size, self.named.size - self.position)
        if not size:
            return b""
        while True:
            try:
                if self._stream is None:
                    self._stream = self._held.enter_context(self._repository.stream(self.named, self.position))
                piece = self._stream.read(size)
                break
            except ObjectNotFound as error:
                url = self._repository.url
                raise ChainCorrupt(f"the chain names {self.named}, which is not at {url}; {ADVICE}") from error
            except StoreUnavailable:
                self.close()
                self._broken += 1
                if self._broken == _ATTEMPTS:
                    raise
                time.sleep(PAUSE * 2 ** (self._broken - 1))
        if not piece:
            raise ChainCorrupt(
                f"{self.named} at {self._repository.url} ends after {self.position:,} bytes of "
                f"{self.named.size:,}; {ADVICE}"
            )
        self._broken = 0
        self.position += len(piece)
        self._told(len(piece))
        return piece

    def require(self, digest: bytes) -> None:
        """Check the hash of the object. Raises ChainCorrupt."""
        if digest != self.named.hash.digest:
            raise ChainCorrupt(
                f"{self.named} at {self._repository.url}: its bytes are not those that the hash names; {ADVICE}"
            )


class Verified(io.BufferedIOBase):
    """An arriving object as a file, for a store without staging: the last bytes are returned only if the hash matches.

    It can be read once, and seeks only as ``Store.upload`` does: to its end and back to its start. Raises ChainCorrupt.
    ``lanes`` hash it together with concurrent transfers.
    """

    def __init__(self, arriving: Arriving, lanes: Lanes) -> None:
        self._arriving = arriving
        self._hash = lanes.stream()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and offset == 0:
            return self._arriving.named.size
        if whence == io.SEEK_SET and offset == self._arriving.position == 0:
            return 0
        raise io.UnsupportedOperation("an object in transfer is read once, from its start")

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._left if size is None or size < 0 else size
        pieces: list[bytes] = []
        while wanted and (piece := self.read1(min(wanted, PIECE))):
            pieces.append(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        if piece := bytes(self._arriving.read(PIECE if size < 0 else size)):
            self._hash.update(piece)
        if not self._left:
            self._arriving.require(self._hash.digest())
        return piece

    @property
    def _left(self) -> int:
        return self._arriving.named.size - self._arriving.position
