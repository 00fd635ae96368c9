"""Random filters, and the rows for which they are TRUE by SQL's three-valued logic, said in the plainest way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kubothek.table.expressions import from_dnf
from tests.properties.values import POOLS, Row, Shape

COMPARISONS = ["=", "!=", "<", "<=", ">", ">="]
Literal = tuple[str, str, Any]


@dataclass(frozen=True)
class Filter:
    """OR over AND over ``(column, operator, value)``."""

    dnf: tuple[tuple[Literal, ...], ...]

    @property
    def text(self) -> str:
        """In Kubothek's language."""
        return from_dnf([list(conjunction) for conjunction in self.dnf]).to_sql()

    @property
    def duckdb(self) -> str | None:
        """In DuckDB's language, which has no way to write the character NUL."""
        text = " OR ".join("(" + " AND ".join(_sql_term(*literal) for literal in each) + ")" for each in self.dnf)
        return None if "\x00" in text else text

    def holds(self, row: Row) -> bool:
        return any(all(_true(row[column], op, value) for column, op, value in each) for each in self.dnf)


def _true(value: Any, op: str, literal: Any) -> bool:
    match op:
        case "is null":
            return value is None
        case "is not null":
            return value is not None
        case _ if value is None:
            return False
        case "in":
            return value in [item for item in literal if item is not None]
        case "not in":
            return None not in literal and value not in literal
    left, right = _ordered(value), _ordered(literal)
    answers: dict[str, bool] = {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return answers[op]


def _ordered(value: Any) -> Any:
    """Text is ordered by its UTF-8 bytes."""
    return value.encode() if isinstance(value, str) else value


@st.composite
def filters(draw: st.DrawFn, shape: Shape, columns: list[str] | None = None) -> Filter:
    """A filter on some of these columns; None = all that compare."""
    able = [name for name in columns or shape.columns if not pa.types.is_nested(shape.columns[name])]
    if not able:
        return Filter(((("id", ">=", draw(st.integers(0, 40))),),))
    literals = st.sampled_from(able).flatmap(lambda name: _literals(name, shape.columns[name]))
    conjunctions = st.lists(literals, min_size=1, max_size=2).map(tuple)
    return Filter(tuple(draw(st.lists(conjunctions, min_size=1, max_size=2))))


def _literals(name: str, data_type: pa.DataType) -> st.SearchStrategy[Literal]:
    values = st.sampled_from(POOLS[data_type])
    return st.one_of(
        st.tuples(st.just(name), st.sampled_from(COMPARISONS), values),
        st.tuples(st.just(name), st.sampled_from(["in", "not in"]), st.lists(values, min_size=1, max_size=3)),
        st.tuples(st.just(name), st.sampled_from(["is null", "is not null"]), st.none()),
    )


def _sql(value: Any) -> str:
    """A literal of DuckDB's."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    kind = {int: "BIGINT", float: "DOUBLE", Decimal: "DECIMAL(9,2)", date: "DATE", datetime: "TIMESTAMP"}[type(value)]
    return f"'{value}'::{kind}"


def _sql_term(column: str, op: str, value: Any) -> str:
    name = '"' + column.replace('"', '""') + '"'
    if op in ("is null", "is not null"):
        return f"{name} {op}"
    if op in ("in", "not in"):
        return f"{name} {op} ({', '.join(map(_sql, value))})"
    return f"{name} {op} {_sql(value)}"
