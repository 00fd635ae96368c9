from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.odf.engines.world import serving
from tests.two_stores import store

__all__ = ["store"]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """What coordinator and engine share."""
    made = tmp_path / "volume"
    made.mkdir()
    return made


@pytest.fixture
def address(volume: Path) -> Iterator[str]:
    """Of our engine."""
    with serving(volume) as found:
        yield found
