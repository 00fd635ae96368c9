"""HTTP connections to other servers: by the machine's proxies, or restricted by a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPResponse
from threading import local
from typing import Any, Final, Protocol, cast
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.request import set_file_position

from kubothek.errors import AccessDenied, InputError, StoreError, StoreUnavailable
from kubothek.ingest.fetch.pinned import pinned, request
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.sync.repository import PIECE
from kubothek.storage.retry import RetryPolicy

REDIRECTS: Final = 5
_BLOCK: Final = 1 << 20
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


class Connections(Protocol):
    """Connection pool, shared by threads."""

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        """Send one request and return the response. Redirects are followed, without ``Authorization`` to other origins.

        Raises urllib3's HTTPError.
        """


def connections(
    url: str, patience: RetryPolicy, most: int, *, ca_file: str | None = None, policy: UrlPolicy | None = None
) -> Connections:
    """Return connections to a server and its redirects. ``most``: largest number kept open."""
    options: dict[str, Any] = {
        "maxsize": most,
        "blocksize": _BLOCK,
        "timeout": urllib3.Timeout(connect=patience.connect, read=patience.silence),
        "ca_certs": ca_file,
    }
    return _Anywhere(url, options) if policy is None else _UnderPolicy(policy, options)


class _Anywhere:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        parts = urlsplit(url)
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        self._pool = into_kept_memory(
            urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
        )

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        return _followed(partial(self._once, method), url, headers, body)

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        return self._pool.request(
            method, url, headers=headers, body=body, redirect=False, retries=False, preload_content=False
        )


class _UnderPolicy:
    """Connections that check each URL against a policy, including redirects, and use only checked addresses."""

    def __init__(self, policy: UrlPolicy, options: dict[str, Any]) -> None:
        self._policy = policy
        self._pools = pinned(into_kept_memory(urllib3.PoolManager(**options)), policy)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        return _followed(partial(self._once, method), url, headers, body)

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        try:
            return request(self._pools, method, judged(self._policy, url), headers, body)
        except InputError as error:
            raise _as_store_error(error) from error


def _followed(
    ask: Callable[[str, Mapping[str, str], Any], urllib3.BaseHTTPResponse],
    url: str,
    headers: Mapping[str, str],
    body: Any,
) -> urllib3.BaseHTTPResponse:
    """Follow redirects and return the last response. Each request gets the whole body, where urllib3 would send the
    rest of it; other origins get no token. Raises AccessDenied for too many redirects, HTTPError.
    """
    sent, start = dict(headers), set_file_position(body, None)
    for redirects in range(REDIRECTS + 1):
        if redirects:
            set_file_position(body, start)
        answer = ask(url, sent, body)
        onward = answer.headers.get("Location")
        if answer.status not in _MOVED or onward is None:
            return answer
        answer.close()
        onward = urljoin(url, onward)
        if origin_of(onward) != origin_of(url):
            sent.pop("Authorization", None)
        url = onward
    raise AccessDenied(f"{url!r} redirects more than {REDIRECTS} times")


def judged(policy: UrlPolicy, url: str) -> SplitResult:
    """Return the parts of an http or https URL, if it is allowed. Raises AccessDenied."""
    try:
        parts = policy.check(url)
    except InputError as error:
        raise AccessDenied(str(error)) from error
    if parts.scheme == "file":
        raise AccessDenied(f"{url!r}: a server may not send us to a file")
    return parts


def judged_addresses(policy: UrlPolicy, parts: SplitResult) -> list[tuple[str, int]]:
    """Return the addresses of a host, if all of them are allowed. Raises AccessDenied, StoreUnavailable."""
    try:
        return policy.resolve(parts)
    except InputError as error:
        raise _as_store_error(error) from error


def _as_store_error(error: InputError) -> StoreError:
    return (StoreUnavailable if error.transient else AccessDenied)(str(error))


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


# Responses are read into a buffer per thread: to allocate memory for a piece costs as much as to receive it.


class _Memory(local):
    """Buffer of a thread. Not of a connection: another thread can use that as soon as a response was read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(PIECE))


_memory = _Memory()


class _Answer(HTTPResponse):
    """Response whose ``read1`` returns a view, valid until the next read of the thread."""

    def read1(self, n: int = -1) -> bytes:
        if self.fp is None or self.chunked or self.length is None or n <= 0:
            return super().read1(n)
        view = _memory.view[: min(n, self.length)]
        size = self.fp.readinto1(view)
        self.length -= size
        if not size or not self.length:
            self.close()
        return cast("bytes", view[:size]) if size else b""


class _Connection(HTTPConnection):
    response_class = _Answer


class _TlsConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def into_kept_memory(pools: PoolManager) -> PoolManager:
    """Return the same pools, with responses whose ``read1`` returns views, valid until the next read of the thread."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pools
