"""A store on disk and a table in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.storage import Store, StoreConfig, open_store
from tests.table.operations.table import flights, rows


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture
def table(store: Store) -> Dataset:
    """Months 1 to 3 with two rows each, one of them without a carrier."""
    dataset = Lake(store).create_dataset("flights", ["month"])
    dataset.append(flights((1, "AA", 10), (1, None, 11), (2, "UA", 20), (2, None, 21), (3, "AA", 30), (3, "B6", None)))
    assert len(rows(dataset)) == 6
    return dataset
