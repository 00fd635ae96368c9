"""Temporary files of a file store, and how they become durable."""

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
"""Bytes per write. The kernel stores one write in one piece of memory; where a hypervisor reclaims free memory, large
pieces are slow to get."""


class Temporary:
    """A new file that is written from its start, as :class:`kubothek.storage.base.Staged`.

    ``directory``  descriptor of its directory, and ``name`` in it
    ``moved``      whether the file has been moved elsewhere
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
        """The descriptor of the open file."""
        return self._file.fileno()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises OSError."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._file.write(rest[:_WRITTEN]) :]
        self.size += memoryview(data).nbytes

    def memory(self, start: int, stop: int) -> Any:
        """Return written bytes as a mapping of the kernel's pages. ``start`` is a multiple of the page size."""
        # Without MAP_POPULATE: the call holds Python's lock, so the later read fetches the pages.
        return mmap.mmap(self.descriptor, stop - start, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)

    def begin_sync(self) -> None:
        """Start the write-out to disk without waiting: many later syncs then cost hardly more than one.

        Raises OSError.
        """
        if sys.platform == "linux":  # where this advice has that effect
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Sync all that was written to disk. Raises OSError."""
        if self._synced < self.size:
            os.fsync(self.descriptor)
            self._synced = self.size

    def enter(self) -> None:
        """Become an object."""
        self._enter(self)

    def stamp(self, after_ns: int) -> None:
        """Set a modification time later than ``after_ns`` in the file system's resolution.

        The base is the time that the file system gave, so the store's clock stays the file system's. Random nanoseconds
        distinguish two writes in one tick with a delete between them, and Kubothek's writes from foreign ones, which
        have the kernel's time. Raises OSError.
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
    """Create a file that is deleted when the context ends unless it was moved. Raises OSError.

    ``enter``  moves it to its key
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
