from __future__ import annotations

from tests.two_stores import store

__all__ = ["store"]
