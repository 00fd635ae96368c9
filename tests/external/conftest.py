"""Plain files in a store, and what is needed to keep metadata about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.external.files import PlainFiles
from kubothek.external.refresh import Place, Refreshed, describe_here, refresh
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.skipping.model import IndexDefinition, SkippingState

DEFINITIONS = SkippingState(
    (
        IndexDefinition("MinMax", ("id",)),
        IndexDefinition("ValueList", ("city",)),
        IndexDefinition("BloomFilter", ("id",)),
        IndexDefinition("Prefix", ("city",), {"length": "3"}),
    )
)
FILES = PlainFiles("landing/trips")


class Trips:
    """A directory of Parquet files, ten rows each, with ids that do not overlap."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store: Store = open_store(StoreConfig(f"file://{root}"))

    def put(self, number: int, city: str | None = None, name: str | None = None) -> str:
        """Write a file; returns its key."""
        key = f"landing/trips/{name or f'part-{number}.parquet'}"
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        rows: dict[str, list[Any]] = {
            "id": list(range(10 * number, 10 * number + 10)),
            "city": [city or f"city-{number}"] * 10,
        }
        pq.write_table(pa.table(rows), path)
        return key

    @property
    def place(self) -> Place:
        """Metadata in the same store."""
        return Place(self.store, self.store, "team.trips")

    def refresh(self, definitions: SkippingState = DEFINITIONS, files: PlainFiles = FILES) -> Refreshed:
        """In this process."""
        return refresh(self.place, files, definitions, build=lambda _bytes: describe_here(self.place))


@pytest.fixture
def trips(tmp_path: Path) -> Trips:
    return Trips(tmp_path)
