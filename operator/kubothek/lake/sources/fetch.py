"""Downloading a source URL into a file, under the policy.

The connection goes to the address that was checked, not to the name again: a second answer of the DNS cannot
swap it. Proxies of the environment are not used for the same reason.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from kubothek.lake.errors import SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.lake.sources.policy import UrlPolicy
from kubothek.lake.store.ranges import RangeReader

_TIMEOUT: Final = 30.0
"""Seconds to connect, and between two pieces of an answer."""
_REDIRECTS: Final = 5
_PIECE: Final = 1 << 20
_HEADERS: Final = {"User-Agent": "kubothek", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Download:
    """A fetched file, which has no name and so needs no cleaning up. ``fingerprint`` is the server's ETag or
    date, and the size; ``etag`` and ``modified`` are its headers, if it sent them.
    """

    file: IO[bytes]
    size: int
    fingerprint: str
    etag: str | None = None
    modified: str | None = None

    def open(self) -> io.BufferedReader:
        """A reader of its own position; several may read at once."""
        descriptor = self.file.fileno()
        return io.BufferedReader(
            RangeReader(self.size, b"", lambda start, stop: os.pread(descriptor, stop - start, start)), _PIECE
        )


def fetch(url: str, policy: UrlPolicy) -> Download:
    """Copy what is at the URL into a temporary file.

    Raises SourceRefused (policy), SourceNotFound, or SourceUnavailable (no answer, 429, 5xx; worth another
    try).
    """
    parts = policy.check(url)
    if parts.scheme == "file":
        return _copy(url, Path(unquote(parts.path)))
    found = download(url, policy)
    assert found is not None  # there were no conditions
    return found


def download(
    url: str,
    policy: UrlPolicy,
    headers: Mapping[str, str] | None = None,
    conditions: Mapping[str, str] | None = None,
    redirects: int = _REDIRECTS,
) -> Download | None:
    """As :func:`fetch`, of http and https; None if the server says that the ``conditions`` (headers) are not met.

    ``headers`` may be secrets: a redirect to another origin does not get them.
    """
    parts = policy.check(url)
    origin = _origin(parts)
    for _ in range(redirects + 1):
        own = headers if headers is not None and _origin(parts) == origin else {}
        with _get(parts, policy, {**own, **(conditions or {})}) as answer:
            target = answer.headers.get("Location")
            if answer.status == 304 and conditions:
                return None
            if answer.status not in (301, 302, 303, 307, 308) or target is None:
                return _save(url, answer, policy)
        onward = urljoin(parts.geturl(), target)
        if urlsplit(onward).scheme == "file":
            raise SourceRefused(f"{url!r} redirects to {onward!r}: a redirect may not lead to a file")
        parts = policy.check(onward)
    raise SourceRefused(f"{url!r} redirects more than {redirects} times; name the file's own URL")


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port


def _copy(url: str, path: Path) -> Download:
    try:
        if not path.is_file():
            raise SourceNotFound(f"{url!r}: there is no such file; correct the path")
        with path.open("rb") as original:
            copy = TemporaryFile()  # noqa: SIM115 - the Download owns it
            shutil.copyfileobj(original, copy, _PIECE)
            copy.flush()
            stat = os.fstat(original.fileno())
    except OSError as error:
        raise SourceNotFound(f"{url!r} cannot be read: {error.strerror}; correct the path or its permissions") from None
    return Download(copy, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_size}")


@contextmanager
def _get(parts: SplitResult, policy: UrlPolicy, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with closing(_connect(parts, policy.resolve(parts))) as connection:
        try:
            connection.request(
                "GET",
                target,
                headers=headers | {k: v for k, v in _HEADERS.items() if k.lower() not in map(str.lower, headers)},
            )
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnavailable(f"{parts.geturl()!r} does not answer: {error}") from None
        yield answer


def _connect(parts: SplitResult, addresses: list[tuple[str, int]]) -> http.client.HTTPConnection:
    """A connection whose socket is open to the first of the checked addresses that takes it."""
    host, problem = parts.hostname or "", OSError("no address")
    for address in addresses:
        try:
            link = socket.create_connection(address, timeout=_TIMEOUT)
            if parts.scheme == "https":
                link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
        except OSError as error:
            problem = error
            continue
        connection = http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT)
        # http.client writes the Host header from its name and leaves an open socket as it is.
        connection.sock = link
        return connection
    raise SourceUnavailable(f"{parts.geturl()!r} cannot be reached: {problem}")


def _save(url: str, answer: http.client.HTTPResponse, policy: UrlPolicy) -> Download:
    if answer.status == 429 or answer.status >= 500:
        raise SourceUnavailable(f"{url!r}: the server answers {answer.status} {answer.reason}")
    if answer.status != 200:
        raise SourceNotFound(f"{url!r}: the server answers {answer.status} {answer.reason}; correct the URL")
    file, size = TemporaryFile(), 0  # noqa: SIM115 - the Download owns it
    try:
        while piece := answer.read(_PIECE):
            size += len(piece)
            if size > policy.max_bytes:
                raise SourceRefused(
                    f"{url!r} is larger than {policy.max_bytes} bytes, the limit of a download; "
                    "put the file into an ObjectStore"
                )
            file.write(piece)
        file.flush()
    except (OSError, http.client.HTTPException) as error:
        raise SourceUnavailable(f"{url!r} broke off after {size} bytes: {error}") from None
    # http.client does not complain about a connection that closes early.
    if answer.length:
        raise SourceUnavailable(f"{url!r} broke off after {size} bytes, {answer.length} too few")
    etag, modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
    return Download(file, size, f"{etag or modified or ''}-{size}", etag, modified)
