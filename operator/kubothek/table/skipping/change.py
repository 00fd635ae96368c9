"""What a commit knows of skipping metadata. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubothek.table.skipping.model import Part, SkippingState


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippingChange:
    """The default is right for every commit: an entry of a file that is gone does no harm, and a file without one is
    read.

    ``written``     entries of files that the commit adds
    ``wanted``      the wish from now on, whose parts are of no account; None = as it is
    ``begins``      the wish of a table that has neither one nor files; one that has is left as it is
    ``without``     files that cannot be described, if all were looked at
    ``instead_of``  keys of parts in whose place ``written`` comes, as far as they are still there
    """

    written: tuple[Part, ...] = ()
    wanted: SkippingState | None = None
    begins: SkippingState | None = None
    instead_of: frozenset[str] = frozenset()
    without: int | None = None


NO_SKIPPING_CHANGE: Final = SkippingChange()
