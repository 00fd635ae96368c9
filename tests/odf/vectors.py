"""The published vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "odf"
VECTORS: dict[str, Any] = json.loads((GOLDEN / "vectors.json").read_text())
