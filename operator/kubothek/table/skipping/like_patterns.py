"""The constraints that a LIKE pattern sets on text: ``%`` is any text, ``_`` any character, the rest is literal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WILD: Final = re.compile("[%_]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text without wildcards; ``open_left`` (``open_right``): characters may precede (follow) it."""

    text: str
    open_left: bool
    open_right: bool


def chunks(pattern: str) -> tuple[Chunk, ...]:
    """Return the pieces between wildcards, in order; the first or last is empty if the pattern begins or ends so."""
    pieces = _WILD.split(pattern)
    last = len(pieces) - 1
    return tuple(Chunk(piece, number > 0, number < last) for number, piece in enumerate(pieces))


def beginning(pattern: str) -> str:
    """Return the prefix of every match."""
    return chunks(pattern)[0].text


def ending(pattern: str) -> str:
    """Return the suffix of every match."""
    return chunks(pattern)[-1].text
