"""The skipping part of a commit, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubothek.table.skipping.model import Part, SkippingState


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippingChange:
    """The default suits every commit: an entry of a deleted file is harmless, and a file without an entry is read.

    ``written``     entries of files that the commit adds
    ``wanted``      the index definitions from now on, whose parts are ignored; None = unchanged
    ``begins``      the definitions for a table that has neither definitions nor files; others keep theirs
    ``without``     number of files that cannot be described, if all were examined
    ``instead_of``  keys of parts that ``written`` replaces, as far as they still exist
    """

    written: tuple[Part, ...] = ()
    wanted: SkippingState | None = None
    begins: SkippingState | None = None
    instead_of: frozenset[str] = frozenset()
    without: int | None = None


NO_SKIPPING_CHANGE: Final = SkippingChange()
