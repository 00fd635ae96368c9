"""Stores that kartothek 5.3 and plateau 4.6 wrote, with what a correct reader returns
(tests/golden/kartothek).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

ROOT = Path(__file__).parents[1] / "golden" / "kartothek"


def expected(name: str) -> dict[str, Any]:
    """``datasets`` of one golden store."""
    found: dict[str, Any] = json.loads((ROOT / name / "expected.json").read_text())
    return found["datasets"]  # type: ignore[no-any-return]


def rows(
    table: pa.Table, sort_by: str | list[tuple[str, Literal["ascending", "descending"]]] = "id"
) -> list[list[Any]]:
    """The rows in the notation of expected.json, sorted."""
    ordered = table.sort_by(sort_by) if table.num_rows else table
    return [[_notation(value) for value in row.values()] for row in ordered.to_pylist()]


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
