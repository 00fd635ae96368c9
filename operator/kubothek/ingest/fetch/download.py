"""Download of a source URL into a file, under the policy."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from kubothek.errors import SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.ingest.fetch.pinned import pinned, request
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.ingest.fetch.retries import tried
from kubothek.storage.ranges import RangeReader

_TIMEOUT: Final = 30.0
"""Seconds to connect, and between two pieces of an answer."""
_SLOW_FOR: Final = 120.0
_SLOWEST: Final = 1 << 10
"""Minimum bytes per second, after ``_SLOW_FOR`` seconds; a slower download is abandoned."""
_REDIRECTS: Final = 5
_PIECE: Final = 1 << 20
_HEADERS: Final = {"User-Agent": "kubothek", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Download:
    """A fetched file without a name, which needs no cleanup.

    ``fingerprint`` is the server's ETag or date, and the size; ``etag`` and ``modified`` are its headers, if it sent
    them.
    """

    file: IO[bytes]
    size: int
    fingerprint: str
    etag: str | None = None
    modified: str | None = None

    def open(self) -> io.BufferedReader:
        """Return a reader with its own position; several may read at once."""
        descriptor = self.file.fileno()
        return io.BufferedReader(
            RangeReader(self.size, b"", lambda start, stop: os.pread(descriptor, stop - start, start)), _PIECE
        )


def fetch(url: str, policy: UrlPolicy) -> Download:
    """Copy the content of the URL into a temporary file.

    Raises SourceRefused (policy), SourceNotFound, or SourceUnavailable (no answer, 429, 5xx). The caller retries the
    latter: Spark has its own retries.
    """
    parts = policy.check(url)
    if parts.scheme == "file":
        return _copy(url, Path(unquote(parts.path)))
    found = _downloaded(url, policy, {}, {}, _REDIRECTS, _Body())
    assert found is not None  # there were no conditions
    return found


def download(
    url: str,
    policy: UrlPolicy,
    headers: Mapping[str, str] | None = None,
    conditions: Mapping[str, str] | None = None,
    redirects: int = _REDIRECTS,
) -> Download | None:
    """Fetch as :func:`fetch` does, over http and https; None if the server reports unmet ``conditions`` (headers).

    Temporary failures are retried a few times, over some seconds. ``headers`` may be secrets: a redirect to another
    origin does not get them. A download that breaks off continues where it ended, if the server sent a strong ETag;
    else it starts again.
    """
    policy.check(url)
    body = _Body()
    try:
        found = tried(lambda: _downloaded(url, policy, headers or {}, conditions or {}, redirects, body))
    except BaseException:
        body.file.close()
        raise
    if found is None:
        body.file.close()
    return found


def _downloaded(
    url: str,
    policy: UrlPolicy,
    headers: Mapping[str, str],
    conditions: Mapping[str, str],
    redirects: int,
    body: _Body,
) -> Download | None:
    """Make one attempt; ``body`` has what earlier ones received."""
    parts = policy.check(url)
    origin = _origin(parts)
    for _ in range(redirects + 1):
        own = headers if _origin(parts) == origin else {}
        with _get(parts, policy, {**own, **conditions, **body.wanted()}) as answer:
            target = answer.headers.get("Location")
            if answer.status == 304 and conditions:
                return None
            if answer.status not in (301, 302, 303, 307, 308) or target is None:
                return _save(url, answer, policy, body)
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
def _get(parts: SplitResult, policy: UrlPolicy, headers: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
    timeout = urllib3.Timeout(connect=_TIMEOUT, read=_TIMEOUT)
    own = {k: v for k, v in _HEADERS.items() if k.lower() not in map(str.lower, headers)}
    with pinned(urllib3.PoolManager(timeout=timeout), policy) as pools:
        try:
            answer = request(pools, "GET", parts, headers | own)
        except (NewConnectionError, ConnectTimeoutError, SSLError) as error:
            raise SourceUnavailable(f"{parts.geturl()!r} cannot be reached: {error}") from None
        except HTTPError as error:
            raise SourceUnavailable(f"{parts.geturl()!r} does not answer: {error}") from None
        with closing(answer):
            yield answer


def _save(url: str, answer: urllib3.BaseHTTPResponse, policy: UrlPolicy, body: _Body) -> Download:
    if answer.status == 429 or answer.status >= 500:
        away = SourceUnavailable(f"{url!r}: the server answers {answer.status} {answer.reason}")
        away.after = _seconds(answer.headers.get("Retry-After"))
        raise away
    if answer.status not in (200, 206, 416) or (answer.status != 200 and not body.size):
        raise SourceNotFound(f"{url!r}: the server answers {answer.status} {answer.reason}; correct the URL")
    if answer.status == 416 or not body.continues_with(answer):
        body.begin_anew()
        if answer.status != 200:
            raise SourceUnavailable(f"{url!r}: the server answers with another part of the file than was asked for")
    if answer.status == 200:  # a partial answer may omit these headers
        body.etag, body.modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
    try:
        for piece in _pieces(url, answer):
            if body.size + len(piece) > policy.max_bytes:
                raise SourceRefused(
                    f"{url!r} is larger than {policy.max_bytes} bytes, the limit of a download; "
                    "put the file into an ObjectStore"
                )
            body.add(piece)
    except HTTPError as error:
        raise SourceUnavailable(f"{url!r} broke off after {body.size} bytes: {error}") from None
    body.file.flush()
    fingerprint = f"{body.etag or body.modified or ''}-{body.size}"
    return Download(body.file, body.size, fingerprint, body.etag, body.modified)


def _pieces(url: str, answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises SourceUnavailable if it arrives too slowly."""
    started, size = time.monotonic(), 0
    while piece := answer.read1(_PIECE, decode_content=False):
        yield piece
        size += len(piece)
        spent = time.monotonic() - started
        if spent > _SLOW_FOR and size < spent * _SLOWEST:
            raise SourceUnavailable(f"{url!r} comes too slowly, {size} bytes in {spent:.0f} seconds")


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, a number or a date; None for other values."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


@dataclass(slots=True)
class _Body:
    """What was received of a file so far, over several attempts, and the server's headers for it."""

    file: IO[bytes] = field(default_factory=TemporaryFile)
    size: int = 0
    etag: str | None = None
    modified: str | None = None

    def wanted(self) -> dict[str, str]:
        """Return the headers that request the rest, or the whole file if it has changed."""
        if not self.size or self.etag is None or not self.etag.startswith('"'):
            return {}  # a weak ETag does not identify exact bytes
        return {"Range": f"bytes={self.size}-", "If-Range": self.etag}

    def continues_with(self, answer: urllib3.BaseHTTPResponse) -> bool:
        """Return whether the answer continues the bytes received so far; without any, each answer does."""
        if answer.status == 206:
            return (answer.headers.get("Content-Range") or "").startswith(f"bytes {self.size}-")
        return not self.size

    def begin_anew(self) -> None:
        """Discard the bytes received so far."""
        self.file.seek(0)
        self.file.truncate()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        self.file.write(piece)
        self.size += len(piece)
