"""An object on its way, as a file that a store can take: whoever has read all of it has the bytes that were named."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from kubothek.lake.errors import ChainCorrupt, ObjectNotFound, StoreUnavailable
from kubothek.lake.exchange.repository import Repository, Stream
from kubothek.lake.lanes import Lanes
from kubothek.lake.ledger.chain import ADVICE
from kubothek.lake.ledger.named import Named

_ATTEMPTS: Final = 5
PAUSE: Final = 0.2
"""Seconds before the second try; doubled before each one after it."""
_PIECE: Final = 1 << 19


class Verified(io.BufferedIOBase):
    """Reads once, from the start to the end, and goes on where it was when a connection breaks.

    The last bytes come only if all together have the hash (HS-01), so a store that is given this never has others under
    the name. It seeks just as far as ``Store.upload`` does: to its end and back to its start. Raises ChainCorrupt.

    ``told``   hears of each piece's size
    ``lanes``  hash what is on its way at the same time
    """

    def __init__(self, repository: Repository, named: Named, told: Callable[[int], None], lanes: Lanes) -> None:
        self._repository = repository
        self._named = named
        self._told = told
        self._held = ExitStack()
        self._stream: Stream | None = None
        self._hash = lanes.stream()
        self._position = 0
        self._broken = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and offset == 0:
            return self._named.size
        if whence == io.SEEK_SET and offset == self._position == 0:
            return 0
        raise io.UnsupportedOperation("an object on its way is read once, from its start")

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._named.size - self._position if size is None or size < 0 else size
        pieces: list[bytes] = []
        while wanted and (piece := self.read1(min(wanted, _PIECE))):
            pieces.append(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        left = self._named.size - self._position
        piece = self._piece(min(left, _PIECE if size < 0 else size)) if left and size else b""
        if self._position == self._named.size:
            self._require_hash()
        return piece

    def close(self) -> None:
        self._held.close()
        super().close()

    def _piece(self, size: int) -> bytes:
        while True:
            try:
                if self._stream is None:
                    self._stream = self._held.enter_context(self._repository.stream(self._named, self._position))
                piece = self._stream.read(size)
                break
            except ObjectNotFound as error:
                url = self._repository.url
                raise ChainCorrupt(f"the chain names {self._named}, which is not at {url}; {ADVICE}") from error
            except StoreUnavailable:
                self._held.close()
                self._stream = None
                self._broken += 1
                if self._broken == _ATTEMPTS:
                    raise
                time.sleep(PAUSE * 2 ** (self._broken - 1))
        if not piece:
            raise ChainCorrupt(
                f"{self._named} at {self._repository.url} ends after {self._position:,} bytes of "
                f"{self._named.size:,}; {ADVICE}"
            )
        self._hash.update(piece)
        self._position += len(piece)
        self._told(len(piece))
        return piece

    def _require_hash(self) -> None:
        if self._hash.digest() != self._named.hash.digest:
            raise ChainCorrupt(
                f"{self._named} at {self._repository.url}: its bytes are not those that the hash names; {ADVICE}"
            )
