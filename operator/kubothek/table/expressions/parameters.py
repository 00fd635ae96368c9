"""Bound terms as conditions of DuckDB with parameters, for scans that DuckDB filters while it decodes.

DuckDB 2.0 takes the bounds of a row group, which ignore NaN, for the bounds of all its values. So a condition on floats
that is not TRUE for NaN may be TRUE for some: Arrow filters the rows again (:func:`is_sure`). And a condition that is
TRUE for NaN is only used where bounds do not decide it (:func:`is_undecided`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.in_memory_database import quoted
from kubothek.table.expressions.terms import NULL_TESTS, PATTERNS, SETS, Op, Term, is_nan

MOST_LITERALS: Final = 256
"""The most literals of a condition: DuckDB binds each as a parameter."""
_TRUE_FOR_NAN: Final = frozenset({Op.NE, Op.GT, Op.GE, Op.NOT_IN})


def is_true_for_nan(term: Term) -> bool:
    """Return whether the term is TRUE for NaN, so that bounds that ignore NaN must not decide it."""
    return term.type is not None and pa.types.is_floating(term.type) and term.op in _TRUE_FOR_NAN and not term.never


def is_undecided(term: Term, low: float, high: float) -> bool:
    """Return whether some numbers within these bounds match such a term and others may not, or all match."""
    match term.op:
        case Op.GT:
            return bool(high > term.value)
        case Op.GE:
            return bool(high >= term.value)
        case _:
            return low < high


def is_sure(term: Term) -> bool:
    """Return whether the condition of the term is TRUE only where the term is."""
    if term.type is None or not pa.types.is_floating(term.type):
        return True
    return term.op in NULL_TESTS or term.op in _TRUE_FOR_NAN or term.never


def has_condition(term: Term) -> bool:
    """Return whether DuckDB compares the column with the literals of the term as Arrow does."""
    if term.never or term.op in NULL_TESTS:
        return True
    literals = _literals(term)
    sql_type = _sql_type(term)
    if sql_type is None or len(literals) > MOST_LITERALS:
        return False
    return sql_type != "DOUBLE" or not any(map(_is_ambiguous, literals))


def condition(conjunctions: Iterable[Sequence[Term]]) -> tuple[str, tuple[Any, ...]] | None:
    """Return the condition for a disjunction of conjunctions of terms that have one, and its parameters from ``$1`` on.

    None if a conjunction is empty, which all rows match, and for more than ``MOST_LITERALS``.
    """
    parameters: list[Any] = []
    alternatives = []
    for terms in conjunctions:
        alternatives.append(" AND ".join(_condition(term, parameters) for term in terms))
        if not terms or len(parameters) > MOST_LITERALS:
            return None
    return " OR ".join(f"({each})" for each in alternatives) or "FALSE", tuple(parameters)


def _condition(term: Term, parameters: list[Any]) -> str:
    name = quoted(term.column)
    if term.never:
        return "FALSE"
    if term.op in NULL_TESTS:
        return f"{name} {term.op.upper()}"
    literals = _literals(term)
    first = len(parameters) + 1
    parameters.extend(literals)
    values = ", ".join(f"CAST(${first + number} AS {_sql_type(term)})" for number in range(len(literals)))
    if term.op in SETS:
        return f"{name} {term.op.upper()} ({values})"
    return f"{name} {term.op.upper() if term.op in PATTERNS else term.op} {values}"


def _literals(term: Term) -> Sequence[Any]:
    return term.value if isinstance(term.value, tuple) else (term.value,)


def _is_ambiguous(literal: Any) -> bool:
    """Return whether several values equal the literal, of which a Bloom filter has only one."""
    return is_nan(literal) or literal == 0


def _sql_type(term: Term) -> str | None:
    """Return DuckDB's name of the stored type; None for a type whose values it may compare in another way."""
    data_type: Any = term.type
    if pa.types.is_decimal128(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return _SQL_TYPES.get(data_type)


_SQL_TYPES: Final[dict[pa.DataType, str]] = {
    pa.int64(): "BIGINT",
    pa.uint64(): "UBIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}
