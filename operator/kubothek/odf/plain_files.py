"""Files that others left, opened so that nothing in their place is followed or waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotPlain(OSError):
    """There is something else than a plain file: a directory, a pipe, a device."""


def open_plain(path: str | Path, *, directory: int | None = None) -> BinaryIO:
    """A plain file to read, ``path`` being below an opened directory if one is given.

    A link would show its owner, by way of us, what this process may read and they may not; a pipe would be waited for.
    Raises NotPlain, and OSError as for any file: a link cannot be opened.
    """
    descriptor = os.open(path, _READ, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")
