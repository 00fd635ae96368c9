"""The form of a predicate: a disjunction of conjunctions of terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from math import prod
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import FilterInvalid
from kubothek.table.expressions import arrow, ranges, text
from kubothek.table.expressions.binding import bind_term
from kubothek.table.expressions.ranges import Range
from kubothek.table.expressions.terms import Term, never

MOST_TERMS: Final = 4096
"""Limit of a predicate in disjunctive normal form, which can be exponentially larger than its source."""

Conjunction = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """The rows for which at least one of the conjunctions is TRUE, that is, each of its terms.

    ``conjunctions``  empty: FALSE; one without terms: TRUE
    """

    conjunctions: tuple[Conjunction, ...]

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return frozenset(term.column for terms in self.conjunctions for term in terms)

    @property
    def fields(self) -> frozenset[str]:
        """The top-level columns of the bound predicate's schema that it reads: for a field of a struct, the struct."""
        return frozenset(term.path[0] if term.path else term.column for terms in self.conjunctions for term in terms)

    def bind(self, schema: pa.Schema) -> Predicate:
        """Return the predicate with literals of the columns' stored types, which the methods below need.

        A literal that the type cannot hold is rounded so that the same rows match: ``x < 3.5`` is ``x <= 3`` for
        integers. Raises FilterInvalid for an unknown column and for a literal that does not compare with its column.
        """
        return _distinct(tuple(bind_term(term, schema) for term in terms) for terms in self.conjunctions)

    def to_sql(self) -> str:
        """Return the SQL text that :func:`~kubothek.table.expressions.parse` reads as this predicate."""
        return text.render(self.conjunctions)

    def expression(self) -> pc.Expression:
        """Return the bound predicate for Arrow: true for the rows that match, false or null for others."""
        found: pc.Expression = self._evaluated(lambda term: pc.field(*(term.path or (term.column,))), pc.scalar)
        return found

    def truth(self, columns: Mapping[str, Any]) -> Any:
        """Return the same of columns in memory, by name; some rows of a few columns take Arrow a plan otherwise."""
        return self._evaluated(lambda term: columns[term.column], pa.scalar)

    def _evaluated(self, column: Callable[[Term], Any], constant: Callable[[bool], Any]) -> Any:
        conjunctions = [
            reduce(pc.and_kleene, [arrow.truth(term, column(term)) for term in terms] or [constant(True)])
            for terms in self.conjunctions
        ]
        return reduce(pc.or_kleene, conjunctions or [constant(False)])

    def verdict(self, known: Mapping[str, object]) -> bool | None:
        """Return the bound predicate's value for rows that all have these values, by column; None as a value is NULL.

        True if all such rows match, False if none can, None if it depends on other columns.
        """
        return self.verdict_within({column: Range.of(value) for column, value in known.items()})

    def verdict_within(self, known: Mapping[str, Range]) -> bool | None:
        """Return the same for rows of which only value ranges are known, by column."""
        verdicts = {_verdict(terms, known) for terms in self.conjunctions}
        return True if True in verdicts else None if None in verdicts else False

    def __and__(self, other: Predicate) -> Predicate:
        """Return the rows that match both. Raises FilterInvalid if the predicate grows too large."""
        return all_of([self, other])

    def __or__(self, other: Predicate) -> Predicate:
        """Return the rows that match either. Raises FilterInvalid if the predicate grows too large."""
        return any_of([self, other])

    def __str__(self) -> str:
        return self.to_sql()


TRUE: Final = Predicate(((),))
FALSE: Final = Predicate(())
_ANYTHING: Final = Range()


def _verdict(terms: Conjunction, known: Mapping[str, Range]) -> bool | None:
    verdicts = {ranges.verdict(term, known.get(term.column, _ANYTHING)) for term in terms}
    return False if False in verdicts else None if None in verdicts else True


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the rows that match at least one. Raises FilterInvalid if the predicate is too large."""
    conjunctions = [terms for predicate in predicates for terms in predicate.conjunctions]
    if len(conjunctions) > MOST_TERMS or sum(map(len, conjunctions)) > MOST_TERMS:
        raise _too_large()
    return _distinct(conjunctions)


def all_of(predicates: Sequence[Predicate]) -> Predicate:
    """Return the rows that match all. Raises FilterInvalid if the expansion makes the predicate too large."""
    sizes = [len(predicate.conjunctions) for predicate in predicates]
    count = prod(sizes)
    terms = sum(
        count // size * sum(map(len, p.conjunctions)) for p, size in zip(predicates, sizes, strict=True) if size
    )
    if count > MOST_TERMS or terms > MOST_TERMS:
        raise _too_large()
    if not count:
        # No row matches, but an unknown column must still be an error.
        named = sorted(frozenset[str]().union(*(predicate.columns for predicate in predicates)))
        return Predicate((tuple(map(never, named)),)) if named else FALSE
    return _distinct(tuple(chain(*chosen)) for chosen in product(*(p.conjunctions for p in predicates)))


def _distinct(conjunctions: Iterable[Conjunction]) -> Predicate:
    """Return the predicate without repeated terms and conjunctions; ``1`` and ``TRUE``, equal in Python, stay apart."""
    found = {}
    for terms in conjunctions:
        different = {(term.column, term.op, repr(term.value)): term for term in terms}
        found[frozenset(different)] = tuple(different.values())
    return Predicate(tuple(found.values()))


def _too_large() -> FilterInvalid:
    return FilterInvalid(
        f"the filter becomes more than {MOST_TERMS} comparisons when its ANDs and ORs are multiplied out; "
        "use IN for lists of values, or split it"
    )
