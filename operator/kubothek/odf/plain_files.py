"""Opening of files that other programs left: it follows no link and waits for no pipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotPlain(OSError):
    """A path to something other than a plain file: a directory, a pipe, a device."""


def open_plain(path: str | Path, *, directory: int | None = None) -> BinaryIO:
    """Open a plain file to read; ``path`` is below the open ``directory``, if one is given.

    Through a link, its owner could read files that only this process may read; a pipe would block.
    Raises NotPlain, and OSError as for any file: a link cannot be opened.
    """
    descriptor = os.open(path, _READ, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")
