"""A table of flights in many small files."""

from __future__ import annotations

from typing import Any

from kubothek.catalog import Dataset, Lake
from tests.table.operations.table import Row, flights

ROWS: list[Row] = sorted(
    [row for n in range(4) for row in ((1, f"A{n}", n), (1, None, 10 + n), (2, f"B{n}", None))] + [(3, "C", 3)],
    key=repr,
)
"""What :func:`filled` fills in."""


def filled(lake: Lake, **options: Any) -> Dataset:
    """Version 5: four appends, each with rows of months 1 and 2, the last one of month 3 as well."""
    dataset = lake.create_dataset("flights", ["month"], **options)
    for n in range(4):
        more: list[Row] = [(3, "C", 3)] if n == 3 else []
        dataset.append(flights((1, f"A{n}", n), (1, None, 10 + n), (2, f"B{n}", None), *more))
    return dataset


def files_of(dataset: Dataset) -> dict[str, int]:
    """The number of files of each partition."""
    return dict(dataset.snapshot().head.directories)
