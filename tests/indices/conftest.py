"""Stores for tests of indices."""

from __future__ import annotations

import pytest

from tests.commits.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()
