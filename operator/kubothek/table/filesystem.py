"""A store as an Arrow file system, for scans.

It is Arrow's own client of the same location, not a wrapper around :class:`~kubothek.storage.Store`. With a file system
in Python, ``Scanner.to_reader``, which DuckDB also calls, can deadlock: it holds the interpreter lock while Arrow's
threads wait for it to open files. All reads would also share one interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import fs

from kubothek.storage.base import Store, StoreConfig
from kubothek.storage.credentials import MountedCredentials
from kubothek.storage.urls import FileLocation, S3Location, check_key, parse_url

_ATTEMPTS = 9
"""With the backoff of the AWS SDK between them, 45 seconds."""


def arrow_filesystem(store: Store) -> fs.FileSystem:
    """Return the store's objects as a file system without contacting the store; paths are keys.

    Call :meth:`.Store.check_no_links` for a key first. Credentials from a directory are those of this moment; the AWS
    SDK's chain renews its own.
    """
    location = parse_url(store.config.url)
    if isinstance(location, FileLocation):
        return fs.SubTreeFileSystem(str(location.root), fs.LocalFileSystem())
    return fs.SubTreeFileSystem(f"{location.bucket}/{location.prefix}", _s3(store.config, location))


def local_path(store: Store) -> Callable[[str], Path] | None:
    """Return a function from a key to its file on this machine; None if the store is elsewhere.

    The function raises InvalidKey. For paths that another library opens, call :meth:`.Store.check_no_links` first.
    """
    location = parse_url(store.config.url)
    return (lambda key: location.root / check_key(key)) if isinstance(location, FileLocation) else None


def _s3(config: StoreConfig, location: S3Location) -> fs.S3FileSystem:
    options: dict[str, Any] = {}
    if config.endpoint:
        options["scheme"], _, host = config.endpoint.partition("://")
        options["endpoint_override"] = host.rstrip("/")
    if config.credentials_dir:
        mounted = MountedCredentials(Path(config.credentials_dir)).get_frozen_credentials()
        options["access_key"], options["secret_key"] = mounted.access_key, mounted.secret_key
        options["session_token"] = mounted.token
    if authorities := os.environ.get("AWS_CA_BUNDLE"):
        options["tls_ca_file_path"] = authorities
    region = config.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region and not config.endpoint:
        region = fs.resolve_s3_region(location.bucket)
    return fs.S3FileSystem(
        region=region or "us-east-1",
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **options,
    )
