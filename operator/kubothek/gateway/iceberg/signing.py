"""Remote signing: a client without credentials of the bucket has each of its requests for an object signed.

Iceberg REST specification, ``RemoteSignRequest`` and ``RemoteSignResult``. A signature is a presigned URL (AWS
Signature Version 4, query parameters) for one method and one key, that expires soon.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from kubothek.storage import Store
from kubothek.storage.urls import S3Location, parse_url

DELEGATION: Final = "X-Iceberg-Access-Delegation"
"""The header in which a client names the mechanisms that it supports."""
REMOTE_SIGNING: Final = "remote-signing"


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
