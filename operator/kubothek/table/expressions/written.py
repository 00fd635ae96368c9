"""The forms in which users write a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from kubothek.table.expressions.dnf import from_dnf
from kubothek.table.expressions.model import Predicate
from kubothek.table.expressions.parser import parse

Filter: TypeAlias = Predicate | str | Sequence[Sequence[Sequence[Any]]]
"""A predicate, its SQL text, or kartothek's lists of lists of ``(column, operator, literal)``."""


def as_predicate(where: Filter) -> Predicate:
    """Return the predicate, whichever form it is in. Raises FilterInvalid."""
    if isinstance(where, Predicate):
        return where
    return parse(where) if isinstance(where, str) else from_dnf(where)
