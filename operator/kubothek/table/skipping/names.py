"""Keys of skipping metadata, and Xskipper's name of a data file, ``obj_name``.

See Xskipper's Metadatastore Spec, "Version 0".
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from uuid import uuid4

from kubothek.storage.urls import FileLocation, parse_url

OBJ_NAME: Final = "obj_name"
VIRTUAL: Final = "virtual_"
"""Prefix of the names of partition columns."""
_PART: Final = re.compile(r"part-([0-9a-f]{8})-[0-9a-f]{32}\.parquet")
_PAUSE: Final = re.compile(r"definition-[0-9a-f]{32}\.parquet")


def location(uuid: str) -> str:
    """Return the prefix of Xskipper's files of a dataset, its ``EXPLICIT_LOCATION``. No other files are there."""
    return f".kubothek/{uuid}/skipping/"


def own_location(uuid: str) -> str:
    """Return the prefix of entries of own index types, kept apart because Xskipper's REFRESH fails on unknown types."""
    return f".kubothek/{uuid}/skipping-own/"


def new_key(prefix: str, tag: str) -> str:
    """Return a new key for a metadata file; ``tag`` is the digest of its definitions, which determine its columns.

    Spark skips names that begin with ``_`` or a dot, and takes the schema from the first file in name order.
    """
    return f"{prefix}part-{tag}-{uuid4().hex}.parquet"


def new_pause_key(prefix: str) -> str:
    """Return a new key for a sentinel file, which sorts before all metadata files."""
    return f"{prefix}definition-{uuid4().hex}.parquet"


def is_pause(key: str) -> bool:
    """Return whether the key is that of a sentinel file."""
    return key.rpartition("/")[2].startswith("definition-")


def definitions_tag_of(key: str) -> str | None:
    """Return the id of the definitions that a metadata file was written for; None if its name is not Kubothek's."""
    match = _PART.fullmatch(key.rpartition("/")[2])
    return match[1] if match else None


def is_own_key(uuid: str, key: str) -> bool:
    """Return whether Kubothek wrote the object, so that garbage collection may consider it."""
    directory = f"{key.rpartition('/')[0]}/"
    if directory not in (location(uuid), own_location(uuid)):
        return False
    return definitions_tag_of(key) is not None or _PAUSE.fullmatch(key.rpartition("/")[2]) is not None


def object_path(store_url: str, key: str) -> str:
    """Return the Hadoop path of an object: without scheme, host and bucket, unencoded."""
    place = parse_url(store_url)
    if isinstance(place, FileLocation):
        return f"{str(place.root).rstrip('/')}/{key}"
    return f"/{place.prefix}{key}"


def table_identifier(path: str) -> str:
    """Return Xskipper's identifier of the dataset whose root has this Hadoop path."""
    return path.removesuffix("/")


def hashed_location(base: str, identifier: str) -> str:
    """Return the directory of a dataset below a base path, Xskipper's default layout of metadata."""
    return f"{base.rstrip('/')}/{sha256(identifier.encode()).hexdigest()}/"
