"""HTTP requests over persistent connections, by the standard library: less CPU time than urllib3 (decision 53).

It replaces botocore's ``URLLib3Session`` and raises the same errors. It has no redirects, retries, cookies, compressed
bodies or proxies; for a proxy, botocore's own is used.
"""

from __future__ import annotations

import select
import ssl
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    SSLError,
)

_KEPT: Final = 64
"""Maximum idle connections to one server."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response, with the attribute names of botocore's."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Wire:
    """A connection pool for several threads: each has one connection to itself during its request.

    ``authorities``  file with the certificates to trust
    ``connect``      timeout of the connection in seconds; ``silence``: maximum seconds without data
    """

    def __init__(self, authorities: str, connect: float, silence: float) -> None:
        self._authorities = authorities
        self._connect = connect
        self._silence = silence
        self._idle: defaultdict[tuple[str, str, int | None], deque[HTTPConnection]] = defaultdict(deque)

    def send(self, request: AWSPreparedRequest) -> Response:
        """Send one request and return its answer. Raises botocore's HTTPClientError."""
        url = urlsplit(request.url)
        idle = self._idle[url.scheme, url.hostname or "", url.port]
        connection = _usable(idle) or self._connected(url)
        body: Any = request.body
        is_sent = False
        try:
            # The answer may arrive before the whole body is sent.
            with suppress(BrokenPipeError):
                connection.request(request.method, url.path or "/", body, {**request.headers})
                is_sent = True
            answer = connection.getresponse()
            headers: Any = answer.headers
            response = Response(answer.status, headers, answer.read())
        except TimeoutError as error:
            connection.close()
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, HTTPException) as error:
            connection.close()
            raise ConnectionClosedError(endpoint_url=request.url, error=error) from error
        except BaseException:
            connection.close()  # part of an answer may still arrive
            raise
        if not is_sent or answer.will_close or len(idle) >= _KEPT:
            connection.close()
        else:
            idle.append(connection)
        return response

    def _connected(self, url: SplitResult) -> HTTPConnection:
        host = url.hostname or ""
        connection = (
            HTTPSConnection(host, url.port, timeout=self._connect, context=self._context)
            if url.scheme == "https"
            else HTTPConnection(host, url.port, timeout=self._connect)
        )
        try:
            connection.connect()
        except ssl.SSLError as error:
            raise SSLError(endpoint_url=url.geturl(), error=error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=url.geturl(), error=error) from error
        except (OSError, UnicodeError) as error:
            raise EndpointConnectionError(endpoint_url=url.geturl(), error=error) from error
        connection.sock.settimeout(self._silence)
        return connection

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._authorities)


def _usable(idle: deque[HTTPConnection]) -> HTTPConnection | None:
    """Return the most recently used connection that the server has not closed."""
    while True:
        try:
            connection = idle.pop()
        except IndexError:
            return None
        closed = select.poll()
        closed.register(connection.sock, select.POLLIN)
        if not closed.poll(0):
            return connection
        connection.close()
