"""A store on disk and a table of many small files in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.storage import Store, StoreConfig, open_store
from tests.table.maintenance.table import filled


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture
def table(store: Store) -> Dataset:
    """Months 1 and 2 in four files each, month 3 in one; carriers are indexed in both ways."""
    return filled(Lake(store), indices={"carrier": "Native", "delay": "Kartothek"})
