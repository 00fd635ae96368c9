"""The fetch step for URLs: http, https, file, s3, ftp, ftps (FE-01, FE-04, FE-06 … FE-08)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kubothek.errors import FormatInvalid, InputError, SourceRefused
from kubothek.ingest.fetch.download import download
from kubothek.ingest.fetch.retries import tried
from kubothek.odf.sources.fetch.context import ETAG, LAST_MODIFIED, FetchContext, File, UpToDate, state_of
from kubothek.odf.sources.fetch.event_times import of_url, to_milliseconds
from kubothek.odf.sources.fetch.ftp import fetch_ftp
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.sources.readers.content import FileContent, ObjectContent, too_large
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import FetchStepUrl, SourceCachingForever
from kubothek.odf.spec.timestamps import Timestamp

_REDIRECTS: Final = 10
_RESERVED: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "if-none-match"})
"""Headers that the client sets itself."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def fetch_url(
    step: FetchStepUrl, state: SourceState | None, context: FetchContext, templates: Templates
) -> File | UpToDate:
    """Return the file, unless it is the one of ``state``.

    Raises SourceRefused, SourceNotFound, SourceUnavailable, InputError (templates, event time).
    """
    of_url(step.event_time, None, context.now)  # raises before the first request
    if isinstance(step.cache, SourceCachingForever) and (context.ingested or state is not None):
        return UpToDate()
    if context.ingested and state is None and not context.fetch_uncacheable:
        return UpToDate(uncacheable=True)
    url = templates.filled(step.url)
    match urlsplit(url).scheme:
        case "file":
            return _file(url, step, state, context)
        case "s3":
            return _object(url, step, state, context)
        case "ftp" | "ftps":
            return File(
                content=tried(lambda: fetch_ftp(url, step.url, context.policy)),
                state=None,
                event_time=to_milliseconds(context.now),
            )
        case "http" | "https":
            return _http(url, step, state, context, templates)
    raise SourceRefused(f"{step.url!r}: sources are http, https, ftp, ftps, s3 and (on one's own machine) file URLs")


def _http(
    url: str, step: FetchStepUrl, state: SourceState | None, context: FetchContext, templates: Templates
) -> File | UpToDate:
    headers = {each.name: templates.filled(each.value) for each in step.headers or ()}
    _check_headers(headers)
    found = download(url, context.policy, headers, _conditions(state), _REDIRECTS)
    if found is None:
        return UpToDate()
    modified = _http_date(found.modified)
    new: SourceState | None = None
    if found.etag is not None:
        new = state_of(ETAG, found.etag)
    elif modified is not None:
        new = state_of(LAST_MODIFIED, str(modified))
    if new is not None and new == state:
        found.file.close()
        return UpToDate()  # the server ignores conditional requests
    return File(
        content=FileContent(step.url, found.file),
        state=new,
        event_time=of_url(step.event_time, modified, context.now),
    )


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if name.lower() in _RESERVED:
            raise InputError(f"fetch.headers: {name!r} is the client's own header; leave it out")
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise InputError(f"fetch.headers: {name!r} is no name of a header")
        if any(sign < " " or sign == "\x7f" or sign > "\xff" for sign in value):
            raise InputError(f"fetch.headers: the value of {name!r} has characters that no header has")


def _conditions(state: SourceState | None) -> dict[str, str]:
    """Return the headers of a conditional request; a state of another kind is safe to ignore (SS-02)."""
    if state is not None and state.kind == ETAG and state.value.isprintable() and state.value.isascii():
        return {"If-None-Match": state.value}
    if state is not None and state.kind == LAST_MODIFIED:
        try:
            moment = _EPOCH + timedelta(microseconds=Timestamp.parse(state.value).nanoseconds // 1000)
        except FormatInvalid:
            return {}
        return {"If-Modified-Since": format_datetime(moment, usegmt=True)}
    return {}


def _http_date(text: str | None) -> Timestamp | None:
    """Return the date, None for text that is not one: it counts as absent."""
    try:
        found = None if text is None else parsedate_to_datetime(text)
    except ValueError:
        return None
    return None if found is None else Timestamp.of(found if found.tzinfo else found.replace(tzinfo=UTC))


def _file(url: str, step: FetchStepUrl, state: SourceState | None, context: FetchContext) -> File | UpToDate:
    path = Path(unquote(context.policy.check(url).path))
    content = FileContent.of_path(path, step.url)
    modified = to_milliseconds(Timestamp(path.stat().st_mtime_ns))
    new = state_of(LAST_MODIFIED, str(modified))
    if new == state:
        return UpToDate()
    if path.stat().st_size > context.policy.max_bytes:
        raise too_large(step.url, context.policy.max_bytes)
    return File(content=content, state=new, event_time=of_url(step.event_time, modified, context.now))


def _object(url: str, step: FetchStepUrl, state: SourceState | None, context: FetchContext) -> File | UpToDate:
    if context.locate is None:
        raise SourceRefused(f"{step.url!r}: this source may read no object store")
    store, key = context.locate(url)
    content = ObjectContent.of(step.url, store, key)
    new = state_of(ETAG, content.info.etag)
    if new == state:
        return UpToDate()
    if content.info.size > context.policy.max_bytes:
        raise too_large(step.url, context.policy.max_bytes)
    modified = Timestamp.of(content.info.modified)
    return File(content=content, state=new, event_time=of_url(step.event_time, modified, context.now))
