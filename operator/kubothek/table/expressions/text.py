"""Predicates as SQL text, which reads back as the same predicate.

Exact and approximate numbers differ as in the SQL standard: ``0.1`` is a decimal, ``1e-1`` a double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from kubothek.in_memory_database import quoted
from kubothek.table.expressions.terms import NULL_TESTS, PATTERNS, SETS, Literal, Term

KEYWORDS: Final = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
"""Words that name a column only in quotes. DATE is not a keyword: it begins a literal only before a string."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render(conjunctions: Sequence[Sequence[Term]]) -> str:
    """Return the SQL text of a disjunctive normal form."""
    if not conjunctions:
        return "FALSE"
    several = len(conjunctions) > 1
    return " OR ".join(
        f"({_conjunction(terms)})" if several and len(terms) > 1 else _conjunction(terms) for terms in conjunctions
    )


def identifier(name: str) -> str:
    """Return the column name, quoted where SQL needs it."""
    if _PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return quoted(name)


def literal(value: Literal | None) -> str:
    """Return the SQL text of one literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case Decimal():
            digits = f"{value:f}"
            return digits if "." in digits else f"{digits}.0"
        case float():
            return _double(value)
        case str():
            return _quoted(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"


def _conjunction(terms: Sequence[Term]) -> str:
    return " AND ".join(map(_term, terms)) or "TRUE"


def _term(term: Term) -> str:
    name = identifier(term.column)
    if term.op in NULL_TESTS:
        return f"{name} {term.op.upper()}"
    if term.op in SETS:
        return f"{name} {term.op.upper()} ({', '.join(map(literal, term.value))})"
    op = term.op.upper() if term.op in PATTERNS else term.op
    return f"{name} {op} {literal(term.value)}"


def _double(value: float) -> str:
    if math.isnan(value):
        return "DOUBLE 'NaN'"
    if math.isinf(value):
        return "DOUBLE 'Infinity'" if value > 0 else "DOUBLE '-Infinity'"
    digits = repr(value)
    return digits if "e" in digits else f"{digits}e0"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
