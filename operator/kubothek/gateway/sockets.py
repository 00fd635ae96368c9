"""One session over a WebSocket, one message at a time, with a client that may be slow, faulty or hostile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from http import HTTPMethod
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from kubothek.errors import FormatInvalid, LakeError
from kubothek.gateway.bodies import SMALL
from kubothek.gateway.gate import NOTE, Gate
from kubothek.odf.named import Named
from kubothek.odf.spec.layout import Layout
from kubothek.odf.sync.smart.messages import VERSION, VERSION_HEADER, Dialect, Message, Transfer, internal, parse
from kubothek.storage import Store

SUB_PROTOCOL: Final = "odf/smart-transfer-protocol/v1"
"""From the published OpenAPI. It is not a valid token of RFC 6455, so clients need not offer it (TP-08)."""
_HEARTBEAT: Final = 20.0
_CLOSING: Final = 2.0
"""Seconds for the client to close its side."""


class Conversation:
    """The server's side of a session."""

    def __init__(self, request: web.Request, gate: Gate, largest: int) -> None:
        """``largest``: most bytes of a large message."""
        self._request = request
        self._gate = gate
        self._socket = web.WebSocketResponse(
            protocols=(SUB_PROTOCOL,),
            timeout=_CLOSING,
            max_msg_size=max(largest, SMALL),
            heartbeat=_HEARTBEAT,
            compress=False,
        )
        self._first = True
        versioned = request.headers.get(VERSION_HEADER) is not None
        self.dialect = Dialect.VERSIONED if versioned else Dialect.KAMU
        self.phase = "InitialRequest"

    async def hold(self, side: str, talk: Callable[[], Awaitable[None]]) -> web.StreamResponse:
        """Run the session to its end; send errors to the client. ``side``: Pull or Push."""
        await self._socket.prepare(self._request)
        try:
            if (version := self._request.headers.get(VERSION_HEADER, VERSION)) != VERSION:
                raise FormatInvalid(
                    f"Incompatible version. {VERSION_HEADER} is {version[:20]!r}, and this server has {VERSION}: use a "
                    f"client of version {VERSION}, or the simple protocol for a pull"
                )
            await talk()
        except LakeError as error:
            self._request[NOTE]["error"] = error.reason
            await self.send(internal(str(error), self.dialect, f"{side}({self.phase})"))
        except (TimeoutError, ConnectionError) as error:
            self._request[NOTE]["error"] = type(error).__name__
        except BaseException:
            await self._socket.close(code=WSCloseCode.INTERNAL_ERROR)
            raise
        await self._socket.close()
        return self._socket

    async def read(self, seconds: float, *, large: bool = False) -> Message:
        """Return the next message; ``large``: it may exceed 64 KiB.

        Raises FormatInvalid, ConnectionResetError if the client has closed, TimeoutError.
        """
        received = await self._socket.receive(seconds)
        if received.type is WSMsgType.TEXT or received.type is WSMsgType.BINARY:
            self._request[NOTE]["received"] = self._request[NOTE].get("received", 0) + len(received.data)
            if len(received.data) <= SMALL:
                message, found = await asyncio.to_thread(parse, received.data)
            elif large:
                async with self._gate.parsing:
                    message, found = await asyncio.to_thread(parse, received.data)
            else:
                raise FormatInvalid(f"this message has at most {SMALL:,} bytes")
            if self._first and found is Dialect.SPEC:
                self.dialect = Dialect.SPEC
            self._first = False
            return message
        if received.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            raise ConnectionResetError("the other side has hung up")
        raise FormatInvalid(f"a message that cannot be read: {received.data!r}")

    async def send(self, message: bytes) -> None:
        """Send a message. Raises TimeoutError."""
        async with asyncio.timeout(self._gate.limits.seconds_for(len(message))):
            await self._socket.send_str(message.decode())


def transfer(
    request: web.Request,
    store: Store,
    method: HTTPMethod,
    layout: Layout,
    named: Named,
    seconds: int,
    url: str | None,
) -> Transfer:
    """Return how a client downloads or uploads an object.

    It uses a presigned URL of the store if there are such, else the gateway at ``url`` or at the request's own URL.
    """
    if seconds and (presigned := store.presigned(method, named.key(layout), seconds)) is not None:
        headers = tuple(presigned.headers.items())
        return Transfer(presigned.url, headers, datetime.now(UTC) + timedelta(seconds=seconds))
    base = str(request.url.origin()) if url is None else url.rstrip("/")
    token = request.headers.get("Authorization")
    where = f"{base}/{request.match_info['dataset']}/{named}"
    return Transfer(where, (("Authorization", token),) if token else ())
