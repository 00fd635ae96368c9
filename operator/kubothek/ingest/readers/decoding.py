"""The boundary between foreign bytes and the parsers that read them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kubothek.errors import LakeError, SourceCorrupt, SourceRefused

_OF_BYTES: Final = (None, errno.EINVAL)
"""What an OSError about bytes has for a number: parsers invent their own, or seek where no file can be sought."""


@contextmanager
def decoding(
    name: str, what: str, remedy: str = "upload it again", where: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Raise SourceCorrupt for whatever a parser raises about the bytes of a file.

    ``what`` the file should be, as in "Zip file"; ``where`` gives the place that was reached. Errors with a name of
    ours pass, and so do those of this machine, such as a full disk. MemoryError becomes SourceRefused.
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
