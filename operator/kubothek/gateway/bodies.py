"""Request bodies: bounded in number, size and time, and decompressed while they arrive."""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

import orjson
from aiohttp import web

from kubothek.errors import FormatInvalid
from kubothek.gateway.limits import Limits

SMALL: Final = 64 << 10
"""Most bytes of a body or message without data."""
_IN_MEMORY: Final = 1 << 20
_PIECE: Final = 256 << 10
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""``wbits`` of zlib for the encodings of RFC 9110, 8.4.1."""


class Bodies:
    """The bodies that a gateway receives. A body takes 1 MiB of memory at most; the rest is on disk."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: Counter[str] = Counter()

    async def small(self, request: web.Request, client: str) -> bytes:
        """Return a body of at most 64 KiB, which must not be compressed.

        Raises HTTPUnsupportedMediaType, HTTPRequestEntityTooLarge, TimeoutError.
        """
        if "Content-Encoding" in request.headers:
            raise refused(web.HTTPUnsupportedMediaType, "UnsupportedMediaType", "this body may not be packed")
        if (request.content_length or 0) > SMALL:
            raise web.HTTPRequestEntityTooLarge(max_size=SMALL, actual_size=request.content_length or 0)
        found = bytearray()
        with self._place(client):
            async with asyncio.timeout(self._limits.head_seconds):
                while piece := await request.content.readany():
                    found += piece
                    if len(found) > SMALL:
                        raise web.HTTPRequestEntityTooLarge(max_size=SMALL, actual_size=len(found))
        return bytes(found)

    @asynccontextmanager
    async def received(
        self, request: web.Request, note: dict[str, Any], client: str, most: int
    ) -> AsyncIterator[tuple[IO[bytes], bytes]]:
        """Yield a temporary file with the decompressed body, at position 0, and the SHA3-256 of this body.

        ``most`` bounds the decompressed size in bytes. Raises TimeoutError for a slow client,
        HTTPRequestEntityTooLarge, HTTPUnsupportedMediaType, FormatInvalid for a body that cannot be decompressed.
        """
        hasher, size, arrived, started = hashlib.sha3_256(), 0, 0, time.monotonic()
        unpack = _unpacker(request.headers.get("Content-Encoding", "identity"))
        with SpooledTemporaryFile(_IN_MEMORY) as file:
            with self._place(client):
                while True:
                    async with asyncio.timeout(started + self._limits.seconds_for(arrived) - time.monotonic()):
                        raw = await request.content.readany()
                    arrived += len(raw)
                    for piece in unpack(raw):
                        size += len(piece)
                        if size > most:
                            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=size)
                        hasher.update(piece)
                        await asyncio.to_thread(file.write, piece) if size > _IN_MEMORY else file.write(piece)
                    if not raw:
                        break
            note["received"] = arrived
            file.seek(0)
            yield file, hasher.digest()

    @contextmanager
    def _place(self, client: str) -> Iterator[None]:
        if self._under_way[client] >= self._limits.bodies_each:
            raise refused(web.HTTPTooManyRequests, "TooManyBodies", "too many bodies of yours are on their way")
        if self._under_way.total() >= self._limits.bodies:
            raise refused(web.HTTPServiceUnavailable, "Busy", "too many bodies are on their way; retry later")
        self._under_way[client] += 1
        try:
            yield
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]


def refused(kind: type[web.HTTPError], reason: str, message: str) -> web.HTTPError:
    """Return the answer to a request beyond a limit, to raise: a JSON body, and ``Retry-After``."""
    text = orjson.dumps({"reason": reason, "message": message}).decode()
    return kind(text=text, content_type="application/json", headers={"Retry-After": "2"})


def _unpacker(encoding: str) -> Any:
    """Return a function that decompresses each piece, and gets ``b""`` last. Raises HTTPUnsupportedMediaType."""
    name = encoding.strip().lower()
    if name == "identity":
        return lambda raw: [raw] if raw else []
    if name not in _WINDOWS:
        message = f"Content-Encoding {name[:40]!r} is not understood; send gzip, deflate or none"
        raise refused(web.HTTPUnsupportedMediaType, "UnsupportedMediaType", message)
    return _Packed(_WINDOWS[name]).unpack


class _Packed:
    def __init__(self, window: int) -> None:
        self._window = window
        self._stream = zlib.decompressobj(window)
        self._begun = False

    def unpack(self, raw: bytes) -> Iterator[bytes]:
        if not raw and self._begun and not self._stream.eof:
            raise FormatInvalid("the body is packed, and ends too early")
        try:
            while raw:
                if self._stream.eof:  # gzip is a sequence of members
                    self._stream = zlib.decompressobj(self._window)
                self._begun = True
                if piece := self._stream.decompress(raw, _PIECE):
                    yield piece
                raw = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error as error:
            raise FormatInvalid(f"the body is not packed as its Content-Encoding says: {error}") from None
