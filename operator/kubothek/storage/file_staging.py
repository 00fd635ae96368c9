"""What a file store writes before anybody sees it, and how it becomes durable."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Any, Final

_WRITTEN: Final = 1 << 18
"""Bytes that are written at a time. The kernel keeps in one piece of memory what comes in one, and where a hypervisor
takes back what is free, large pieces are those that it took, and slow to get."""


class Temporary:
    """A new file that is written from its start, as :class:`kubothek.storage.base.Staged`.

    ``directory``  descriptor of the directory that it lies in, and ``name`` there
    ``moved``      the file is elsewhere by now
    """

    def __init__(self, directory: int, name: str, file: FileIO, enter: Callable[[Temporary], object]) -> None:
        self.directory = directory
        self.name = name
        self.size = 0
        self.moved = False
        self._file = file
        self._enter = enter
        self._synced = -1

    @property
    def descriptor(self) -> int:
        """Of the open file."""
        return self._file.fileno()

    def write(self, data: bytes | memoryview) -> None:
        """What follows. Raises OSError."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._file.write(rest[:_WRITTEN]) :]
        self.size += memoryview(data).nbytes

    def memory(self, start: int, stop: int) -> Any:
        """What was written from one position to another, in the kernel's pages of it. ``start`` is at a page's."""
        # Python keeps its lock meanwhile, so pages are found later, by whoever reads: not with MAP_POPULATE.
        return mmap.mmap(self.descriptor, stop - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)

    def begin_sync(self) -> None:
        """Have the disk take what was written, without waiting for it: many syncs that follow are hardly more than one.

        Raises OSError.
        """
        if sys.platform == "linux":  # where this advice has that effect
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """See to it that the disk has all that was written. Raises OSError."""
        if self._synced < self.size:
            os.fsync(self.descriptor)
            self._synced = self.size

    def enter(self) -> None:
        """Be an object."""
        self._enter(self)

    def stamp(self, after_ns: int) -> None:
        """Give it a modification time that is later than ``after_ns`` as this file system stores it.

        The base is the time the file system gave, so the store's clock stays the file system's. Random nanoseconds tell
        apart two writes of one tick with a delete between them, and our writes from foreign ones, whose stamp is the
        kernel's. Raises OSError.
        """
        given = os.fstat(self.descriptor).st_mtime_ns + 1 + secrets.randbelow(1_000_000)
        for step in (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000):
            wanted = max(given, after_ns + step)
            os.utime(self.descriptor, ns=(wanted, wanted))
            if os.fstat(self.descriptor).st_mtime_ns > after_ns:
                return
        raise OSError(errno.EOPNOTSUPP, "the file system does not keep modification times")


@contextmanager
def temporary(directory: int, name: str, enter: Callable[[Temporary], object]) -> Iterator[Temporary]:
    """A new file, gone when the context ends unless it was moved elsewhere. Raises OSError.

    ``enter``  moves it to where it shall be
    """

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, 0o666, dir_fd=directory)

    with FileIO(name, "x+", opener=create) as file:
        found = Temporary(directory, name, file, enter)
        try:
            yield found
        finally:
            if not found.moved:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
