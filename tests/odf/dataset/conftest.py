from __future__ import annotations

from tests.two_stores import other, store

__all__ = ["other", "store"]
