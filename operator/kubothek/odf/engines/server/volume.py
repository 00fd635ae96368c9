"""The files that a request may name: plain ones below one directory, reached without symbolic links (EN-17, EN-20).

Each part of a path is opened relative to the one before, so no part can be replaced between check and use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from tempfile import gettempprefix
from typing import BinaryIO, Final

from kubothek.errors import InputError
from kubothek.odf.plain_files import NotPlain, open_plain

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644


def _unfinished(writer: int) -> str:
    return f".{gettempprefix()}-{writer}-"


class PathRefused(InputError):
    """A request names a file that is not allowed or does not exist."""

    reason = "PathRefused"


class Volume:
    """All files that the engine reads and writes for a coordinator."""

    def __init__(self, root: str) -> None:
        self._root = PurePosixPath(os.path.realpath(root))
        self._named = PurePosixPath(root)

    def open(self, path: str) -> BinaryIO:
        """Open a file to read. Raises PathRefused."""
        with self._parent(path) as (directory, name):
            try:
                return open_plain(name, directory=directory)
            except NotPlain:
                raise PathRefused(f"{path} is no plain file") from None
            except OSError as error:
                raise PathRefused(f"{path} cannot be read: {error.strerror}") from None

    def check(self, path: str) -> None:
        """Check that a file could be written there. Raises PathRefused."""
        with self._parent(path) as (directory, name):
            try:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return
            if not stat.S_ISREG(found.st_mode):
                raise PathRefused(f"{path} is no plain file")

    def write(self, path: str, fill: Callable[[BinaryIO], None]) -> None:
        """Write or replace a file atomically. Raises PathRefused."""
        with self._parent(path) as (directory, name):
            temporary = _unfinished(os.getpid()) + os.urandom(8).hex()
            try:
                descriptor = os.open(temporary, _WRITE, _MODE, dir_fd=directory)
            except OSError as error:
                raise PathRefused(f"{path} cannot be written: {error.strerror}") from None
            try:
                with os.fdopen(descriptor, "wb") as file:
                    fill(file)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(temporary, dir_fd=directory)
                raise

    def remove(self, path: str) -> None:
        """Delete a file if it exists. Raises PathRefused."""
        with self._parent(path) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                return
            except OSError as error:
                raise PathRefused(f"{path} cannot be removed: {error.strerror}") from None

    def tidy(self, path: str, writer: int) -> None:
        """Delete unfinished files of a killed process next to ``path``; errors are ignored."""
        with suppress(OSError, PathRefused), self._parent(path) as (directory, _):
            for name in os.listdir(directory):  # noqa: PTH208 - a descriptor
                if name.startswith(_unfinished(writer)):
                    os.unlink(name, dir_fd=directory)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a file; yield its descriptor and the file's name."""
        *parts, name = self._parts(path)
        directory = os.open(self._root, _DIRECTORY)
        try:
            for part in parts:
                try:
                    below = os.open(part, _DIRECTORY, dir_fd=directory)
                except OSError as error:
                    raise PathRefused(f"{path}: {part!r} is no directory here: {error.strerror}") from None
                os.close(directory)
                directory = below
            yield directory, name
        finally:
            os.close(directory)

    def _parts(self, path: str) -> tuple[str, ...]:
        pure = PurePosixPath(path)
        for root in (self._named, self._root):
            if pure.is_relative_to(root) and (parts := pure.relative_to(root).parts):
                if ".." in parts or "\0" in path:
                    break
                return parts
        raise PathRefused(f"{path!r:.300} is not below {self._named}: an engine is given files of its volume only")
