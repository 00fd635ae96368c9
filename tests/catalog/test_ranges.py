"""A range on an indexed column is looked up as one range, in tables and cubes."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.dataset import Dataset

FILES = 60
DRAW = random.Random(1)
VALUES = [DRAW.randrange(10**6) for _ in range(FILES * 10)]


@pytest.fixture(scope="module", params=["Kartothek", "Native"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("lake")
    made = kubothek.open(root.as_uri()).create_dataset("t", ["p"], indices={"x": request.param, "f": request.param})
    floats = [float("nan") if n % 97 == 0 else value / 2 for n, value in enumerate(VALUES)]
    made.append(pa.table({"p": [n % FILES for n in range(len(VALUES))], "x": VALUES, "f": floats}))
    return made


def left_by_index(table: Dataset, where: Any) -> int:
    return next(step.files_left for step in table.plan(where).steps if step.name == "secondary indices")


@pytest.mark.parametrize(
    "where",
    [
        "x BETWEEN 500000 AND 520000",
        "x > 500000 AND x < 520000 AND x != 510000",
        "f >= 250000 AND f < 260000",
        "x IN (1, 2, 3) OR f BETWEEN 10 AND 2000",
    ],
)
def test_range_filter_on_indexed_column_opens_only_files_with_rows(table: Dataset, where: str) -> None:
    files = len(set(table.scan(where=where).read_all().column("p").to_pylist()))
    assert 0 < files < FILES / 2
    assert left_by_index(table, where) == files


@pytest.mark.parametrize(
    "where", ["x > 5 AND x < 5", "x = 3 AND x > 4", "x IN (1, 2) AND x IN (3, 4)", "f > 2 AND f < 1"]
)
def test_range_filter_that_is_empty_opens_no_file(table: Dataset, where: str) -> None:
    assert [step.files_left for step in table.plan(where).steps[1:]] == [0] * 4


def test_range_filter_on_floats_without_upper_bound_keeps_nan(table: Dataset) -> None:
    assert left_by_index(table, "f > 499999") == FILES, "NaN is larger than every number"


def test_range_filter_on_cube_column_opens_only_files_with_rows(tmp_path: Path) -> None:
    cube = kubothek.open((tmp_path).as_uri()).create_cube("c", dimension_columns=["x"], partition_columns=["p"])
    values = sorted(set(VALUES))
    rows = pa.table({"p": [n % FILES for n in range(len(values))], "x": values, "v": values})
    cube.build(rows)
    found = cube.query(conditions="x >= 500000 AND x < 505000")
    wanted = {n % FILES for n, value in enumerate(values) if 500000 <= value < 505000}
    left = re.search(r"secondary indices (\d+)", found.explain())
    assert left is not None
    assert int(left[1]) == len(wanted) < FILES / 2
    assert set(found.to_arrow().column("p").to_pylist()) == wanted
