"""plateau.io.testing.delete over Kubothek: the store without what stays of a deleted dataset (docs/layout.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plateau.io.testing.delete import *  # noqa: F403

from kubothek.table.log.model.head import TOMBSTONE
from tests.plateau_conformance.adapter import StoreFactory

pytestmark = pytest.mark.slow

HEAD = ".by-dataset-metadata.json"


class _Data(StoreFactory):
    def __call__(self) -> Any:
        store = super().__call__()
        keys = store.keys

        def visible(*prefix: str) -> list[str]:
            found = [key for key in keys(*prefix) if not key.startswith(".kubothek/")]
            heads = [key for key in found if key.endswith(HEAD) and TOMBSTONE.encode() in store.get(key)]
            schemas = [f"{head.removesuffix(HEAD)}/table/_common_metadata" for head in heads]
            return [key for key in found if key not in (*heads, *schemas)]

        store.keys = visible
        return store


@pytest.fixture
def store_factory(tmp_path: Path) -> StoreFactory:
    (tmp_path / "store").mkdir()
    return _Data(str(tmp_path / "store"))


@pytest.fixture
def store_factory2(tmp_path: Path) -> StoreFactory:
    (tmp_path / "store2").mkdir()
    return _Data(str(tmp_path / "store2"))
