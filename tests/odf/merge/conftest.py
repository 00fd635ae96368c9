"""A store on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.storage import Store, StoreConfig, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))
