"""Where skipping metadata lies, and what Xskipper calls a data file (Xskipper's Metadatastore Spec, "Version 0",
``obj_name``).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from uuid import uuid4

from kubothek.storage.urls import FileLocation, parse_url

OBJ_NAME: Final = "obj_name"
VIRTUAL: Final = "virtual_"
"""What the name of a partition column begins with."""
_PART: Final = re.compile(r"part-([0-9a-f]{8})-[0-9a-f]{32}\.parquet")
_PAUSE: Final = re.compile(r"definition-[0-9a-f]{32}\.parquet")


def location(uuid: str) -> str:
    """The prefix of Xskipper's files of a dataset; for Xskipper an ``EXPLICIT_LOCATION``. Nothing else lies there."""
    return f".kubothek/{uuid}/skipping/"


def own_location(uuid: str) -> str:
    """Return the prefix of entries that Xskipper has no form for: its REFRESH fails on what it does not know."""
    return f".kubothek/{uuid}/skipping-own/"


def new_key(prefix: str, wish: str) -> str:
    """Return a new name for a metadata file; ``wish`` tells which have the same columns.

    Spark leaves out names that begin with ``_`` or a dot, and takes the schema from the first in the order of names.
    """
    return f"{prefix}part-{wish}-{uuid4().hex}.parquet"


def new_pause_key(prefix: str) -> str:
    """Return a new name for a file that comes before all others."""
    return f"{prefix}definition-{uuid4().hex}.parquet"


def is_pause(key: str) -> bool:
    """Return whether the key is one of those."""
    return key.rpartition("/")[2].startswith("definition-")


def wish_of(key: str) -> str | None:
    """Return the wish that a metadata file of ours was written for; None if its name is not of ours."""
    match = _PART.fullmatch(key.rpartition("/")[2])
    return match[1] if match else None


def is_own_key(uuid: str, key: str) -> bool:
    """Return whether Kubothek wrote the object: what a collector may look at."""
    directory = f"{key.rpartition('/')[0]}/"
    if directory not in (location(uuid), own_location(uuid)):
        return False
    return wish_of(key) is not None or _PAUSE.fullmatch(key.rpartition("/")[2]) is not None


def object_path(store_url: str, key: str) -> str:
    """Return the path that Hadoop has for an object: without scheme, host and bucket, nothing encoded."""
    place = parse_url(store_url)
    if isinstance(place, FileLocation):
        return f"{str(place.root).rstrip('/')}/{key}"
    return f"/{place.prefix}{key}"


def table_identifier(path: str) -> str:
    """Return what Xskipper calls the dataset whose root has this Hadoop path."""
    return path.removesuffix("/")


def hashed_location(base: str, identifier: str) -> str:
    """Return the directory of a dataset below a base path, which is how Xskipper lays metadata out by default."""
    return f"{base.rstrip('/')}/{sha256(identifier.encode()).hexdigest()}/"
