"""Problems of a chain, and their places."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kubothek.odf.spec.multihash import Multihash


class Severity(IntEnum):
    """The severity of a problem.

    ``ERROR``    a rule of the specification is broken: the chain is corrupt, or the event refused
    ``REFUSED``  the specification allows it, the reference does not: never appended, tolerated in an existing chain
    ``NOTE``     worth knowing
    """

    NOTE = 0
    REFUSED = 1
    ERROR = 2


_UNVERIFIED: Final = frozenset(
    {"UnknownEvent", "UnknownParts", "UnknownSchema", "LinkedObjectMissing", "LinkedObjectUnchecked", "DataKey"}
)
"""Codes of notes on what is not verified."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. ``code`` is stable API, ``rule`` the requirement's id in docs/odf.md.

    ``block`` and ``number`` (its sequence number) say where in the chain, ``object`` which slice or checkpoint, ``row``
    the offset of the first record concerned; each is None where it does not apply.
    """

    code: str
    rule: str
    message: str
    severity: Severity = Severity.ERROR
    block: Multihash | None = None
    number: int | None = None
    object: str | None = None
    column: str | None = None
    row: int | None = None

    @property
    def unverified(self) -> bool:
        """Whether it is a note that something could not be verified."""
        return self.severity is Severity.NOTE and self.code in _UNVERIFIED

    def __str__(self) -> str:
        places = (
            f"block {self.number} ({self.block.short})" if self.block is not None and self.number is not None else "",
            self.object or "",
            f"column {self.column!r}" if self.column is not None else "",
            f"offset {self.row}" if self.row is not None else "",
        )
        return f"{', '.join(place for place in places if place)}: {self.message} [{self.code}, {self.rule}]".lstrip(
            ": "
        )
