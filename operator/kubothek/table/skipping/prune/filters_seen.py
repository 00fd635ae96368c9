"""The filters of queries as short texts without literals: ``flight:Equal``, ``distance:Range`` …"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Final

from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.skipping.like_patterns import beginning, chunks, ending
from kubothek.table.skipping.prune.implied import is_prefix

EQUAL: Final = "Equal"
RANGE: Final = "Range"
PREFIX: Final = "Prefix"
SUFFIX: Final = "Suffix"
CONTAINS: Final = "Contains"

_RANGES: Final = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})


def filters_of(where: Predicate, columns: Container[str] | None = None, *, most: int = 8) -> tuple[str, ...]:
    """Return the columns of a predicate, each with the kinds of comparison; at most ``most``.

    ``columns``  columns to include; None = all
    """
    found: dict[str, None] = {}
    for terms in where.conjunctions:
        by_column: dict[str, list[Term]] = defaultdict(list)
        for term in terms:
            if columns is None or term.column in columns:
                by_column[term.column].append(term)
        for column, about in by_column.items():
            found |= dict.fromkeys(f"{column}:{kind}" for kind in _kinds(about))
    return tuple(found)[:most]


def _kinds(terms: list[Term]) -> list[str]:
    found = [EQUAL for term in terms if term.op in (Op.EQ, Op.IN) and not term.never]
    ranges = [term for term in terms if term.op in _RANGES]
    if ranges:
        found.append(PREFIX if _is_prefix(ranges) else RANGE)
    for term in terms:
        if term.op is Op.LIKE:
            found += _of_pattern(term.value)
    return list(dict.fromkeys(found))


def _is_prefix(terms: list[Term]) -> bool:
    """Return whether the bounds are those of LIKE 'x%'."""
    low = next((term.value for term in terms if term.op is Op.GE), None)
    high = next((term.value for term in terms if term.op is Op.LT), None)
    return isinstance(low, str) and isinstance(high, str) and is_prefix(low, high)


def _of_pattern(pattern: str) -> list[str]:
    found = [PREFIX] if beginning(pattern) else []
    found += [SUFFIX] if ending(pattern) else []
    return found + ([CONTAINS] if any(piece.text for piece in chunks(pattern)[1:-1]) else [])
