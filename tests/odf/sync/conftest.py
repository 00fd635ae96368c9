from __future__ import annotations

import pytest

from tests.two_stores import other, store

__all__ = ["other", "store"]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.odf.sync.verified.PAUSE", 0.001)
