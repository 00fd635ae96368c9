"""Convert literals to the types of columns, so that the same rows match.

Numbers are compared as numbers whatever their types, dates with timestamps as midnights, times with zone as UTC. Text
in the form of a date or timestamp is compared with columns of those types. Nothing else is converted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FilterInvalid
from kubothek.table.expressions.terms import (
    NULL_TESTS,
    PATTERNS,
    SETS,
    Literal,
    Op,
    Term,
    never,
    parse_date,
    parse_timestamp,
    place,
)
from kubothek.table.schema import type_name

_MOST_DIGITS: Final = 400
_BELOW: Final = frozenset({Op.LT, Op.LE})


def bind_term(term: Term, schema: pa.Schema) -> Term:
    """Return the term for a column of the schema. Raises FilterInvalid."""
    if (found := _find(term.column, schema)) is None:
        raise _unknown(term.column, schema)
    path, data_type = found
    term = replace(term, path=path)
    if pa.types.is_null(data_type) and term.op not in NULL_TESTS:
        return replace(never(term.column, data_type), path=path)
    if term.op in NULL_TESTS or term.never:
        return replace(term, type=data_type)
    round_down = _rounding(term, data_type)
    if term.op in PATTERNS:
        return _bind_pattern(replace(term, type=data_type))
    if term.op in SETS:
        return _bind_set(replace(term, type=data_type), round_down)
    return _bind_comparison(replace(term, type=data_type), *round_down(term.value))


def _find(name: str, schema: pa.Schema) -> tuple[tuple[str, ...], pa.DataType] | None:
    """Return the path and type of a column, or else of a field of a struct: ``nest.a``; None if there is neither."""
    if (position := schema.get_field_index(name)) >= 0:
        return (name,), schema.field(position).type
    first, *inner = name.split(".")
    if schema.get_field_index(first) < 0:
        return None
    data_type: Any = schema.field(first).type
    for each in inner:
        if not pa.types.is_struct(data_type) or data_type.get_field_index(each) < 0:
            return None
        data_type = data_type.field(each).type
    return (first, *inner), data_type


_Rounding = Callable[[Any], tuple[Literal | None, int]]
"""Function from a literal to the largest value of the column's type that is not above it (None if all are), and to how
the two compare: 0 if they are equal, 1 if the literal is above the value."""


def _bind_comparison(term: Term, value: Literal | None, above: int) -> Term:
    """Bind a comparison; if ``above``, the literal lies between the value and the next one of the type."""
    if not above:
        return replace(term, value=value)
    if term.op is Op.EQ:
        return _never(term)
    if term.op is Op.NE:
        return _any_value(term)
    if value is None:
        return _never(term) if term.op in _BELOW else _any_value(term)
    return replace(term, op=Op.LE if term.op in _BELOW else Op.GT, value=value)


def _bind_pattern(term: Term) -> Term:
    assert term.type is not None, "it is given here"
    if not _is_text(term.type) or not isinstance(term.value, str):
        raise FilterInvalid(f"column {term.column!r} is {type_name(term.type)}: only text is LIKE a pattern of text")
    if "\\" in term.value:
        raise FilterInvalid(f"column {term.column!r}: a pattern has no way to write a backslash: {term.value!r}")
    return term


def _bind_set(term: Term, round_down: _Rounding) -> Term:
    rounded = [round_down(literal) for literal in term.value]
    exact = {repr(value): value for value, above in rounded if not above}
    if exact:
        return replace(term, value=tuple(sorted(exact.values(), key=place)))
    return _never(term) if term.op is Op.IN else _any_value(term)


def _never(term: Term) -> Term:
    return replace(term, op=Op.EQ, value=None)


def _any_value(term: Term) -> Term:
    return replace(term, op=Op.IS_NOT_NULL, value=None)


def _rounding(term: Term, data_type: pa.DataType) -> _Rounding:
    if (rounding := _rounding_of(data_type)) is not None:
        return lambda literal: _checked(rounding, literal, term, data_type)
    raise FilterInvalid(
        f"column {term.column!r}: values of type {type_name(data_type)} cannot be compared; "
        "only IS NULL and IS NOT NULL work for it"
    )


def _rounding_of(data_type: pa.DataType) -> _Rounding | None:
    types = pa.types
    if types.is_integer(data_type):
        return _integer(data_type)
    if types.is_decimal(data_type):
        return _decimal(data_type)
    if types.is_timestamp(data_type):
        return _timestamp(data_type)
    for applies, rounding in (
        (types.is_floating, _floating),
        (types.is_date, _date),
        (types.is_boolean, _same(bool)),
        (_is_text, _same(str)),
        (_is_bytes, _same(bytes)),
    ):
        if applies(data_type):
            return rounding
    return None


def _checked(rounding: _Rounding, literal: Any, term: Term, data_type: pa.DataType) -> tuple[Literal | None, int]:
    try:
        return rounding(literal)
    except (TypeError, ValueError, OverflowError) as error:
        raise FilterInvalid(
            f"column {term.column!r} is {type_name(data_type)}: cannot compare it with {_described(literal)}"
            + (f": {error}" if str(error) else "")
        ) from error


# --- one function per type; TypeError for a literal that does not compare ------------------------------------


def _same(kind: type[bool | str | bytes]) -> _Rounding:
    def rounding(literal: Any) -> tuple[Literal, int]:
        if not isinstance(literal, kind):
            raise TypeError
        if isinstance(literal, str):
            literal.encode()  # a lone surrogate is not text that a column can hold
        return literal, 0

    return rounding


def _integer(data_type: Any) -> _Rounding:
    unsigned = pa.types.is_unsigned_integer(data_type)
    bits = data_type.bit_width
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def rounding(literal: Any) -> tuple[Literal | None, int]:
        exact = _number(literal)
        if exact < low:
            return None, 1
        value = min(math.floor(exact), high)
        return value, int(exact > value)

    return rounding


def _floating(literal: Any) -> tuple[Literal, int]:
    """Return the nearest double, as databases compare: literals and data are rounded alike."""
    if isinstance(literal, float):
        return literal, 0
    value = float(_number(literal))
    return value, 0


def _decimal(data_type: Any) -> _Rounding:
    unit = Fraction(10) ** -data_type.scale
    most = 10**data_type.precision - 1
    context = Context(prec=max(data_type.precision, 1))

    def rounding(literal: Any) -> tuple[Literal | None, int]:
        steps = _number(literal) / unit
        if steps < -most:
            return None, 1
        value = min(math.floor(steps), most)
        return Decimal(value).scaleb(-data_type.scale, context), int(steps > value)

    return rounding


def _date(literal: Any) -> tuple[Literal, int]:
    if isinstance(literal, str):
        literal = _read(literal)
    if isinstance(literal, datetime):
        moment = _naive_utc(literal)
        return moment.date(), int(moment.time() > time())
    if isinstance(literal, date):
        return literal, 0
    raise TypeError


def _timestamp(data_type: Any) -> _Rounding:
    def rounding(literal: Any) -> tuple[Literal, int]:
        if isinstance(literal, str):
            literal = _read(literal)
        if isinstance(literal, datetime):
            moment = _naive_utc(literal)
        elif isinstance(literal, date):
            moment = datetime.combine(literal, time())
        else:
            raise TypeError
        return (moment.replace(tzinfo=UTC) if data_type.tz else moment), 0

    return rounding


def _number(literal: Any) -> Fraction:
    """Return the exact number. A float means the decimal that it prints as."""
    if isinstance(literal, bool) or not isinstance(literal, int | float | Decimal):
        raise TypeError
    if isinstance(literal, float):
        if not math.isfinite(literal):
            raise TypeError
        return Fraction(repr(literal))
    if isinstance(literal, Decimal) and literal and abs(literal.adjusted()) > _MOST_DIGITS:
        raise OverflowError("more digits than any type has")
    return Fraction(literal)


def _read(literal: str) -> date | datetime:
    return parse_date(literal) if len(literal) == len("YYYY-MM-DD") else parse_timestamp(literal)


def _naive_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


# --- messages -------------------------------------------------------------------------------------------------


def _described(literal: Any) -> str:
    kinds = {
        bool: "bool",
        int: "integer",
        float: "double",
        Decimal: "decimal",
        str: "string",
        bytes: "binary",
        datetime: "timestamp",
        date: "date",
    }
    shown = repr(literal) if isinstance(literal, str | bytes) else str(literal)
    return f"the {kinds[type(literal)]} {shown if len(shown) <= 60 else shown[:60] + '…'}"


def _unknown(name: str, schema: pa.Schema) -> FilterInvalid:
    by_fold = {column.casefold(): column for column in schema.names}
    near = [by_fold[found] for found in get_close_matches(name.casefold(), list(by_fold), n=3)]
    there = f"there are {', '.join(schema.names)}" if schema.names else "the table has none yet"
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else there
    return FilterInvalid(f"no column {name!r}; {hint}")


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(data_type) or types.is_large_string(data_type)


def _is_bytes(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_binary(data_type) or types.is_large_binary(data_type)
