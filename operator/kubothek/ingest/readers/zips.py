"""Zip archives from untrusted sources."""

from __future__ import annotations

import io
import zipfile
from typing import IO, Any, Final, cast

from kubothek.errors import SourceRefused

DIRECTORY_BYTES: Final = 8 << 20
"""Maximum bytes of an archive's directory of names and positions; in memory it takes some twenty times as much."""
_DIRECTORY_SIZE: Final = 5


def open_zip(name: str, file: io.RawIOBase | io.BufferedIOBase) -> tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]:
    """Return the archive and its files, without desktop metadata. Raises SourceRefused, and zipfile's errors."""
    end: Any = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # as zipfile itself does
    if end and end[_DIRECTORY_SIZE] > DIRECTORY_BYTES:
        raise SourceRefused(
            f"{name!r}: the directory of the Zip file has {end[_DIRECTORY_SIZE]} bytes, the limit is "
            f"{DIRECTORY_BYTES}; pack fewer files"
        )
    archive = zipfile.ZipFile(cast("IO[bytes]", file))
    return archive, [info for info in archive.infolist() if _is_file(info)]


def _is_file(info: zipfile.ZipInfo) -> bool:
    name = info.filename
    return not (info.is_dir() or name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith("."))
