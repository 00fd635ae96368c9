"""Client of the smart protocol: a WebSocket on its own thread, for callers on other threads, one at a time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from kubothek.errors import AccessDenied, DatasetNotFound, InputError, InvalidCredentials, StoreUnavailable
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.sync.connections import judged, judged_addresses
from kubothek.odf.sync.smart.messages import VERSION, VERSION_HEADER, Message, parse
from kubothek.odf.sync.web import Web

T = TypeVar("T")

_LARGEST: Final = 1 << 30
_HEARTBEAT: Final = 20.0
_ANSWER: Final = 3600.0
"""Seconds to wait for an answer: the server may have much to read or verify. A heartbeat detects a lost server."""


class Conversation:
    """A context manager, which connects on entry."""

    def __init__(self, web: Web, side: str) -> None:
        """``web`` of the dataset; ``side`` is ``pull`` or ``push``."""
        self._url = f"{web.url}/{side}"
        self._reach = web.reach
        self._connect = web.patience.connect
        self._lock = Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="smart-protocol", daemon=True)
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    def __enter__(self) -> Self:
        """Raises StoreUnavailable, InvalidCredentials, AccessDenied, DatasetNotFound; InputError without a gateway."""
        self._thread.start()
        try:
            self._run(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def tell(self, message: bytes) -> None:
        """Send a message without an answer. Raises StoreUnavailable if the connection is broken."""
        with self._lock:
            self._run(self._send(message))

    def ask(self, message: bytes, field: str | None = None) -> Message:
        """Send a message, and return the next message with this field, or the very next one.

        Raises Refused, FormatInvalid, StoreUnavailable.
        """
        with self._lock:
            self._run(self._send(message))
            return self._run(self._read(field))

    def answer(self, field: str) -> Message:
        """Return the answer to an earlier :meth:`tell`. As :meth:`ask`."""
        with self._lock:
            return self._run(self._read(field))

    def read(self) -> Message | None:
        """Return the next message; None once the connection is closed. Raises Refused, FormatInvalid."""
        with self._lock, suppress(StoreUnavailable):
            return self._run(self._read(None))
        return None

    def while_asked(self, work: Callable[[], T], progress: Callable[[], bytes]) -> T:
        """Run ``work``, and answer each message that arrives meanwhile with the progress."""
        with self._lock:
            answering = asyncio.run_coroutine_threadsafe(self._answer(progress), self._loop)
            try:
                return work()
            finally:
                answering.cancel()

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _open(self) -> None:
        headers = {VERSION_HEADER: VERSION}
        if self._reach.token:
            headers["Authorization"] = f"Bearer {self._reach.token}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect)
        policy = self._reach.policy
        if policy is not None:  # the resolver is not called for an address in a URL
            await asyncio.to_thread(judged_addresses, policy, judged(policy, self._url))
        connector = aiohttp.TCPConnector(
            # slow to create
            ssl=ssl.create_default_context(cafile=self._reach.ca_file) if self._url.startswith("https:") else True,
            resolver=None if policy is None else _Judged(policy, judged(policy, self._url)),
        )
        self._session = aiohttp.ClientSession(connector=connector, trust_env=policy is None, timeout=timeout)
        try:
            self._socket = await self._session.ws_connect(
                self._url, headers=headers, heartbeat=_HEARTBEAT, max_msg_size=_LARGEST
            )
        except aiohttp.WSServerHandshakeError as error:
            raise _not_upgraded(self._url, error.status) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StoreUnavailable(f"{self._url} cannot be reached: {error}") from error

    async def _send(self, message: bytes) -> None:
        assert self._socket is not None, "it is open"
        try:
            await self._socket.send_str(message.decode())
        except (aiohttp.ClientError, ConnectionError) as error:
            raise StoreUnavailable(f"{self._url}: the connection broke: {error}") from error

    async def _read(self, field: str | None) -> Message:
        assert self._socket is not None, "it is open"
        while True:
            try:
                received = await self._socket.receive(_ANSWER)
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                raise StoreUnavailable(f"{self._url}: the server does not answer: {error!r}") from error
            if received.type is not aiohttp.WSMsgType.TEXT:
                raise StoreUnavailable(f"{self._url}: the server has hung up")
            message, _ = parse(received.data)
            if field is None or field in message:
                return message

    async def _answer(self, progress: Callable[[], bytes]) -> None:
        with suppress(StoreUnavailable):
            while True:
                await self._read(None)
                await self._send(progress())

    def _end(self) -> None:
        if self._session is not None:
            with suppress(StoreUnavailable):
                self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        assert self._session is not None, "it was made"
        await self._session.close()


class _Judged(AbstractResolver):
    """Resolver that returns the addresses allowed by a policy."""

    def __init__(self, policy: UrlPolicy, parts: SplitResult) -> None:
        self._policy = policy
        self._parts = parts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the allowed addresses. Raises AccessDenied, StoreUnavailable."""
        found = await asyncio.to_thread(judged_addresses, self._policy, self._parts)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=_family(address), proto=0, flags=0)
            for address, _ in found
        ]

    async def close(self) -> None:
        """No-op: there is nothing to close."""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _not_upgraded(url: str, status: int) -> Exception:
    match status:
        case 401:
            return InvalidCredentials(f"{url} needs a token that the server knows; see `kubothek login`")
        case 403:
            return AccessDenied(f"{url} is not permitted for this token; ask the operators of the server")
        case 404:
            return DatasetNotFound(f"there is no dataset at {url}")
        case 429 | 500 | 502 | 503 | 504:
            return StoreUnavailable(f"{url}: the server is in trouble (status {status}); try again later")
    return InputError(f"{url}: no smart transfer protocol there (status {status}); leave out odf+ for the simple one")
