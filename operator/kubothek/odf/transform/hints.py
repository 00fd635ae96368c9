"""Hints on late records: ``/*+ LATE(IGNORE), LATENESS('7 days'), EMIT(FINAL) */`` after the last SELECT of a query.

They are part of the query, and so of the chain: a replay applies them as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

import duckdb

from kubothek.errors import TransformInvalid

_COMMENT: Final = re.compile(r"/\*\+(.*?)\*/", re.DOTALL)
_HINT: Final = re.compile(r"\s*([A-Za-z]+)\s*\(\s*(?:'([^']*)'|([A-Za-z]+))\s*\)\s*(?:,|$|(?=\s))")
_SPAN: Final = re.compile(r"\s*(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE)
MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}


class Late(Enum):
    """What happens to records for closed keys."""

    CORRECT = "CORRECT"
    IGNORE = "IGNORE"
    SIDE = "SIDE"


class Emit(Enum):
    """When answers come: with each run, or once, when they are final."""

    UPDATES = "UPDATES"
    FINAL = "FINAL"


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints of a query. A key closes when the watermark is ``lateness`` microseconds past its end; None: never."""

    late: Late = Late.CORRECT
    lateness: int | None = None
    emit: Emit = Emit.UPDATES


def read_hints(query: str) -> Hints:
    """Return the hints of the final query. Raises TransformInvalid."""
    data = query.encode()
    tokens = duckdb.tokenize(query)
    ends = [*(start for start, _ in tokens), len(data)][1:]
    found, before = [], ""
    for (start, kind), end in zip(tokens, ends, strict=True):
        text = data[start:end].decode()
        if kind is not duckdb.token_type.comment:
            before = text.strip().upper()
        elif text.startswith("/*+"):
            if before != "SELECT":
                raise TransformInvalid(f"the hint {text.strip()} stands right after the last SELECT, not elsewhere")
            found.append(text)
    if not found:
        return Hints()
    if len(found) > 1:
        raise TransformInvalid(
            "there is more than one comment with hints; write them in one: /*+ LATE(…), LATENESS(…) */"
        )
    return _checked(_read(found[0]))


def _read(comment: str) -> dict[str, str]:
    matched = _COMMENT.match(comment)
    text = matched.group(1) if matched else ""
    said: dict[str, str] = {}
    position = 0
    text = text.strip()
    while position < len(text):
        if not (match := _HINT.match(text, position)):
            raise TransformInvalid(
                f"the hint {text[position:]!r} is not understood; there are LATE(CORRECT | IGNORE | SIDE), "
                "LATENESS('7 days'), EMIT(UPDATES | FINAL)"
            )
        name = match.group(1).upper()
        if name in said:
            raise TransformInvalid(f"the hint {name} occurs twice")
        said[name] = match.group(2) if match.group(2) is not None else match.group(3).upper()
        position = match.end()
    return said


def _checked(said: dict[str, str]) -> Hints:
    if unknown := said.keys() - {"LATE", "LATENESS", "EMIT"}:
        raise TransformInvalid(f"there is no hint {min(unknown)}; there are LATE, LATENESS and EMIT")
    try:
        late, emit = Late(said.get("LATE", "CORRECT")), Emit(said.get("EMIT", "UPDATES"))
    except ValueError as error:
        raise TransformInvalid(
            f"hints: {error}; there are LATE(CORRECT | IGNORE | SIDE), EMIT(UPDATES | FINAL)"
        ) from None
    lateness = span(said["LATENESS"], "LATENESS") if "LATENESS" in said else None
    if lateness is not None and late is Late.CORRECT:
        raise TransformInvalid(
            "with LATENESS, what is closed cannot be corrected: add LATE(IGNORE), or LATE(SIDE) for the late records"
        )
    if lateness is None and (late is not Late.CORRECT or emit is Emit.FINAL):
        raise TransformInvalid("nothing is late or final without LATENESS: add LATENESS('7 days')")
    if late is Late.SIDE and emit is Emit.FINAL:
        raise TransformInvalid("LATE(SIDE) gives the late records, which EMIT(FINAL) says nothing of: leave it out")
    return Hints(late, lateness, emit)


def span(text: str, where: str) -> int:
    """Parse a length of time, as '7 days' or '1 hour 30 minutes', to microseconds. Raises TransformInvalid."""
    total, position = 0, 0
    while position < len(text):
        if not (match := _SPAN.match(text, position)):
            raise TransformInvalid(
                f"{where}: {text!r} is no length of time; write weeks, days, hours, minutes, seconds"
            )
        total += int(match.group(1)) * MICROSECONDS[match.group(2).lower()]
        position = match.end()
    return total
