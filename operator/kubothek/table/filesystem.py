"""A store as an Arrow file system, for scans.

It is Arrow's own client of the same place, not a wrapper around :class:`~kubothek.storage.Store`: with a
file system written in Python, ``Scanner.to_reader``, which DuckDB calls too, can deadlock (it keeps the
interpreter's lock while Arrow's threads wait for it to open files), and all reading would share one
interpreter.
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
"""With the pauses of the AWS SDK between them, three quarters of a minute."""


def arrow_filesystem(store: Store) -> fs.FileSystem:
    """The store's objects as files; paths are keys, for which :meth:`.Store.check_no_links` comes first. Contacts
    nothing yet.

    Credentials are those of this moment if they come from a directory; the AWS SDK's chain renews its own.
    """
    location = parse_url(store.config.url)
    if isinstance(location, FileLocation):
        return fs.SubTreeFileSystem(str(location.root), fs.LocalFileSystem())
    return fs.SubTreeFileSystem(f"{location.bucket}/{location.prefix}", _s3(store.config, location))


def local_path(store: Store) -> Callable[[str], Path] | None:
    """Return where on this machine the object of a key is a file; None if the store is elsewhere.

    What is returned raises InvalidKey. For paths that another library opens, :meth:`.Store.check_no_links` comes first.
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
