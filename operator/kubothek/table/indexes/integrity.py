"""Integrity of index objects: bytes against the hash in the key, size and rows against the manifest."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import Final

from kubothek.errors import IndexStale, ObjectNotFound
from kubothek.storage import Store
from kubothek.table.indexes.model import IndexFile, digest_in, digest_of

_PIECE: Final = 1 << 20


def check_bytes(key: str, data: bytes | memoryview) -> None:
    """Raise IndexStale if the bytes do not have the hash in the key."""
    expected = digest_in(key)
    if expected is not None and digest_of(data) != expected:
        raise _damaged(key, "its bytes do not have the hash in its name")


def check_size(file: IndexFile, size: int) -> None:
    """Raise IndexStale if the size of a native index file differs from its manifest."""
    if size != file.bytes:
        raise _damaged(file.key, f"it has {size:,} bytes, its manifest says {file.bytes:,}")


def check_rows(file: IndexFile, rows: int) -> None:
    """Raise IndexStale if the row count of a native index file differs from its manifest."""
    if rows != file.rows:
        raise _damaged(file.key, f"it has {rows:,} rows, its manifest says {file.rows:,}")


def check_stream(key: str, source: io.BufferedIOBase) -> None:
    """Check an open file as :func:`check_bytes` does, a piece at a time; it is at its beginning before and after."""
    expected = digest_in(key)
    if expected is None:
        return
    found = sha256()
    while piece := source.read(_PIECE):
        found.update(piece)
    source.seek(0)
    if not found.hexdigest().startswith(expected):
        raise _damaged(key, "its bytes do not have the hash in its name")


def check_object(store: Store, key: str) -> None:
    """Read an index object and compare its bytes with the hash in its key. Raise IndexStale, also if it is missing."""
    try:
        with store.open(key) as source:
            check_stream(key, source)
    except ObjectNotFound as error:
        raise _damaged(key, "it is gone") from error


def _damaged(key: str, why: str) -> IndexStale:
    return IndexStale(f"index object {key} is damaged: {why}; rebuild the index: kubothek index --rebuild")
