"""Formats of dates and times: ``rfc3339``, strftime (``%Y-%m-%d``) or SimpleDateFormat (``yyyy-MM-dd``).

Rows RD-02 and ET-11 of docs/odf.md.
"""

from __future__ import annotations

import re
from typing import Final

from kubothek.errors import FormatInvalid

RFC3339: Final = "rfc3339"

_LETTERS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_STRFTIME: Final = {
    "y": {1: "%Y", 2: "%y", 3: "%Y", 4: "%Y"},
    "M": {1: "%m", 2: "%m", 3: "%b", 4: "%B"},
    "d": {1: "%d", 2: "%d"},
    "D": {1: "%j", 2: "%j", 3: "%j"},
    "H": {1: "%H", 2: "%H"},
    "h": {1: "%I", 2: "%I"},
    "m": {1: "%M", 2: "%M"},
    "s": {1: "%S", 2: "%S"},
    "S": {3: "%g", 6: "%f", 9: "%n"},
    "a": {1: "%p"},
    "E": {1: "%a", 2: "%a", 3: "%a", 4: "%A"},
    "Z": {1: "%z"},
    "X": {2: "%z", 3: "%z"},
    "z": {1: "%Z"},
}
"""Letters of SimpleDateFormat by repetition, as codes of DuckDB's ``strptime``; ``%g`` is milliseconds."""


def strftime_of(text: str) -> str | None:
    """Return the format for ``strptime``; None for RFC 3339. Raises FormatInvalid for other notations."""
    if text.strip().lower() == RFC3339:
        return None
    if "%" in text:
        return text
    parts = []
    for match in _LETTERS.finditer(text):
        found, quoted, letter = match[0], match[1], match[2]
        if quoted is not None:
            parts.append((quoted.replace("''", "'") or "'").replace("%", "%%"))
        elif letter is None:
            parts.append(found)
        elif (code := _STRFTIME.get(letter, {}).get(len(found))) is not None:
            parts.append(code)
        else:
            raise FormatInvalid(
                f"format {text!r}: {found!r} is not understood; write rfc3339, or as strftime does: %Y-%m-%d %H:%M:%S"
            )
    if not any(part.startswith("%") for part in parts):
        raise FormatInvalid(f"format {text!r} has no part of a date or time; write %Y-%m-%d or yyyy-MM-dd")
    return "".join(parts)
