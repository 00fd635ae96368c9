"""A small table of flights: month (partition column), carrier and delay."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

from kubothek.catalog import Dataset
from kubothek.storage import Store
from kubothek.table.log.model import keys

Row: TypeAlias = tuple[int, str | None, int | None]
TYPES: dict[str, pa.DataType] = {"month": pa.int64(), "carrier": pa.string(), "delay": pa.int64()}
SCHEMA = pa.schema(TYPES)


def flights(*found: Row) -> pa.Table:
    months, carriers, delays = zip(*found, strict=True) if found else ((), (), ())
    columns: dict[str, Any] = {"month": months, "carrier": carriers, "delay": delays}
    return pa.table(columns, schema=SCHEMA)


def rows(dataset: Dataset, as_of: int | None = None) -> list[Row]:
    """All rows, in an order of their own."""
    found = dataset.scan(["month", "carrier", "delay"], as_of=as_of).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def head(store: Store, name: str = "flights") -> bytes:
    return store.get(keys.head(name))


def everything(store: Store) -> dict[str, str]:
    """Each object's key and ETag: two of these are the same if nothing was written."""
    return {info.key: info.etag for info in store.list("")}


def labels(dataset: Dataset) -> dict[str, str]:
    return dataset.snapshot().head.files()
