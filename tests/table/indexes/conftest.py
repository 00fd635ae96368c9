"""Stores for tests of indices."""

from __future__ import annotations

import pytest

from tests.table.log.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()
