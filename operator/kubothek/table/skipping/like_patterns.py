"""What a LIKE pattern says of the texts that match it: ``%`` is any text, ``_`` any character, all else is itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WILD: Final = re.compile("[%_]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text without wildcards; ``open_left`` (``open_right``): more characters may come before (after) it."""

    text: str
    open_left: bool
    open_right: bool


def chunks(pattern: str) -> tuple[Chunk, ...]:
    """The pieces between wildcards, in order; the first and the last are empty if the pattern begins or ends so."""
    pieces = _WILD.split(pattern)
    last = len(pieces) - 1
    return tuple(Chunk(piece, number > 0, number < last) for number, piece in enumerate(pieces))


def beginning(pattern: str) -> str:
    """Return what every match begins with."""
    return chunks(pattern)[0].text


def ending(pattern: str) -> str:
    """Return what every match ends with."""
    return chunks(pattern)[-1].text
