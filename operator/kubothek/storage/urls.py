"""Validation of store URLs and object keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kubothek.errors import AccessDenied, InputError, InvalidKey

if TYPE_CHECKING:
    from kubothek.storage.base import StoreConfig

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_NO_SEGMENTS = frozenset(("", ".", ".."))
_KEY_BYTES = 1024
"""S3's limit for a key; the same for every store, so that data can be moved."""


@dataclass(frozen=True, slots=True)
class S3Location:
    """``s3://bucket[/prefix]``, without percent-decoding; ``prefix`` is empty or ends with ``/``."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class FileLocation:
    """``file:///absolute/path``, percent-decoded."""

    root: Path


def parse_url(url: str) -> S3Location | FileLocation:
    """Return the location of a store. Raises InputError with the accepted forms."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "s3":
        return _s3(url, rest)
    if separator and scheme == "file":
        return _file(url)
    meant = f"; did you mean {Path(url).absolute().as_uri()}?" if _is_path(url) else ""
    raise InputError(
        f"{url!r} is not a store URL{meant}: write s3://bucket, s3://bucket/prefix or file:///absolute/path"
    )


def create_directory(config: StoreConfig) -> None:
    """Create the directory of a file store before the first write; ignore other URLs. Raises AccessDenied."""
    if config.url.startswith("file:"):
        try:
            _file(config.url).root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AccessDenied(
                f"cannot create the directory of {config.url}: {error}; create it, or correct the URL"
            ) from error


def _is_path(url: str) -> bool:
    return bool(url) and "\0" not in url and "://" not in url and (url.startswith((".", "/", "~")) or ":" not in url)


def check_endpoint(endpoint: str) -> None:
    """Raise InputError unless this is a bare ``http(s)://host[:port]``."""
    try:
        parts = urlsplit(endpoint)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    bare = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
    if parts.scheme not in ("http", "https") or not parts.hostname or not bare or not port_is_fine:
        raise InputError(f"{endpoint!r} is no S3 endpoint: write http://host:port or https://host, without a path")


def check_key(key: str) -> str:
    """Return the key, if every store can hold it. Raises InvalidKey."""
    if not _NO_SEGMENTS.isdisjoint(key.split("/")):
        raise InvalidKey(f"{key!r} is no object key: it is a relative path without empty, '.' or '..' segments")
    return _check_text(key)


def check_prefix(prefix: str) -> str:
    """Return the prefix, if keys can start with it: its last segment may be partial or empty. Raises InvalidKey."""
    *segments, _partial = prefix.split("/")
    if not _NO_SEGMENTS.isdisjoint(segments):
        raise InvalidKey(f"{prefix!r} is no key prefix: it has empty, '.' or '..' segments")
    return _check_text(prefix)


def _check_text(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidKey(f"{key!r} is no object key: it is not valid Unicode") from None
    if "\0" in key or size > _KEY_BYTES:
        raise InvalidKey(f"{key[:80]!r}… is no object key: keys have at most {_KEY_BYTES} bytes and no NUL")
    return key


def _s3(url: str, rest: str) -> S3Location:
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket):
        raise InputError(f"{url!r}: {bucket!r} is no bucket name; write s3://bucket or s3://bucket/prefix")
    if not prefix:
        return S3Location(bucket, "")
    try:
        check_key(prefix)
    except InvalidKey as error:
        raise InputError(f"{url!r}: {error}") from None
    return S3Location(bucket, f"{prefix}/")


def _file(url: str) -> FileLocation:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise InputError(f"{url!r}: a file store has an absolute path and no host; write file:///absolute/path")
    if parts.query or parts.fragment or "\0" in path:
        raise InputError(f"{url!r}: write '?' as %3F, '#' as %23 and '%' as %25 in the path")
    if ".." in path.split("/"):
        raise InputError(f"{url!r}: the path has a '..' segment; write it out")
    return FileLocation(Path(path))
