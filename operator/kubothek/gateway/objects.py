"""The simple transfer protocol: access to four kinds of objects of a store (TP-02 … TP-07, TP-14)."""

from __future__ import annotations

import asyncio
from typing import IO, Any, Final, cast

from aiohttp import web
from multidict import CIMultiDict

from kubothek.errors import FormatInvalid, ObjectNotFound
from kubothek.gateway.access import Verb
from kubothek.gateway.answers import refusal
from kubothek.gateway.datasets import Exposed
from kubothek.gateway.gate import NOTE, STARTED, Gate
from kubothek.odf.named import Kind
from kubothek.odf.spec.layout import Layout, head_bytes
from kubothek.odf.spec.multihash import Codec, Multihash

_LONGEST_HASH: Final = 128
_PIECE: Final = 256 << 10
_SENT: Final = 4 << 20
_FOR_EVER: Final = "max-age=31536000, immutable"
_BLOCKS: Final = "blocks"
_SAFE: Final = {"X-Content-Type-Options": "nosniff"}


class Objects:
    """The handlers of the simple transfer protocol."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._streams = asyncio.Semaphore(gate.limits.store_streams)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/{dataset}/refs/head", self.head, allow_head=True),
            web.get("/{dataset}/{kind:blocks|data|checkpoints}/{hash}", self.get, allow_head=True),
            web.put("/{dataset}/{kind:data|checkpoints}/{hash}", self.put),
        ]

    async def head(self, request: web.Request) -> web.StreamResponse:
        """Return the hash of the last block. Caches must revalidate it, which is cheap."""
        dataset = await self._gate.dataset(request, Verb.PULL, fresh=True)
        response = web.Response(body=head_bytes(dataset.head), content_type="text/plain", headers=_SAFE)
        response.headers["Cache-Control"] = "no-cache"
        response.etag = str(dataset.head)
        return _unless_known(request, response, str(dataset.head))

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return an object or a range of it; its ETag is the hash, whatever base the request uses."""
        dataset = await self._gate.dataset(request, Verb.PULL)
        named = parse_hash(request.match_info["hash"])
        response = web.StreamResponse(headers=_SAFE)
        response.content_type = "application/octet-stream"
        response.etag = str(named)
        response.headers["Accept-Ranges"] = "bytes"
        shared = "public" if self._gate.datasets.catalogue.public(dataset.name) else "private"
        response.headers["Cache-Control"] = f"{shared}, {_FOR_EVER}"
        if (known := _unless_known(request, response, str(named))) is not response:
            return known
        return await self._send(request, response, dataset, _key(dataset.layout, request.match_info["kind"], named))

    async def put(self, request: web.Request) -> web.StreamResponse:
        """Store an object of a push, only if its bytes have the hash."""
        name = await self._gate.name(request, Verb.PUSH)
        named, limits = parse_hash(request.match_info["hash"]), self._gate.limits
        if request.content_length is None:
            return refusal(411, "LengthRequired", "say how long it is: Content-Length")
        if request.content_length > limits.object_bytes:
            return refusal(413, "TooLarge", f"an object has at most {limits.object_bytes:,} bytes")
        async with self._gate.received(request, limits.object_bytes) as (file, digest):
            if digest != named.digest:
                return refusal(400, "Corrupt", f"the bytes are not those that {named} names")
            place = self._gate.datasets.catalogue.place(name)
            key = _key(place.layout, request.match_info["kind"], named)
            await asyncio.to_thread(place.store.upload, key, cast("Any", file))
        return web.Response(status=200)

    async def _send(
        self, request: web.Request, response: web.StreamResponse, dataset: Exposed, key: str
    ) -> web.StreamResponse:
        store = dataset.store
        try:
            file = store.open_file(key)  # faster than a switch to a thread
        except ObjectNotFound:
            raise ObjectNotFound(key, dataset.name) from None
        if file is not None:
            with file:
                return await self._send_file(request, response, file)
        async with self._streams:
            with await asyncio.to_thread(store.open, key) as source:
                size = await asyncio.to_thread(source.seek, 0, 2)
                return await self._send_read(request, response, source, size)

    async def _send_file(
        self, request: web.Request, response: web.StreamResponse, file: IO[bytes]
    ) -> web.StreamResponse:
        """Send a file with sendfile, in pieces, so that a slow client is detected."""
        start, stop = _range(request, response, file.seek(0, 2))
        request[STARTED] = True
        await response.prepare(request)
        if request.method != "HEAD":
            loop = asyncio.get_running_loop()
            while start < stop:
                size = min(stop - start, _SENT)
                async with asyncio.timeout(self._gate.limits.seconds_for(size)):
                    if request.transport is None:
                        raise ConnectionResetError("the client has gone")
                    start += await loop.sendfile(request.transport, file, start, size)
                request[NOTE]["bytes"] = request[NOTE].get("bytes", 0) + size
        await response.write_eof()
        return response

    async def _send_read(
        self, request: web.Request, response: web.StreamResponse, source: Any, size: int
    ) -> web.StreamResponse:
        start, stop = _range(request, response, size)
        request[STARTED] = True
        await response.prepare(request)
        if request.method != "HEAD":
            await asyncio.to_thread(source.seek, start)
            while start < stop and (piece := await asyncio.to_thread(source.read, min(_PIECE, stop - start))):
                async with asyncio.timeout(self._gate.limits.seconds_for(len(piece))):
                    await response.write(piece)
                start += len(piece)
                request[NOTE]["bytes"] = request[NOTE].get("bytes", 0) + len(piece)
            if start < stop:
                raise ConnectionResetError("the object became shorter")
        await response.write_eof()
        return response


def parse_hash(text: str) -> Multihash:
    """Parse the last part of a path. Raises ObjectNotFound if it is not a hash of an object."""
    try:
        found = Multihash.parse(text) if len(text) <= _LONGEST_HASH else None
    except FormatInvalid:
        found = None
    if found is None or found.codec != Codec.SHA3_256:
        raise ObjectNotFound(text[:_LONGEST_HASH], "any dataset")
    return found


def _key(layout: Layout, kind: str, named: Multihash) -> str:
    if kind == _BLOCKS:
        return layout.block(named)
    return layout.data(named) if Kind(kind) is Kind.DATA else layout.checkpoint(named)


def _unless_known(request: web.Request, response: web.StreamResponse, etag: str) -> web.StreamResponse:
    asked = request.if_none_match or ()
    if any(each.value in (etag, "*") for each in asked):
        kept = CIMultiDict((name, response.headers[name]) for name in ("ETag", "Cache-Control"))
        return web.Response(status=304, headers=kept)
    return response


def _range(request: web.Request, response: web.StreamResponse, size: int) -> tuple[int, int]:
    """Return start and stop of the requested range; the whole object if the range is malformed (RFC 9110, 14.2).

    Raises HTTPRequestRangeNotSatisfiable.
    """
    start, stop = 0, size
    condition = request.headers.get("If-Range")
    if condition is None or (response.etag is not None and condition == f'"{response.etag.value}"'):
        try:
            asked = request.http_range
        except ValueError:
            asked = slice(None)
        if asked.start is not None or asked.stop is not None:
            start, stop, _ = asked.indices(size)
            if start >= stop:
                raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    response.content_length = stop - start
    return start, stop
