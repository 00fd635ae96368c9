"""Objects' bytes with their SHA3-256, as random-access files for Arrow; memory does not grow with the objects."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import ObjectNotFound
from kubothek.storage import sha3_multibuffer
from kubothek.storage.base import Store

IN_MEMORY: Final = 64 << 20
"""Bytes of all objects that are hashed at once; a larger object goes through the disk."""
_CHUNK: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Hashed:
    """``file`` can be read within the context; ``digest`` is the SHA3-256 of all ``size`` bytes."""

    file: Any
    size: int
    digest: bytes


@contextmanager
def hashed(store: Store, key: str) -> Iterator[Hashed]:
    """Fetch and hash an object. Raises ObjectNotFound, and OSError if the disk has no space for a large one."""
    with closing(hashed_each(store, [key])) as only:
        found = next(only)
        if isinstance(found, ObjectNotFound):
            raise found
        yield found


def hashed_each(store: Store, keys: Iterable[str]) -> Generator[Hashed | ObjectNotFound]:
    """Fetch and hash objects, in their order: as many at once as fit in memory, larger ones alone.

    The file of one can be read until the next is requested. Raises OSError if the disk has no space for a large one.
    """
    held: list[bytes | ObjectNotFound] = []
    room = IN_MEMORY
    for key in keys:
        try:
            if (size := store.stat(key).size) > room:
                yield from _hashed_together(held)
                held, room = [], IN_MEMORY
            if size > room:
                with _through_the_disk(store, key) as found:
                    yield found
            else:
                held.append(store.get(key))
                room -= size
        except ObjectNotFound as error:
            held.append(error)
    yield from _hashed_together(held)


def _hashed_together(held: Sequence[bytes | ObjectNotFound]) -> Iterator[Hashed | ObjectNotFound]:
    digests = iter(sha3_multibuffer.digests(each for each in held if isinstance(each, bytes)))
    for each in held:
        yield Hashed(pa.BufferReader(each), len(each), next(digests)) if isinstance(each, bytes) else each


@contextmanager
def _through_the_disk(store: Store, key: str) -> Iterator[Hashed]:
    hasher, size = hashlib.sha3_256(), 0
    with store.open(key) as source, tempfile.NamedTemporaryFile(prefix="kubothek-object-") as copy:
        while chunk := source.read(_CHUNK):
            hasher.update(chunk)
            copy.write(chunk)
            size += len(chunk)
        copy.flush()
        with pa.memory_map(copy.name) as mapped:
            yield Hashed(mapped, size, hasher.digest())
