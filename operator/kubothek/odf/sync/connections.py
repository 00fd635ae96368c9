"""How requests reach other servers: as the machine's proxies have it, or only where a policy lets them."""

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
    """Kept connections, which threads share."""

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> urllib3.BaseHTTPResponse:
        """One request and the answer to it, redirects followed, which do not take ``Authorization`` to another origin.

        Raises urllib3's HTTPError.
        """


def connections(
    url: str, patience: RetryPolicy, most: int, *, ca_file: str | None = None, policy: UrlPolicy | None = None
) -> Connections:
    """For a server and wherever it sends us. ``most``: so many are kept."""
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
    """Every URL is judged, also those of redirects, and each connection goes to an address that was judged."""

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
    """The answer at the end of redirects: each gets the whole body (urllib3 would send what is left of it), another
    server no token. Raises AccessDenied for too many of them, HTTPError.
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
    """The parts of a URL of the web, if it is allowed. Raises AccessDenied."""
    try:
        parts = policy.check(url)
    except InputError as error:
        raise AccessDenied(str(error)) from error
    if parts.scheme == "file":
        raise AccessDenied(f"{url!r}: a server may not send us to a file")
    return parts


def judged_addresses(policy: UrlPolicy, parts: SplitResult) -> list[tuple[str, int]]:
    """Where a name leads, if all of that is allowed. Raises AccessDenied, StoreUnavailable."""
    try:
        return policy.resolve(parts)
    except InputError as error:
        raise _as_store_error(error) from error


def _as_store_error(error: InputError) -> StoreError:
    return (StoreUnavailable if error.transient else AccessDenied)(str(error))


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


# Answers of servers into memory that each thread keeps: fresh memory for a piece costs as much as to receive it.


class _Memory(local):
    """A thread's. Not a connection's: that goes to another thread as soon as all of an answer was read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(PIECE))


_memory = _Memory()


class _Answer(HTTPResponse):
    """Its ``read1`` gives a view, which holds until the thread reads the next one."""

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
    """The same pools, with answers whose ``read1`` gives views, each of which holds until its thread reads the next."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pools
