"""The boundary between foreign bytes and the parsers that read them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kubothek.errors import LakeError, SourceCorrupt, SourceRefused

_OF_BYTES: Final = (None, errno.EINVAL)
"""Numbers of an OSError about bytes: parsers raise their own, or seek in a file that cannot seek."""


@contextmanager
def decoding(
    name: str, what: str, remedy: str = "upload it again", where: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Raise SourceCorrupt for any error of a parser about the bytes of a file.

    ``what`` is the expected kind of file, such as "Zip file"; ``where`` returns the position reached. A LakeError
    passes, and so does an error of this machine, such as a full disk. MemoryError becomes SourceRefused.
    """
    try:
        yield
    except LakeError:
        raise
    except MemoryError as error:
        raise SourceRefused(
            f"{name!r}{_place(where)} needs more memory to be read as a {what} than it may take; split the file"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in _OF_BYTES:
            raise
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise SourceCorrupt(f"{name!r}{_place(where)} is not a sound {what} ({said}); {remedy}") from error


def _place(where: Callable[[], str]) -> str:
    return f", {place}" if (place := where()) else ""
