"""Bound terms in Arrow: the same function for expressions, which scans push down, and for arrays in memory.

Where a row's value is NULL, the result may be NULL instead of false. Both mean "not TRUE", and no NOT is applied to the
result.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.expressions.terms import PATTERNS, Op, Term, is_nan

_KERNELS: Final[dict[Op, Any]] = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}
_ABOVE: Final = frozenset({Op.NE, Op.GT, Op.GE, Op.NOT_IN})
"""Comparisons of a float column that are TRUE for NaN, which is above all numbers."""


def truth(term: Term, column: Any) -> Any:
    """Return where the bound term is TRUE for the column, a ``pc.Expression`` or an array of the term's type.

    Raises ValueError if the term is not bound.
    """
    if term.type is None:
        raise ValueError(f"the term on {term.column!r} is not bound to a schema")
    if term.never:
        return pc.and_kleene(pc.is_null(column), pc.is_valid(column))
    if term.op is Op.IS_NULL:
        return pc.is_null(column)
    if term.op is Op.IS_NOT_NULL:
        return pc.is_valid(column)
    if term.op in PATTERNS:
        found = pc.match_like(column, term.value)
        return found if term.op is Op.LIKE else pc.invert(found)
    if pa.types.is_floating(term.type):
        return _of_floats(term, column)
    if term.op is Op.IN:
        return pc.is_in(column, _set(term, term.value))
    if term.op is Op.NOT_IN:
        return pc.and_kleene(pc.invert(pc.is_in(column, _set(term, term.value))), pc.is_valid(column))
    return _KERNELS[term.op](column, _scalar(term))


def _of_floats(term: Term, column: Any) -> Any:
    """Return where the term is TRUE, with NaN handled explicitly: statistics and Arrow's comparisons ignore NaN."""
    literals = term.value if isinstance(term.value, tuple) else (term.value,)
    numbers = [number for number in literals if not is_nan(number)]
    has_nan = len(numbers) < len(literals)
    if term.op in (Op.IN, Op.NOT_IN):
        # Arrow hashes the bits, in which the two zeros differ.
        both_zeros = [*numbers, *(-number for number in numbers if number == 0)]
        found = pc.is_in(column, _set(term, both_zeros))
        if term.op is Op.IN:
            return pc.or_kleene(found, _is_nan(column)) if has_nan else found
        outside = pc.and_kleene(pc.invert(found), pc.is_valid(column))
        return _without_nan(outside, column) if has_nan else pc.or_kleene(outside, _is_nan(column))
    if has_nan:
        return _against_nan(term, column)
    compared = _KERNELS[term.op](column, _scalar(term))
    return pc.or_kleene(compared, _is_nan(column)) if term.op in _ABOVE else compared


def _against_nan(term: Term, column: Any) -> Any:
    if term.op in (Op.EQ, Op.GE):
        return _is_nan(column)
    if term.op in (Op.NE, Op.LT):
        return pc.invert(pc.is_nan(column))
    if term.op is Op.LE:
        return pc.is_valid(column)
    return pc.and_kleene(pc.is_null(column), pc.is_valid(column))


def _is_nan(column: Any) -> Any:
    """Return where the column is NaN.

    If all numbers of a row group are equal, Arrow assumes this number for every value of the column, NaN or not, and
    would skip the row group. It does not pre-evaluate impure functions; ``random`` is the only one.
    """
    found = pc.is_nan(column)
    if not isinstance(column, pc.Expression):
        return found
    random = cast("Any", pc.Expression)._call("random", [], pc.RandomOptions(initializer=0))
    return pc.or_kleene(found, random < pc.scalar(0.0))


def _without_nan(found: Any, column: Any) -> Any:
    return pc.and_kleene(found, pc.invert(pc.is_nan(column)))


def _scalar(term: Term) -> Any:
    return pa.scalar(term.value, term.type)


def _set(term: Term, values: Any) -> pa.Array[Any]:
    return pa.array(values, term.type)
