"""Keys of index objects: Kartothek's own (Kartothek specification, "Index files"), and native ones under ``.kubothek``.

Every key that Kubothek writes ends in a hash of the object's bytes, and a head or a manifest names the key. A reader
can thus tell a damaged or outdated object from the committed one.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote
from uuid import uuid4

_DIGITS: Final = 32
"""Hexadecimal digits of SHA-256 in a key."""
_HASH: Final = re.compile(rf"-([0-9a-f]{{{_DIGITS}}})(?:\.by-dataset-index)?\.(?:parquet|json)\Z")


def kartothek_key(uuid: str, column: str, moment: datetime, digest: str) -> str:
    """Return Kartothek's key of an index that was made at ``moment``, in naive UTC as kartothek 5.3 writes it."""
    stamp = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{uuid}/indices/{quote(column, safe='')}/{quote(stamp, safe='')}-{digest}.by-dataset-index.parquet"


def new_file_key(uuid: str, column: str, digest: str) -> str:
    """Return a new key for a sorted file of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}-{digest}.parquet"


def new_manifest_key(uuid: str, column: str, digest: str) -> str:
    """Return a new key for a manifest of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}-{digest}.json"


def digest_of(data: bytes | memoryview) -> str:
    """Return the hash of an index object, as in its key."""
    return sha256(data).hexdigest()[:_DIGITS]


def digest_in(key: str) -> str | None:
    """Return the hash in the key of an index object; None if an older Kubothek or another program wrote it."""
    found = _HASH.search(key)
    return None if found is None else found[1]


def _native(uuid: str, column: str) -> str:
    return f".kubothek/{uuid}/index/{quote(column, safe='')}/"
