"""What a union member of a later version of the specification becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Unknown:
    """A union member that this version does not know, or one with an enumerated value that it does not know.

    It is kept in the stored bytes, and refused where it would be used.
    """

    kind: ClassVar[str] = "Unknown"
    tag: int
