"""Fixtures of whoever needs two stores: one's own, and that of another party."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.storage import Store, StoreConfig, open_store

__all__ = ["other", "store"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Of files."""
    return _made(tmp_path / "store")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """That of the other party."""
    return _made(tmp_path / "other")


def _made(root: Path) -> Store:
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))
