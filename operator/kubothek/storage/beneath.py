"""Open files below one directory, and never through a symbolic link, which can lead anywhere.

Linux does so in one call, ``openat2`` with ``RESOLVE_BENEATH`` and ``RESOLVE_NO_SYMLINKS`` (openat2(2)). Without that
call (other systems, gVisor, an old seccomp profile), each directory of the path is opened with ``O_NOFOLLOW``. The root
itself may be a link, because the configuration of the store names it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LINKED: Final = frozenset((errno.ELOOP, errno.EXDEV))
"""Error numbers of the OSError for a path through a link or out of the root."""

_STATUS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
_PLACE: Final = _STATUS | os.O_DIRECTORY
_OPENAT2: Final = 437
"""The system call's number, the same on all architectures that Kubothek supports."""
_RESOLVE: Final = 0x02 | 0x04 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH."""
_WALK_INSTEAD: Final = frozenset((errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.EINTR))
"""The call is missing, forbidden by a seccomp profile, or was interrupted: walk the path instead."""


class Beneath:
    """Access to files below a root directory. Paths are relative, without empty, ``.`` and ``..`` segments."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor of the file. Raises OSError, with a number of LINKED for a link in the path.

        It suits as the ``opener`` of :func:`open`, which then closes the descriptor.
        """
        root = os.open(self._root, _PLACE)
        try:
            return _open_beneath(root, path, flags | os.O_CLOEXEC, mode)
        finally:
            os.close(root)

    def open_directory(self, path: str, flags: int = _PLACE) -> int:
        """Return a descriptor of a directory (``""`` is the root), to name files relative to it. Raises OSError.

        ``flags``  with the default it cannot be read or synced; O_RDONLY allows both
        """
        if not path:
            return os.open(self._root, flags | os.O_DIRECTORY)
        return self.open(path, flags | os.O_DIRECTORY)

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a path. Raises OSError, with a number of LINKED also for a link itself."""
        descriptor = self.open(path, _STATUS)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if stat.S_ISLNK(found.st_mode):  # the walk opens links
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return found

    @contextmanager
    def directory(self, path: str, flags: int = _PLACE) -> Iterator[int]:
        """Open a directory as :meth:`open_directory` does, and close it when the context ends."""
        descriptor = self.open_directory(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a path; yield its descriptor and the file name. Raises OSError."""
        directory, _, name = path.rpartition("/")
        with self.directory(directory) as descriptor:
            yield descriptor, name


def _walk(root: int, path: str, flags: int, mode: int) -> int:
    *directories, name = path.split("/")
    place = os.dup(root)
    try:
        for each in directories:
            place = _step(place, each)
        return _open_entry(place, name, flags, mode)
    finally:
        os.close(place)


def _step(place: int, name: str) -> int:
    following = _open_entry(place, name, _PLACE, 0)
    os.close(place)
    return following


def _open_entry(place: int, name: str, flags: int, mode: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=place)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _openat2() -> Callable[[int, str, int, int], int]:
    """Return the system call, with the walk as a fallback."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    pack = struct.Struct("QQQ").pack

    def open_beneath(root: int, path: str, flags: int, mode: int) -> int:
        how = pack(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
        name = os.fsencode(path)
        found: int = call(ctypes.c_long(_OPENAT2), ctypes.c_int(root), name, how, ctypes.c_size_t(len(how)))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number in _WALK_INSTEAD:
            return _walk(root, path, flags, mode)
        raise OSError(number, os.strerror(number), path)

    return open_beneath


_open_beneath: Final = _openat2() if sys.platform == "linux" else _walk
