"""Cells as numbers, in the corners that whole queries seldom reach."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from math import nan
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from kubothek.cube.query import keys
from kubothek.cube.query.keys import Cells

pytestmark = pytest.mark.slow

VALUES: list[Any] = [[2, 0, 1], ["b", "", "é"], [0.0, nan, -1.5], [True, False, True], [b"x", b"", b"\xff"]]
VALUES += [[date(2024, 1, 1), date(1960, 1, 1), date(3000, 1, 1)], [Decimal("1.10"), Decimal("-1.00"), Decimal("0.00")]]


def cells(part: list[int], **columns: list[Any]) -> Cells:
    return Cells(np.array(part, np.int64), {name: pa.array(values) for name, values in columns.items()})


def find(these: Cells, own_part: list[int], part: list[int], **columns: list[Any]) -> list[int] | None:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    found = these.find(np.array(own_part, np.int64), np.array(part, np.int64), arrays)
    return None if found is None else found.tolist()


@pytest.mark.parametrize("values", VALUES, ids=lambda values: type(values[0]).__name__)
def test_cell_lookup_finds_cells_of_every_type_at_any_position(values: list[Any]) -> None:
    these = cells([0, 0, 0], x=values)
    assert find(these, [0, 0, 0], [0, 0, 0, 0], x=[values[2], values[1], values[0], values[1]]) == [
        *([2, 3, 0] if values[0] != values[2] else [2, 3, 2]),
    ]


def test_cell_lookup_treats_zeros_as_equal_and_nan_as_equal() -> None:
    these = cells([0, 0], f=[-0.0, nan])
    assert find(these, [0, 0], [0, 0, 0], f=[1.0, nan, 0.0]) == [2, 1]
    assert cells([0, 0, 0], f=[0.0, -0.0, nan]).last().tolist() == [False, True, True]


def test_cell_lookup_ignores_extra_cells_and_marks_missing_cells() -> None:
    these = cells([5, 5, 7], x=[1, 2, 1])
    assert find(these, [5, 5, 7], [4, 5, 7, 9], x=[1, 2, 9, 1]) == [-1, 1, -1]
    assert find(these, [5, 5, 7], [], x=pa.array([], pa.int64())) == [-1, -1, -1]  # type: ignore[arg-type]
    assert find(cells([], x=[]), [], [1], x=pa.nulls(1)) == []  # type: ignore[arg-type]


def test_cell_lookup_of_equal_columns_matches_row_by_row() -> None:
    these = cells([0, 0], x=[1, 2], y=["a", "a"])
    assert find(these, [0, 0], [0, 0], x=[1, 2], y=["a", "a"]) is None
    assert find(these, [0, 0], [0, 0], x=[2, 1], y=["a", "a"]) == [1, 0]
    assert find(these, [0, 0], [0, 0], x=[1, 2]) == [0, 1]


@pytest.mark.parametrize("largest", [1 << 62, 64])
@pytest.mark.parametrize("spare", [4, 0])
def test_cell_lookup_of_many_cells_survives_hashing_and_compaction(largest: int, spare: int) -> None:
    random = np.random.default_rng(3)
    count = 3000
    rows = {name: random.integers(0, 40, count).tolist() for name in "xyz"}
    part = random.integers(10, 13, count).tolist()
    last = {key: n for n, key in enumerate(zip(part, *rows.values(), strict=True))}
    wanted = list(last)
    columns = {name: [key[n + 1] for key in wanted] for n, name in enumerate(rows)}
    own_part = [key[0] for key in wanted]
    with patch.object(keys, "_LARGEST", largest), patch.object(keys, "_SPARE", spare):
        assert find(cells(own_part, **columns), own_part, part, **rows) == list(last.values())
        kept = np.flatnonzero(cells(part, **rows).last()).tolist()
    assert kept == sorted(last.values())


def test_cell_order_check_detects_strictly_ascending_rows() -> None:
    assert cells([0, 0, 1], x=[1, 2, 1]).ascending()
    assert cells([0, 0, 0], x=[1, 1, 2], y=["a", "é", "a"]).ascending()
    assert not cells([0, 0], x=[1, 1]).ascending()
    assert not cells([0, 0], x=[2, 1]).ascending()
    assert not cells([1, 0], x=[1, 2]).ascending()
    assert not cells([0, 0], f=[nan, nan]).ascending()
    assert cells([], x=[]).ascending()
