"""A store on disk, and databases that many merges share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubothek.storage import Store, StoreConfig, open_store
from tests.odf.merge.world import close_databases


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture(scope="package", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_databases()
