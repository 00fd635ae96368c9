from __future__ import annotations

from tests.odf.sync.conftest import _hasty, other, store

__all__ = ["_hasty", "other", "store"]
