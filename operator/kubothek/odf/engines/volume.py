"""The directory that coordinator and engine share (EN-20): what one run finds there, and what it leaves.

``in`` is ours, and read-only to the engine's container; ``out`` is what the engine may write to, so nothing in it is
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
"""Of a file that an engine leaves."""
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
        """Nothing of an earlier run is there. Raises EngineMisbehaved if something cannot be removed."""
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
        """Lay in a slice, under its hash, if its bytes have it. Its path. Raises InputMissing, StoreError."""
        path = self.given / key.rpartition("/")[2]
        if path.exists():
            return str(path)
        hasher = hashlib.sha3_256()
        try:
            with store.open(key) as source, path.open("wb") as file:
                _copied(source.read, file, hasher.update)
        except ObjectNotFound:
            raise InputMissing(f"a slice of an input is gone: {key}; {ADVICE}") from None
        if str(Multihash(Codec.SHA3_256, hasher.digest())) != path.name:
            raise InputMissing(f"a slice of an input is damaged: {key}; {ADVICE}")
        return str(path)

    def give(self, name: str, content: bytes | memoryview) -> str:
        """Lay in a small file. Its path."""
        path = self.given / name
        path.write_bytes(content)
        return str(path)

    def give_file(self, name: str, source: Path) -> str:
        """Lay in a copy of a file. Its path."""
        shutil.copyfile(source, self.given / name)
        return str(self.given / name)

    def take(self, path: Path, into: Path) -> bool:
        """Copy what the engine left there; whether there is anything.

        Raises EngineMisbehaved for what is no plain file (EN-17), or is too large.
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
