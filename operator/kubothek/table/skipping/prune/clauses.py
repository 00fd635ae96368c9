"""Clauses: which files may hold a row for which a term is TRUE, by the entries of an index.

A clause is a function of a bound term, of an index and of its entries, an Arrow array with an element a file. It
returns a mask that is true for every file that may hold such a row, or None if the index cannot decide the term. It may
be true too often, never too seldom: an entry that is null or incomparable keeps its file. Terms mean the same as in
:mod:`kubothek.table.expressions`: NULL never matches, NaN is above all numbers, the two zeros are equal, text is
ordered by its bytes. Where real Xskipper differs (verified with Xskipper 1.7), Xskipper is wrong.

Own index types register clauses of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.expressions import Op, Term
from kubothek.table.expressions.arrow import truth
from kubothek.table.expressions.terms import is_nan
from kubothek.table.skipping.bloom.filters import Filters
from kubothek.table.skipping.bloom.sketch import can_hash
from kubothek.table.skipping.model import IndexDefinition

Mask: TypeAlias = npt.NDArray[np.bool_]
Clause: TypeAlias = Callable[[Term, IndexDefinition, Any], Mask | None]

_FEW: Final = 16
"""Up to this many values of an IN are compared one by one."""
_KIN: Final = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_binary, pa.types.is_large_binary),
    (pa.types.is_date,),
    (pa.types.is_timestamp,),
)
_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


# --- MinMax ------------------------------------------------------------------------------------------------------


def minmax(term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
    """Decide by bounds. ``entries``: struct of ``min`` and ``max``, both null if no row has a value."""
    if term.op is Op.IS_NULL or term.never:
        return None
    low, high = entries.field(0), entries.field(1)
    unknown = flags(entries.is_null()) | flags(pc.xor(low.is_null(), high.is_null()))
    if term.op is Op.IS_NOT_NULL:
        return unknown | flags(low.is_valid())
    if (bounds := _comparable(term, low, high)) is None:
        return None
    return unknown | flags(_within(term, *bounds))


def _within(term: Term, low: Any, high: Any) -> Any:
    values = term.value if isinstance(term.value, tuple) else (term.value,)
    match term.op:
        case Op.EQ | Op.IN:
            return _one_inside(values, low, high, term)
        case Op.NE | Op.NOT_IN:
            same = pc.and_(_le(low, high, term), _le(high, low, term))
            return pc.invert(pc.and_(same, _one_inside(values, low, low, term)))
        case Op.LT:
            return pc.invert(_le(_scalar(values[0], term), low, term))
        case Op.LE:
            return _le(low, _scalar(values[0], term), term)
        case Op.GT:
            return pc.invert(_le(high, _scalar(values[0], term), term))
        case Op.GE:
            return _le(_scalar(values[0], term), high, term)
        case _:
            return low.is_valid()


def _one_inside(values: tuple[Any, ...], low: Any, high: Any, term: Term) -> Any:
    """Return where one of the values, sorted with NaN last, lies between ``low`` and ``high``, both included."""
    if len(values) > _FEW:
        if _is_searchable(term) and not is_nan(values[-1]):
            array = pa.array(values, term.type)
            search: Any = pc.search_sorted  # type: ignore[attr-defined]  # newer than the stubs
            return pc.less(search(array, low, side="left"), search(array, high, side="right"))
        return pc.and_(_le(low, _scalar(values[-1], term), term), _le(_scalar(values[0], term), high, term))
    inside = (pc.and_(_le(low, each, term), _le(each, high, term)) for each in (_scalar(v, term) for v in values))
    return reduce(pc.or_, inside)


def _is_searchable(term: Term) -> bool:
    """Return whether Arrow has a binary search for the type."""
    found = _type(term)
    return not (pa.types.is_decimal(found) or pa.types.is_boolean(found))


def _type(term: Term) -> pa.DataType:
    assert term.type is not None, "the term is bound"
    return term.type


def _le(left: Any, right: Any, term: Term) -> Any:
    """Return ``left <= right`` with NaN above all numbers; null where either is."""
    found = pc.less_equal(left, right)
    return pc.or_(found, pc.is_nan(right)) if pa.types.is_floating(_type(term)) else found


def _scalar(value: Any, term: Term) -> Any:
    return pa.scalar(value, term.type)


def _comparable(term: Term, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the bounds in the term's type, widened where needed; None if they cannot be converted.

    Files may be older than a widening of the column, and Spark stores timestamps in nanoseconds.
    """
    wanted, found = _type(term), low.type
    types = pa.types
    if found == wanted:
        return low, high
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return _in_unit(low, wanted, up=False), _in_unit(high, wanted, up=True)
    if not _is_kin(found, wanted) or (types.is_floating(found) and not types.is_floating(wanted)):
        return None
    # Integers beyond 2**53 are rounded to doubles exactly as rows are, which keeps the order.
    safe = not (types.is_floating(wanted) and types.is_integer(found))
    try:
        return low.cast(wanted, safe=safe), high.cast(wanted, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_kin(found: Any, wanted: Any) -> bool:
    """Return whether values of one type keep their order as values of the other."""
    return any(any(a(found) for a in kind) and any(a(wanted) for a in kind) for kind in _KIN)


def _in_unit(moments: Any, wanted: Any, *, up: bool) -> Any:
    """Return times in the wanted unit, rounded up or down."""
    have, want = _TICKS[moments.type.unit], _TICKS[wanted.unit]
    ticks = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    step = max(1, have // want)
    whole = -(-ticks // step) if up else ticks // step
    mask = moments.is_null().to_numpy(zero_copy_only=False)
    return pa.array(whole, pa.timestamp(moments.type.unit if have < want else wanted.unit), mask=mask).cast(wanted)


# --- ValueList ---------------------------------------------------------------------------------------------------


def valuelist(term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
    """``entries``: list of all distinct values but NULL; a null in a list is a value that nobody knows."""
    return _one_in_lists((term,), entries)


def _one_in_lists(terms: Sequence[Term], entries: Any) -> Mask | None:
    """For which lists all terms of one column are true of the same element."""
    values = entries.flatten()
    if not (masks := [mask for term in terms if (mask := _in_lists(term, values)) is not None]):
        return None
    return any_of(reduce(and_, masks), entries)


def _in_lists(term: Term, values: Any) -> Mask | None:
    if term.op is Op.IS_NULL or term.never:
        return None
    try:
        if values.type != term.type and not _is_kin(values.type, term.type):
            return None
        typed = values if values.type == term.type else values.cast(term.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return flags(pc.or_kleene(truth(term, typed), values.is_null()))


def any_of(matches: Mask, entries: Any) -> Mask:
    """Return which lists have an element that is true, given the flattened elements; a null list keeps its file."""
    lengths = pc.fill_null(pc.list_value_length(entries), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    sums = np.concatenate(([0], np.cumsum(matches, dtype=np.int64)))
    ends = np.cumsum(lengths)
    found: Mask = sums[ends] > sums[ends - lengths]
    return found | flags(entries.is_null())


def flags(found: Any) -> Mask:
    """Return Arrow's booleans as a mask; null is false."""
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask


# --- BloomFilter -------------------------------------------------------------------------------------------------


def bloomfilter(term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
    """Decide by Bloom filters. ``entries``: :class:`~kubothek.table.skipping.bloom.filters.Filters`, one a file."""
    if term.op not in (Op.EQ, Op.IN) or term.never or not can_hash(_type(term)):
        return None
    values = term.value if isinstance(term.value, tuple) else (term.value,)
    filters: Filters = entries
    return filters.might_contain(values, _type(term))


# --- registry ----------------------------------------------------------------------------------------------------


def clause_of(definition: IndexDefinition) -> Clause | None:
    """Return the clause for the entries of this index; None for an unregistered index type."""
    return _CLAUSES.get(definition.name)


def may_match(definition: IndexDefinition, terms: Sequence[Term], entries: Any) -> Mask | None:
    """Return which files may hold a row for which all bound terms are TRUE; None if the index says nothing of them.

    Terms on columns without this index are ignored. A list of values holds one value for all terms together:
    ``x >= 3 AND x < 5`` is one range.
    """
    clause, columns = clause_of(definition), {column.lower() for column in definition.columns}
    about = [term for term in terms if term.column.lower() in columns]
    if clause is None:
        return None
    if clause is valuelist:
        return _one_in_lists(about, entries)
    masks = [mask for term in about if (mask := clause(term, definition, entries)) is not None]
    return reduce(and_, masks) if masks else None


def register(index_type: str, clause: Clause) -> None:
    """Register the clause for entries of an index type of this name."""
    _CLAUSES[index_type.lower()] = clause


_CLAUSES: Final[dict[str, Clause]] = {"minmax": minmax, "valuelist": valuelist, "bloomfilter": bloomfilter}
