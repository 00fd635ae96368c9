"""Schemas in DDL: ``"Date (UTC)" TIMESTAMP(3) NOT NULL`` (SL-19, SL-20; specification, "Schema Format")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FormatInvalid

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`) | (?P<word>\w+) | (?P<sign>[(),]) | (?P<other>\S))""", re.X
)
_PLAIN: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "UUID": pa.binary(16),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
}
"""The types of the specification, and their names in other dialects."""
_MOST_DIGITS: Final = 38
_LONGEST_NUMBER: Final = 9


def parse_ddl(columns: Sequence[str]) -> pa.Schema:
    """Parse the columns of a read step, one text each (or several, separated by commas).

    TIMESTAMP(p) is in UTC, TIMESTAMP and TIME without a precision are to the microsecond. Raises FormatInvalid.
    """
    fields: list[pa.Field[Any]] = []
    for text in columns:
        fields += _Definition(text).fields()
    names = [field.name for field in fields]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise FormatInvalid(f"the schema has column {twice[0]!r} more than once")
    if not fields:
        raise FormatInvalid("the schema has no columns; leave it out, or name them")
    return pa.schema(fields)


class _Definition:
    """The tokens of one text, and the position in them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def fields(self) -> Iterator[pa.Field[Any]]:
        while True:
            yield self._field()
            if self._at == len(self._tokens):
                return
            if not self._take(","):
                raise self._error(f"{self._peek()!r} is not understood; expected NOT NULL or the end")
            if self._at == len(self._tokens):
                return  # a trailing comma

    def _split(self, text: str) -> Iterator[str]:
        for match in _TOKEN.finditer(text):
            if (other := match["other"]) is not None:
                raise self._error(f'{other!r} is not allowed here; names with other characters are quoted: "a b"')
            yield match[0].strip()

    def _field(self) -> pa.Field[Any]:
        name = self._next("a name")
        if name in ("(", ")", ","):
            raise self._error("a column begins with its name")
        if (quote := name[0]) in '"`':
            name = name[1:-1].replace(quote * 2, quote)
        if not name:
            raise self._error("a column's name is empty")
        kind = self._type(self._next(f"the type of {name!r}").upper())
        nullable = True
        if self._take("NOT"):
            if not self._take("NULL"):
                raise self._error("NOT is followed by NULL")
            nullable = False
        else:
            self._take("NULL")
        return pa.field(name, kind, nullable=nullable)

    def _type(self, kind: str) -> pa.DataType:
        if kind == "DOUBLE":
            self._take("PRECISION")
        arguments = self._arguments()
        if kind in ("VARCHAR", "STRING", "TEXT") and len(arguments) <= 1:
            return pa.string()
        if kind in _PLAIN and not arguments:
            return _PLAIN[kind]
        if kind in ("DECIMAL", "NUMERIC"):
            return self._decimal(arguments)
        if kind in _TEMPORAL and len(arguments) <= 1:
            return self._temporal(kind, arguments)
        shown = f"{kind}({', '.join(map(str, arguments))})" if arguments else kind
        raise self._error(f"{shown} is no type; types are {_TYPES}")

    def _decimal(self, arguments: list[int]) -> pa.DataType:
        precision, scale = [*arguments, *[_MOST_DIGITS, 0][len(arguments) :]][:2]
        if len(arguments) > 2 or not (1 <= precision <= _MOST_DIGITS and scale <= precision):
            raise self._error(f"DECIMAL(p, s) has 1 to {_MOST_DIGITS} digits, of which s after the point")
        return pa.decimal128(precision, scale)

    def _temporal(self, kind: str, arguments: list[int]) -> pa.DataType:
        digits = arguments[0] if arguments else 6
        if digits > 9:
            raise self._error(f"{kind}(p) has at most 9 digits of a second")
        return _TEMPORAL[kind]("ms" if digits <= 3 else "us" if digits <= 6 else "ns")

    def _arguments(self) -> list[int]:
        found: list[int] = []
        if self._take("("):
            while True:
                number = self._next("a number")
                if not number.isdecimal() or len(number) > _LONGEST_NUMBER:
                    raise self._error(f"{number!r} is no number")
                found.append(int(number))
                if self._take(")"):
                    break
                if not self._take(","):
                    raise self._error("a bracket is never closed")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, what: str) -> str:
        if not (token := self._peek()):
            raise self._error(f"{what} is missing")
        self._at += 1
        return token

    def _take(self, word: str) -> bool:
        found = self._peek().upper() == word
        self._at += found
        return found

    def _error(self, problem: str) -> FormatInvalid:
        return FormatInvalid(f"schema {self._text[:100]!r}: {problem}")


def _time(unit: Any) -> pa.DataType:
    return pa.time32(unit) if unit == "ms" else pa.time64(unit)


_TEMPORAL: Final[dict[str, Callable[[Any], pa.DataType]]] = {
    "TIMESTAMP": lambda unit: pa.timestamp(unit, "UTC"),
    "TIME": _time,
}
_TYPES: Final = "BOOLEAN, INT, BIGINT, DECIMAL(p,s), FLOAT, DOUBLE, UUID, STRING, TIMESTAMP(p), DATE and TIME(p)"
