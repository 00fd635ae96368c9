"""What the random sequences found once, in its smallest form."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek


@pytest.mark.parametrize("kind", ["Kartothek", "Native"])
@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0]])
def test_index_lookup_of_zero_finds_both_signed_zeros(tmp_path: Path, kind: str, zeros: list[float]) -> None:
    """Statistics tell Arrow that all values are -0.0, which it then does not find in a set with 0.0."""
    lake = kubothek.open(tmp_path.as_uri())
    dataset = lake.create_dataset("t", schema={"x": "float64"}, indices={"x": kind})
    dataset.append(pa.table({"x": [7.0]}))
    dataset.append(pa.table({"x": zeros}))
    for where in ("x IN (-1.5, 0.0)", "x IN (-0.0, 1.5)", "x = 0.0", "x = -0.0"):
        assert dataset.scan(where=where).read_all()["x"].to_pylist() == zeros
