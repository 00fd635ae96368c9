"""The published vectors and schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "odf"
SPEC_039 = GOLDEN / "0.39"
"""The schemas of specification 0.39; those of 0.34.1 are in GOLDEN itself."""
VECTORS: dict[str, Any] = json.loads((GOLDEN / "vectors.json").read_text())


@cache
def json_schemas(version: Path) -> dict[str, dict[str, Any]]:
    """The JSON schemas by name."""
    return {path.stem: json.loads(path.read_text()) for path in (version / "schemas").rglob("*.json")}


def referred(schema: dict[str, Any]) -> str:
    """The name that a schema refers to, or an empty text; members of unions refer beside their kind in 0.39."""
    if "allOf" in schema:
        return referred(schema["allOf"][1])
    return str(schema.get("$ref", "")).rpartition("/")[2]
