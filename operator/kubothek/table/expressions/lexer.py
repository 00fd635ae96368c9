"""The tokens of the predicate language, each with its position in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NoReturn

from kubothek.errors import FilterInvalid
from kubothek.table.expressions.text import KEYWORDS


class Kind(Enum):
    """The kind of a token."""

    KEYWORD = auto()
    NAME = auto()
    STRING = auto()
    BYTES = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``text`` is its meaning: keywords in upper case, names and strings without their quotes."""

    kind: Kind
    text: str
    start: int
    shown: str


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<BYTES>  [xX]'[^']*' )
    | (?P<NUMBER> (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)? (?![\w.]) )
    | (?P<NAME>   [^\W\d]\w*(?:\.[^\W\d]\w*)* | "(?:[^"]|"")*" )
    | (?P<STRING> '(?:[^']|'')*' )
    | (?P<SYMBOL> <> | != | <= | >= | == | [=<>(),+-] )
    )""",
    re.VERBOSE,
)
_SHOWN: Final = 60


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens, the last one END. Raises FilterInvalid at text that is not a token."""
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            quote = text[position] if text[position] in "'\"" else None
            refuse(text, position, f"no closing {quote}" if quote else f"unexpected {text[position]!r}")
        kind, shown = Kind[str(match.lastgroup)], match[str(match.lastgroup)]
        if kind is Kind.NAME and shown.upper() in KEYWORDS:
            kind = Kind.KEYWORD
        yield Token(kind, _meaning(kind, shown), match.start(str(match.lastgroup)), shown)
        position = match.end()
    yield Token(Kind.END, "", end, "the end")


def refuse(text: str, position: int, problem: str) -> NoReturn:
    """Raise FilterInvalid with the line of the text and a caret below the position."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    start = max(start, position - _SHOWN)
    line = text[start : min(len(text) if stop < 0 else stop, position + _SHOWN)]
    raise FilterInvalid(f"filter, character {position + 1}: {problem}\n  {line}\n  {' ' * (position - start)}^")


def _meaning(kind: Kind, shown: str) -> str:
    match kind:
        case Kind.KEYWORD:
            return shown.upper()
        case Kind.NAME:
            return shown[1:-1].replace('""', '"') if shown[0] == '"' else shown
        case Kind.STRING:
            return shown[1:-1].replace("''", "'")
        case Kind.BYTES:
            return shown[2:-1]
        case _:
            return shown
