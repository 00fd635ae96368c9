from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.odf import Layout, verify
from kubothek.odf.problems import Problem
from kubothek.storage import Store, StoreConfig, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def first(store: Store, layout: Layout | None = None) -> Problem:
    """The first thing that is wrong with the chain."""
    verdict = verify(store, layout or Layout(), threads=2)
    assert verdict.first is not None
    assert str(verdict.first)
    return verdict.first
