"""Terms that follow from several terms together: ``x >= 'ab' AND x < 'ac'`` is ``x LIKE 'ab%'``.

LIKE with a prefix arrives in this form (docs/filters.md). An index with several values of a file may satisfy each bound
with a different value; for the pattern, one value must satisfy both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubothek.table.expressions import Op, Term

_WILD: Final = frozenset("%_\\")


def implied(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Return the terms of a conjunction, and the LIKE patterns that follow from pairs of them."""
    lows = [term for term in terms if term.op is Op.GE and isinstance(term.value, str)]
    highs = [term for term in terms if term.op is Op.LT and isinstance(term.value, str)]
    patterns = [
        Term(low.column, Op.LIKE, f"{low.value}%", low.type)
        for low in lows
        for high in highs
        if high.column == low.column and is_prefix(low.value, high.value) and not _WILD.intersection(low.value)
    ]
    return (*terms, *patterns)


def is_prefix(low: str, high: str) -> bool:
    """Return whether the texts from ``low`` up to ``high`` are exactly those that begin with ``low``."""
    if not low or not high or len(high) > len(low):
        return False
    # ``high`` is ``low`` with its last incrementable character incremented, and the rest cut off.
    return low[: len(high) - 1] == high[:-1] and _next(low[len(high) - 1]) == high[-1] and _ends(low[len(high) :])


def _next(character: str) -> str | None:
    code = ord(character) + 1
    if code > 0x10FFFF:
        return None
    return chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def _ends(rest: str) -> bool:
    """Return whether all these characters are the greatest code point."""
    return all(ord(character) == 0x10FFFF for character in rest)
