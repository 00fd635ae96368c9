"""Problems of a chain, their places, and what is not judged because an event of a later version may explain it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Flag, IntEnum, auto
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


class Doubt(Flag):
    """Parts of a chain's state that an event of a later version may have changed, until a later event says them."""

    NONE = 0
    OFFSET = auto()
    CHECKPOINT = auto()
    WATERMARK = auto()
    SCHEMA = auto()
    VOCABULARY = auto()
    SOURCES = auto()
    """Sources, and their states."""
    TRANSFORM = auto()
    INPUTS = auto()
    """How far inputs were consumed."""


ALL_DOUBTS: Final = ~Doubt.NONE
_UNVERIFIED: Final = frozenset(
    {
        "UnknownEvent",
        "UnknownParts",
        "UnknownSchema",
        "UnknownState",
        "LinkedObjectMissing",
        "LinkedObjectUnchecked",
        "DataKey",
    }
)
"""Codes of notes on what is not verified."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. ``code`` is stable API, ``rule`` the requirement's id in docs/odf.md.

    ``block`` and ``number`` (its sequence number) say where in the chain, ``object`` which slice or checkpoint, ``row``
    the offset of the first record concerned; each is None where it does not apply. ``depends``: the parts of the state
    that the object was compared with.
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
    depends: Doubt = field(default=Doubt.NONE, compare=False, repr=False)

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


def judged(problem: Problem, doubts: Doubt, unknown: int | None) -> Problem:
    """Return a problem; a note that it is not judged, if it depends on a part of the state that is in doubt.

    ``unknown``  number of the first block with an event of a later version
    """
    if not problem.depends & doubts:
        return problem
    message = f"not judged, as the event of block {unknown}, of a later version of ODF, may explain it: "
    return replace(
        problem,
        code="UnknownState",
        message=f"{message}{problem.message} ({problem.code})",
        severity=Severity.NOTE,
        depends=Doubt.NONE,
    )
