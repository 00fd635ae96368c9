"""Literals of a statement as DuckDB compares them with columns, where that needs no knowledge of its casts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from kubothek.sql.statement import Node

_EXACT_DIGITS: Final = 15
"""DuckDB makes decimals of numbers, and of those floats: with so many digits nothing is lost on the way."""
_MICROSECONDS: Final = len("2026-11-21 14:00:00.000000")
_YEARS: Final = range(1, 9999)


class Unclear(Exception):
    """A part of a condition that says nothing about the table on its own."""


def literal(node: Node, kind: pa.DataType) -> Any:
    """The literal as it is compared with a column of this type. Raises Unclear."""
    cast = None
    if node["type"] == "OPERATOR_CAST" and not node["try_cast"]:
        cast, node = node["type_expr"]["type_name"].upper(), node["child"]
    if node["type"] != "VALUE_CONSTANT" or cast not in (None, "DATE", "TIMESTAMP"):
        raise Unclear
    found = node["literal"]
    try:
        return _typed(found["kind"], found["text"], cast, kind)
    except ValueError:
        raise Unclear from None


def text_of(node: Node) -> str:
    """The text that a literal is. Raises Unclear."""
    if node["type"] != "VALUE_CONSTANT" or node["literal"]["kind"] != "STRING":
        raise Unclear
    return str(node["literal"]["text"])


def year_of(node: Node) -> tuple[date, date]:
    """The first day of the year that a literal is, and of the one after it. Raises Unclear."""
    year = literal(node, pa.int64())
    if year not in _YEARS:
        raise Unclear
    return date(year, 1, 1), date(year + 1, 1, 1)


def _typed(literal: str, text: str, cast: str | None, kind: pa.DataType) -> object:
    types = pa.types
    if literal == "STRING":
        return _from_string(text, cast, kind)
    if cast is None and literal == "BOOLEAN" and types.is_boolean(kind):
        return text == "true"
    if cast is None and literal == "INTEGER" and types.is_integer(kind):
        return int(text)
    exact = text.strip("-").replace(".", "", 1).isdigit() and len(text) <= _EXACT_DIGITS
    if cast is None and literal in ("INTEGER", "NUMERIC") and exact:
        if types.is_decimal(kind):
            return Decimal(text)
        if types.is_float64(kind):
            return float(text)
    raise Unclear


def _from_string(text: str, cast: str | None, kind: pa.DataType) -> object:
    types = pa.types
    if cast is None and (types.is_string(kind) or types.is_large_string(kind)):
        return text
    if types.is_date(kind) and cast in (None, "DATE"):
        return date.fromisoformat(text)
    if types.is_timestamp(kind) and len(text) <= _MICROSECONDS:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None and (cast != "DATE" or moment.time() == datetime.min.time()):
            return moment
    raise Unclear
