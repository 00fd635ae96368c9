"""An object's bytes with their SHA3-256, as a file that Arrow reads at will; memory does not grow with the object."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kubothek.lake.store.base import Store

IN_MEMORY: Final = 64 << 20
"""Bytes; larger objects go through the disk."""
_CHUNK: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Hashed:
    """``file`` can be read while the context lasts; ``digest`` is the SHA3-256 of all ``size`` bytes."""

    file: Any
    size: int
    digest: bytes


@contextmanager
def hashed(store: Store, key: str) -> Iterator[Hashed]:
    """Fetch and hash an object. Raises ObjectNotFound, and OSError if a large one finds no room on the disk."""
    if (size := store.stat(key).size) <= IN_MEMORY:
        data = store.get(key)
        yield Hashed(pa.BufferReader(data), len(data), hashlib.sha3_256(data).digest())
        return
    hasher, size = hashlib.sha3_256(), 0
    with store.open(key) as source, tempfile.NamedTemporaryFile(prefix="kubothek-object-") as copy:
        while chunk := source.read(_CHUNK):
            hasher.update(chunk)
            copy.write(chunk)
            size += len(chunk)
        copy.flush()
        with pa.memory_map(copy.name) as mapped:
            yield Hashed(mapped, size, hasher.digest())
