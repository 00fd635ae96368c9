"""Object stores behind one small interface: S3 and a directory of files."""

from __future__ import annotations

import os
from dataclasses import replace

from kubothek.errors import InputError
from kubothek.storage.base import Capabilities, ObjectInfo, Presigned, Staged, Store, StoreConfig
from kubothek.storage.file import FileStore
from kubothek.storage.urls import FileLocation, check_endpoint, parse_url

__all__ = ["Capabilities", "ObjectInfo", "Presigned", "Staged", "Store", "StoreConfig", "open_store"]


def open_store(config: StoreConfig) -> Store:
    """Return the store at ``config.url``; contacts nothing yet. Raises InputError for an invalid configuration.

    Its ``config`` names the endpoint even if it comes from the environment, because Arrow's and Spark's S3 clients do
    not read it there.
    """
    location = parse_url(config.url)
    if isinstance(location, FileLocation):
        if config.endpoint or config.region or config.credentials_dir:
            raise InputError(f"{config.url!r} is a directory: endpoint, region and credentials belong to s3:// stores")
        return FileStore(config, location)
    if config.endpoint is None:
        environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        config = replace(config, endpoint=environment or None)
    if config.endpoint is not None:
        check_endpoint(config.endpoint)
    from kubothek.storage.s3 import S3Store  # boto3 takes 0.3 s to import

    return S3Store(config, location)
