"""Stores that kartothek 5.3 and plateau 4.6 wrote, with what a correct reader returns
(tests/golden/kartothek).
"""

from __future__ import annotations

import base64
import json
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).parents[1] / "golden" / "kartothek"


def expected(name: str) -> dict[str, Any]:
    """``datasets`` of one golden store."""
    found: dict[str, Any] = json.loads((ROOT / name / "expected.json").read_text())
    return found["datasets"]  # type: ignore[no-any-return]


def rows(table: pa.Table, sort_by: str = "id") -> list[list[Any]]:
    """The rows in the notation of expected.json, sorted."""
    ordered = table.sort_by(sort_by) if table.num_rows else table
    return [[_notation(value) for value in row.values()] for row in ordered.to_pylist()]


def expression(predicates: list[list[list[Any]]] | None, schema: pa.Schema) -> pc.Expression | None:
    """The predicates of a query (OR of ANDs) as an expression."""
    if predicates is None:
        return None
    return reduce(or_, (reduce(and_, (_literal(literal, schema) for literal in each)) for each in predicates))


def _literal(literal: list[Any], schema: pa.Schema) -> pc.Expression:
    """Kartothek compares with null where SQL would ask IS NULL, and has no NaN."""
    column, operator, value = literal
    field = pc.field(column)
    if operator == "in":
        return reduce(or_, [_literal([column, "==", item], schema) for item in value], pc.scalar(False))
    if value is None:
        is_null: pc.Expression = field.is_null(nan_is_null=True)
        return is_null if operator == "==" else ~is_null
    scalar = pa.scalar(_typed(value, schema.field(column).type), schema.field(column).type)
    compared: pc.Expression = {
        "==": field == scalar,
        "!=": field != scalar,
        "<": field < scalar,
        "<=": field <= scalar,
        ">": field > scalar,
        ">=": field >= scalar,
    }[operator]
    return compared


def _typed(value: Any, data_type: pa.DataType) -> Any:
    if pa.types.is_binary(data_type):
        return base64.b64decode(value)
    if pa.types.is_temporal(data_type):
        return pa.scalar(value).cast(data_type).as_py()
    return value


def _notation(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        case float() if value != value:
            return None
        case _ if hasattr(value, "microsecond"):
            return value.isoformat(timespec="microseconds")
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
    return value
