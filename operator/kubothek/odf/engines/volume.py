"""The directory that coordinator and engine share (EN-20): the input and the output of one run.

``in`` is ours, and read-only in the engine's container. The engine can write to ``out``, so its entries are never
followed, waited for, or read twice.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from kubothek.errors import EngineMisbehaved, InputMissing, ObjectNotFound
from kubothek.odf.chain import ADVICE
from kubothek.odf.plain_files import NotPlain, open_plain
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.storage import Store

MOST_BYTES: Final = 16 << 30
"""Largest size of a file of the engine."""
_CHUNK: Final = 1 << 22


class Volume:
    """The files of one run at a time."""

    def __init__(self, root: Path, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self.given = root / "in"
        self.left = root / "out"
        self.data = self.left / "data"
        self.checkpoint = self.left / "checkpoint"

    def clear(self) -> None:
        """Remove all files of an earlier run. Raises EngineMisbehaved if a file cannot be removed."""
        for directory in (self.given, self.left):
            directory.mkdir(parents=True, exist_ok=True)
            for entry in directory.iterdir():
                try:
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    else:
                        entry.unlink()
                except OSError as error:
                    raise EngineMisbehaved(f"{entry}, of an earlier run, cannot be removed: {error}") from error

    def give_slice(self, store: Store, key: str) -> str:
        """Download a slice, verify its hash, and return its path. Raises InputMissing, StoreError."""
        path = self.given / key.rpartition("/")[2]
        if path.exists():
            return str(path)
        hasher = hashlib.sha3_256()
        try:
            with store.open(key) as source, path.open("wb") as file:
                _copied(source.read, file, hasher.update)
        except ObjectNotFound:
            raise InputMissing(f"a slice of an input no longer exists: {key}; {ADVICE}") from None
        if str(Multihash(Codec.SHA3_256, hasher.digest())) != path.name:
            raise InputMissing(f"a slice of an input is damaged: {key}; {ADVICE}")
        return str(path)

    def give(self, name: str, content: bytes | memoryview) -> str:
        """Write a small file, and return its path."""
        path = self.given / name
        path.write_bytes(content)
        return str(path)

    def give_file(self, name: str, source: Path) -> str:
        """Copy a file, and return the path of the copy."""
        shutil.copyfile(source, self.given / name)
        return str(self.given / name)

    def take(self, path: Path, into: Path) -> bool:
        """Copy a file of the engine, and return whether it exists.

        Raises EngineMisbehaved for anything but a plain file (EN-17), or one that is too large.
        """
        try:
            opened = open_plain(path)
        except FileNotFoundError:
            return False
        except NotPlain as error:
            raise EngineMisbehaved(f"the engine left {path}, which is no plain file") from error
        except OSError as error:
            raise EngineMisbehaved(f"the engine left {path}, which cannot be read: {error.strerror}") from error
        with opened as source, into.open("wb") as file:
            left = self._most

            def within(chunk: bytes) -> None:
                nonlocal left
                left -= len(chunk)
                if left < 0:
                    raise EngineMisbehaved(f"the engine left {path}, which has more than {self._most} bytes")

            _copied(source.read, file, within)
        return True


def _copied(read: Callable[[int], bytes | None], file: BinaryIO, seen: Callable[[bytes], None]) -> None:
    while chunk := read(_CHUNK):
        seen(chunk)
        file.write(chunk)
