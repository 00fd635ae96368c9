from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.lake.store import Store, StoreConfig, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))
