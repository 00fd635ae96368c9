from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.lake.store import Store, StoreConfig, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """That of the other party."""
    root = tmp_path / "other"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.lake.exchange.verified.PAUSE", 0.001)
