"""What terms say together and none of them alone: ``x >= 'ab' AND x < 'ac'`` is ``x LIKE 'ab%'``.

That is how LIKE with a prefix comes (docs/filters.md). Asked one by one, an index that keeps several values of a file
finds one for each bound; asked for the pattern, it must find one within both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubothek.table.expressions import Op, Term

_WILD: Final = frozenset("%_\\")


def implied(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Return the terms of a conjunction, and the patterns that follow from pairs of them."""
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
    """Return whether the texts from ``low`` up to ``high`` are those that begin with ``low``."""
    if not low or not high or len(high) > len(low):
        return False
    # The last character that has a next one goes up, and what comes after it goes.
    return low[: len(high) - 1] == high[:-1] and _next(low[len(high) - 1]) == high[-1] and _ends(low[len(high) :])


def _next(character: str) -> str | None:
    code = ord(character) + 1
    if code > 0x10FFFF:
        return None
    return chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def _ends(rest: str) -> bool:
    """Return whether these characters are the last ones there are."""
    return all(ord(character) == 0x10FFFF for character in rest)
