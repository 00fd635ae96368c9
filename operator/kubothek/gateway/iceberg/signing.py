"""Remote signing: a client without credentials of the bucket has each of its requests for an object signed.

Iceberg REST specification, ``RemoteSignRequest`` and ``RemoteSignResult``. A signature is a presigned URL (AWS
Signature Version 4, query parameters) for one method and one key, that expires soon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPMethod
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

import orjson
from aiohttp import web

from kubothek.errors import FormatInvalid, InvalidKey
from kubothek.storage import Presigned, Store
from kubothek.storage.urls import S3Location, check_key, parse_url
from kubothek.table.log.model import keys

DELEGATION: Final = "X-Iceberg-Access-Delegation"
"""The header in which a client names the mechanisms that it supports."""
REMOTE_SIGNING: Final = "remote-signing"
SECONDS: Final = 300
"""Lifetime of a signature, at most; a client sends the request at once, but clocks may differ."""
_METHODS: Final = {"GET": HTTPMethod.GET, "HEAD": HTTPMethod.HEAD}
_SIGNED_HEADER: Final = re.compile(r"x-amz-[a-z0-9-]+")
_OPERATION: Final = ("", "x-id=GetObject", "x-id=HeadObject")
"""Queries of a plain request for an object; some clients add the name of the operation."""


def sign_endpoint(namespace: str, name: str) -> str:
    """Return the path, below the catalogue's URI, at which requests for the files of a table are signed."""
    return f"v1/namespaces/{quote(namespace, safe='')}/tables/{quote(name, safe='')}/sign"


def table_config(store: Store, signer: str | None) -> dict[str, str]:
    """Return what a client needs to read the files of a table; ``signer``: the endpoint of remote signing, if it is on.

    Readers of a ``file://`` store open its paths.
    """
    config = store.config
    if not isinstance(parse_url(config.url), S3Location):
        return {}
    found: dict[str, str] = {}
    if config.endpoint:
        found |= {"s3.endpoint": config.endpoint, "s3.path-style-access": "true"}
    if region := config.region or ("us-east-1" if config.endpoint else None):
        found |= {"s3.region": region, "client.region": region}
    if signer is not None:
        found |= {
            "s3.remote-signing-enabled": "true",
            "s3.signer.endpoint": signer,
            "s3.signer": "S3V4RestSigner",  # of pyiceberg, whose other FileIO signs with its own credentials
            "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        }
    return found


@dataclass(frozen=True, slots=True)
class SignRequest:
    """A client's request for an object, to be signed; ``headers`` are those that S3 accepts only signed."""

    method: str
    uri: str
    headers: dict[str, str]

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Parse a ``RemoteSignRequest``. Raises FormatInvalid."""
        try:
            found = orjson.loads(body)
            headers = {
                str(name).lower(): ",".join(map(str, values)) for name, values in (found.get("headers") or {}).items()
            }
            method, uri = found["method"], found["uri"]
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            raise FormatInvalid("a request to sign is a JSON object with region, method, uri and headers") from None
        if not isinstance(method, str) or not isinstance(uri, str):
            raise FormatInvalid("method and uri of a request to sign are text")
        signed = {name: value for name, value in headers.items() if _SIGNED_HEADER.fullmatch(name)}
        if not all(value.isprintable() and value.isascii() for value in signed.values()):
            raise FormatInvalid("a header of a request to sign is not printable ASCII")
        return cls(method, uri, signed)


def sign(store: Store, uuid: str, asked: SignRequest, seconds: int) -> Presigned:
    """Sign a request for a file of a dataset. Raises HTTPForbidden for any other request, FormatInvalid."""
    place = parse_url(store.config.url)
    if not isinstance(place, S3Location):
        raise web.HTTPForbidden(text=f"{store.url} is not a bucket: read its files by their paths")
    if (method := _METHODS.get(asked.method)) is None:
        raise web.HTTPForbidden(text=f"{asked.method[:20]} is not signed: the table is read-only, use GET or HEAD")
    key = _key(place, store.config.endpoint, asked.uri)
    if key is None or not is_table_file(uuid, key):
        raise web.HTTPForbidden(text=f"{asked.uri[:1100]!r} is not signed: it is not the URI of a file of this table")
    signed = store.presigned(method, key, seconds, asked.headers)
    assert signed is not None, "a bucket has presigned URLs"
    return signed


def is_table_file(uuid: str, key: str) -> bool:
    """Return whether a key is one of a dataset's data files or of its Iceberg metadata, by its name only.

    A table that has been part of a dataset of several tables may have files below the prefix of that dataset. These
    count as files of that dataset only.
    """
    try:
        check_key(key)
    except InvalidKey:
        return False
    is_data = key.startswith(keys.dataset(uuid)) and key.endswith(".parquet")
    return key.startswith(keys.iceberg(uuid)) or (is_data and not key.startswith(keys.indices(uuid)))


def _key(place: S3Location, endpoint: str | None, uri: str) -> str | None:
    """Return the key, relative to the store, of the object that a URI names; None for other requests than for one."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise FormatInvalid(f"{uri[:200]!r} is not a valid URI") from None
    if parts.query not in _OPERATION:
        return None
    path = unquote(parts.path)
    host = urlsplit(endpoint).netloc if endpoint else "s3."
    bucket_in_host = parts.netloc.startswith(f"{place.bucket}.{host}")
    root = f"/{place.prefix}" if bucket_in_host else f"/{place.bucket}/{place.prefix}"
    return path.removeprefix(root) if path.startswith(root) else None
