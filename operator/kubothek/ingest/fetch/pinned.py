"""The HTTP client under a URL policy, for downloads and exchanges: it connects only to checked addresses.

A connection goes to an address, not to the name again: a second DNS answer cannot replace it. For the same reason,
proxies of the environment are not used.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import SplitResult

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from kubothek.ingest.fetch.policy import UrlPolicy


def pinned(pools: urllib3.PoolManager, policy: UrlPolicy) -> urllib3.PoolManager:
    """Return the pools, changed so that they connect only to addresses that the policy permits for a name."""
    classes: dict[str, Any] = pools.pool_classes_by_scheme
    pools.pool_classes_by_scheme = {
        scheme: type(
            "PinnedPool",
            (pool,),
            {
                "ConnectionCls": type(
                    "PinnedConnection", (_Pinned, pool.ConnectionCls), {"policy": policy, "scheme": scheme}
                )
            },
        )
        for scheme, pool in classes.items()
    }
    return pools


def request(
    pools: urllib3.PoolManager, method: str, parts: SplitResult, headers: Mapping[str, str], body: Any = None
) -> urllib3.BaseHTTPResponse:
    """Send one request to a checked URL, and return the answer as a stream; a redirect is an answer like others.

    Raises HTTPError, and what :meth:`UrlPolicy.resolve` raises.
    """
    pool = pools.connection_from_host(parts.hostname, parts.port, parts.scheme)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return pool.urlopen(
        method,
        target,
        body,
        headers=headers,
        redirect=False,
        retries=False,
        preload_content=False,
        assert_same_host=False,
    )


class _Pinned:
    """A urllib3 connection that tries every permitted address until one accepts."""

    policy: ClassVar[UrlPolicy]
    scheme: ClassVar[str]
    host: str
    port: int
    timeout: Any
    sock: socket.socket | None
    socket_options: Any

    def connect(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        addresses = self.policy.resolve(SplitResult(self.scheme, f"{host}:{self.port}", "", "", ""))
        problem: Exception = OSError(f"{self.host} has no address")
        for self._address in addresses:
            try:
                super().connect()  # type: ignore[misc]
            except (OSError, HTTPError) as error:
                if self.sock is not None:  # close() would also drop the request in progress
                    self.sock.close()
                    self.sock = None
                problem = error
            else:
                return
        raise problem

    def _new_conn(self) -> socket.socket:
        try:
            link = socket.create_connection(self._address, timeout=self.timeout)
            for option in self.socket_options or ():
                link.setsockopt(*option)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"{self._address[0]} does not answer: {error}") from error
        except OSError as error:
            raise NewConnectionError(self, f"{self._address[0]} refuses the connection: {error}") from error  # type: ignore[arg-type]
        return link
