"""The notations for conditions of a cube query, and their translation to a predicate.

All have the meaning of one language (:mod:`kubothek.table.expressions`), with and without an index: a row is selected
if the condition is TRUE for it. A comparison with NULL is never TRUE, ``!=`` included. kartothek 5.3 breaks its own
rule there: without an index, its ``!=`` also selects rows whose payload is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kubothek.errors import FilterInvalid
from kubothek.table.expressions import TRUE, Filter, Predicate, as_predicate, from_dnf, parse
from kubothek.table.expressions.model import all_of

Conditions: TypeAlias = Filter | Sequence[Any] | None
"""See :func:`as_conditions`."""

_INTERVAL: Final = "in_interval"
_LONGER_NAMES: Final = {"isin": "in"}
_KARTOTHEK: Final = re.compile(r"\s*(?P<column>[^=!<>&()]+?)\s*(?P<op>==|=|<=|<|>=|>|!=)\s*(?P<value>[^=&()]+?)\s*")
_TRUTH: Final = {"true": True, "false": False}


class C:
    """A column in a condition, in kartothek's notation: ``(C("x") == 1) & C("day").in_interval(start, None)``.

    The result is a predicate; ``&`` is AND, ``|`` is OR.
    """

    __hash__ = None  # type: ignore[assignment] # comparisons build conditions

    def __init__(self, column: str) -> None:
        self._column = column

    def _term(self, op: str, *value: object) -> Predicate:
        return from_dnf([[(self._column, op, *value)]])

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._term("==", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._term("!=", value)

    def __lt__(self, value: object) -> Predicate:
        return self._term("<", value)

    def __le__(self, value: object) -> Predicate:
        return self._term("<=", value)

    def __gt__(self, value: object) -> Predicate:
        return self._term(">", value)

    def __ge__(self, value: object) -> Predicate:
        return self._term(">=", value)

    def isin(self, values: Collection[object]) -> Predicate:
        """Return the condition that the column has one of these values."""
        return self._term("in", values)

    def in_interval(self, start: object, stop: object) -> Predicate:
        """Return the condition ``start`` <= column < ``stop``; None = open."""
        return as_conditions([(self._column, _INTERVAL, (start, stop))], {})

    def is_null(self) -> Predicate:
        """Return the condition that the column is NULL."""
        return self._term("is null")

    def is_not_null(self) -> Predicate:
        """Return the condition that the column is not NULL."""
        return self._term("is not null")


def as_conditions(conditions: Conditions, columns: Mapping[str, pa.DataType]) -> Predicate:
    """Return the predicate of conditions in any notation; ``columns`` are the cube's types by name.

    - None: every row
    - a predicate, or text in the filter language (docs/filters.md)
    - text of kartothek's command line: ``city == Köln & temp >= 15``, values without quotes, typed as their columns
    - a list (AND) of ``(column, operator, literal)``, predicates and texts; or a list of lists (OR of ANDs) of triples.
      Operators are those of the filter language, ``isin``, and ``in_interval`` with ``(start, stop)``: start inclusive,
      stop exclusive, None = open

    Raises FilterInvalid for anything else.
    """
    if conditions is None:
        return TRUE
    if isinstance(conditions, Predicate):
        return conditions
    if isinstance(conditions, str):
        return _from_text(conditions, columns)
    if not isinstance(conditions, Sequence):
        raise FilterInvalid(
            f"{conditions!r}: conditions are text, a predicate, or a list of (column, operator, literal)"
        )
    if conditions and all(isinstance(each, list | tuple) and not _is_triple(each) for each in conditions):
        return as_predicate([[part for triple in each for part in _simple(triple)] for each in conditions])
    return all_of([TRUE, *(_one(each, columns) for each in conditions)])


def _one(condition: Any, columns: Mapping[str, pa.DataType]) -> Predicate:
    if isinstance(condition, Predicate | str):
        return as_conditions(condition, columns)
    terms = list(_simple(condition))
    return from_dnf([terms]) if terms else TRUE


def _is_triple(value: Sequence[Any]) -> bool:
    return len(value) > 1 and isinstance(value[0], str) and isinstance(value[1], str)


def _simple(triple: Any) -> Iterator[Any]:
    """Yield the triple in the operators of the filter language."""
    if not isinstance(triple, Sequence) or isinstance(triple, str) or not _is_triple(triple):
        yield triple  # the reader of the triple raises the error
    elif triple[1] == _INTERVAL:
        if len(triple) != 3 or not isinstance(triple[2], Sequence) or len(triple[2]) != 2:
            raise FilterInvalid(f"{triple!r}: {_INTERVAL} takes (start, stop), None for an open end")
        start, stop = triple[2]
        if start is None and stop is None:
            raise FilterInvalid(f"{triple!r}: an interval without start and stop; leave the condition out")
        if start is not None:
            yield (triple[0], ">=", start)
        if stop is not None:
            yield (triple[0], "<", stop)
    else:
        yield (triple[0], _LONGER_NAMES.get(triple[1], triple[1]), *triple[2:])


# --- text ------------------------------------------------------------------------------------------------------------


def _from_text(text: str, columns: Mapping[str, pa.DataType]) -> Predicate:
    """Parse SQL, or else kartothek's own text. A value that is the name of a column is an error: likely a mistake."""
    try:
        return parse(text)
    except FilterInvalid:
        found = [_KARTOTHEK.fullmatch(part) for part in text.split("&")]
        matches = [match for match in found if match is not None]
        if len(matches) < len(found) or any(_unquoted(match["value"]) in columns for match in matches):
            raise
        for match in matches:
            if match["column"] not in columns:
                raise
    return from_dnf([[_typed(match["column"], match["op"], match["value"], columns) for match in matches]])


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _typed(column: str, op: str, text: str, columns: Mapping[str, pa.DataType]) -> tuple[str, str, Any]:
    """Parse the value in the column's type. Raises FilterInvalid for an invalid value."""
    data_type = columns[column]
    value: Any = _unquoted(text)
    try:
        if pa.types.is_integer(data_type):
            value = int(value)
        elif pa.types.is_floating(data_type):
            value = float(value)
        elif pa.types.is_boolean(data_type):
            value = _TRUTH[value.lower()]
        elif pa.types.is_timestamp(data_type):
            value = datetime.fromisoformat(value)
        elif pa.types.is_date(data_type):
            value = date.fromisoformat(value)
    except (ValueError, KeyError) as error:
        if text.upper().endswith((" AND", " OR")):
            raise FilterInvalid(f"{column} {op} {text}: incomplete after {text.split()[-1]}") from error
        raise FilterInvalid(f"{column} {op} {text}: {text!r} is not a valid {data_type}") from error
    return column, "==" if op == "=" else op, value
