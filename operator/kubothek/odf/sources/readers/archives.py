"""Zip archives: their members, and the one that a step selects (PR-01, RD-07)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import cast

from kubothek.errors import SourceCorrupt, SourceNotFound
from kubothek.ingest.readers.decoding import decoding
from kubothek.ingest.readers.streams import open_zip
from kubothek.odf.sources.readers.globs import matcher


def members(name: str, file: io.BufferedIOBase) -> list[str]:
    """Return the names of the archive's files, in order, without those that desktops add. Raises SourceCorrupt."""
    with _decoding(name):
        return [info.filename for info in open_zip(name, file)[1]]


def opened_member(name: str, file: io.BufferedIOBase, member: str) -> io.BufferedIOBase:
    """Open a member, decompressed lazily. Raises SourceCorrupt."""
    with _decoding(name):
        return cast("io.BufferedIOBase", open_zip(name, file)[0].open(member))


def the_one(name: str, names: Sequence[str], pattern: str | None, option: str, what: str) -> str:
    """Return the only name that matches; without a pattern, the only name. Raises SourceNotFound, SourceCorrupt."""
    found = [each for each in names if pattern is None or matcher(pattern)(each)]
    if not found:
        wanted = f"{what} {pattern!r}" if pattern is not None else what
        shown = ", ".join(map(repr, names[:5])) or "none"
        raise SourceNotFound(f"{name!r} has no {wanted}; it has {shown}; correct {option}")
    if len(found) > 1:
        shown = ", ".join(map(repr, found[:5]))
        raise SourceCorrupt(f"{name!r} has {len(found)} files that {option} can mean: {shown}; correct {option}")
    return found[0]


def _decoding(name: str) -> AbstractContextManager[None]:
    return decoding(name, "Zip file", "upload it again or correct prepare")
