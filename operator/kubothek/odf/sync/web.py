"""A repository over http or https: a file server, our gateway, or kamu's (TP-02 … TP-05)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError

from kubothek.errors import (
    AccessDenied,
    ChainCorrupt,
    DatasetNotFound,
    FormatInvalid,
    InvalidCredentials,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kubothek.odf.named import Kind, Named
from kubothek.odf.spec.blocks import LARGEST
from kubothek.odf.spec.layout import HEAD_BYTES, Layout, parse_head
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.connections import connections, origin_of
from kubothek.odf.sync.repository import PIECE, Reach, Stream
from kubothek.storage.retry import RetryPolicy, Verdict, with_retries

T = TypeVar("T")

_LAYOUT: Final = Layout()
_USUAL: Final = RetryPolicy()
_ANYBODY: Final = Reach()


class Web:
    """HTTP client for one repository. The token goes to the origin of ``url`` only."""

    def __init__(
        self,
        url: str,
        reach: Reach = _ANYBODY,
        patience: RetryPolicy = _USUAL,
    ) -> None:
        self.url = url.rstrip("/")
        self.reach = reach
        self.patience = patience
        self._headers = {"User-Agent": "kubothek", "Accept-Encoding": "identity"}
        self._authorization = {"Authorization": f"Bearer {reach.token}"} if reach.token else {}
        self._connections = connections(
            url, patience, reach.objects_at_once, ca_file=reach.ca_file, policy=reach.policy
        )

    def patiently(self, call: Callable[[], T]) -> T:
        """Return the call's result, with retries while the server is unavailable. Raises StoreError."""
        return with_retries(call, self._judge, self.patience)

    @contextmanager
    def ask(
        self, method: str, url: str, key: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send one request, and yield the response as a stream.

        ``key``  the object, for messages

        Raises StoreError for a response without success, HTTPError if there is none.
        """
        own = self._authorization if origin_of(url) == origin_of(self.url) else {}
        answer = self._connections.send(method, url, {**self._headers, **own, **(headers or {})}, body)
        try:
            if answer.status >= 300:
                raise self._refusal(answer, key)
            yield answer
        finally:
            if not answer.closed:  # unread bytes would precede the next response on this connection
                answer.close()
            answer.release_conn()

    def _refusal(self, answer: urllib3.BaseHTTPResponse, key: str) -> StoreError:
        what = f"{self.url}: {key}"
        match answer.status:
            case 401:
                return InvalidCredentials(f"{what} needs a token that the server knows; see `kubothek login`")
            case 403:
                return AccessDenied(f"{what} is not permitted for this token; ask the operators of the server")
            case 404 | 410:
                return ObjectNotFound(key, self.url)
            case 429 | 500 | 502 | 503 | 504:
                return StoreUnavailable(f"{what}: the server is in trouble (status {answer.status}); try again later")
        if answer.status == 412:
            return PreconditionFailed(f"{what} is there already")
        return StoreError(f"{what}: the server answers with status {answer.status}; is this the URL of a dataset?")

    def _judge(self, raised: Exception) -> Verdict | None:
        if isinstance(raised, StoreUnavailable):
            return Verdict(raised, self.patience.troubled)
        cause = raised.reason if isinstance(raised, MaxRetryError) else raised
        if isinstance(cause, NewConnectionError | SSLError):
            return Verdict(StoreUnavailable(f"{self.url} cannot be reached: {cause}"), self.patience.unreachable)
        if isinstance(raised, HTTPError):
            return Verdict(StoreUnavailable(f"{self.url} does not answer: {cause}"), self.patience.troubled)
        return None


class WebRepository:
    """Repository below one URL, by the simple protocol."""

    def __init__(self, web: Web) -> None:
        self.web = web

    @property
    def url(self) -> str:
        """Return the URL for messages."""
        return self.web.url

    def head(self) -> Multihash:
        """Return the last block."""
        try:
            return parse_head(self._get(_LAYOUT.head, 2 * HEAD_BYTES))
        except ObjectNotFound as error:
            raise DatasetNotFound(f"there is no dataset at {self.url}: it has no refs/head") from error
        except FormatInvalid as error:
            raise ChainCorrupt(f"{self.url}: {error}") from error

    def block(self, block: Multihash) -> bytes:
        """Return the unverified bytes of this block."""
        return self._get(_LAYOUT.block(block), LARGEST)

    def size(self, link: Multihash) -> int:
        """Return the size of the data object of this hash: stated by the server, else counted."""
        key = _LAYOUT.data(link)

        def stated() -> str | None:
            with self.web.ask("HEAD", f"{self.url}/{key}", key) as answer:
                return answer.headers.get("Content-Length")

        if (length := self.web.patiently(stated)) is not None:
            return int(length)
        size = 0
        with self.stream(Named(Kind.DATA, link, 0), 0) as stream:
            while piece := stream.read(PIECE):
                size += len(piece)
        return size

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Stream the bytes of an object from a position on."""
        with streamed(self.web, f"{self.url}/{named.key(_LAYOUT)}", named, start) as stream:
            yield stream

    def _get(self, key: str, most: int) -> bytes:
        def get() -> bytes:
            with self.web.ask("GET", f"{self.url}/{key}", key) as answer:
                data = answer.read(most + 1)
            if len(data) > most:
                raise ChainCorrupt(f"{self.url}/{key} exceeds the {most:,}-byte limit for this object type")
            return data

        return self.web.patiently(get)


@contextmanager
def streamed(
    web: Web, url: str, named: Named, start: int, headers: Mapping[str, str] | None = None
) -> Iterator[Stream]:
    """Stream an object from a URL, from a position on, even without support for ranges. Raises StoreError."""
    asked = {**(headers or {}), **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with web.ask("GET", url, str(named), asked) as answer:
            stream = _Answer(answer, web)
            if answer.status == 200:
                stream.skip(start)
            yield stream
    except HTTPError as error:
        where = url.partition("?")[0]  # the query may have a signature
        raise StoreUnavailable(f"{web.url}: {named} does not come from {where}: {error}") from error


class _Answer:
    """Stream that returns what was received so far, so bytes before a break are not lost."""

    def __init__(self, answer: urllib3.BaseHTTPResponse, web: Web) -> None:
        self._answer = answer
        self._web = web
        self._encoded = "Content-Encoding" in answer.headers  # we request none; read once: a lookup copies

    def read(self, size: int, /) -> bytes | memoryview:
        try:
            return self._answer.read1(size, decode_content=self._encoded)
        except HTTPError as error:
            raise StoreUnavailable(f"{self._web.url}: the connection broke: {error}") from error

    def skip(self, size: int) -> None:
        while size and (piece := self.read(min(PIECE, size))):
            size -= len(piece)
