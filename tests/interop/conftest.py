"""Copies of golden stores that a test may change, and plateau on the same directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kubothek
from kubothek.catalog import Lake
from tests.table import golden


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "lake"


@pytest.fixture
def lake(root: Path) -> Lake:
    """An empty store."""
    root.mkdir(exist_ok=True)
    return kubothek.open(root.as_uri())


@pytest.fixture
def url(root: Path) -> str:
    """The store as plateau knows it."""
    return f"hfs://{root}"


@pytest.fixture
def golden_copy(root: Path) -> Callable[[str], Lake]:
    """A golden store that may be written."""

    def copy(name: str) -> Lake:
        shutil.copytree(golden.ROOT / name / "store", root)
        return kubothek.open(root.as_uri())

    return copy
