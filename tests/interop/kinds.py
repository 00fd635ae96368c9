"""Kinds of table for the tests beside plateau, each with rows that make trouble for its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

from kubothek.catalog import Dataset, Lake

REGIONS = ["New York", "Zürich", "50%25", "x+y&z", "a/b", "", "a=b", "tilde~.-_", "東京", "o'neil", '"quoted"', "100%"]
_TYPES: dict[str, pa.DataType] = {
    "region": pa.string(),
    "year": pa.int16(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "id": pa.int64(),
    "amount": pa.float32(),
    "big": pa.uint64(),
    "flag": pa.bool_(),
    "name": pa.string(),
    "never": pa.string(),
    "price": pa.decimal128(10, 2),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
    "carrier": pa.string(),
    "sku": pa.int32(),
}
SCHEMA = pa.schema(_TYPES)
Row = dict[str, Any]


def rows(start: int, count: int) -> pa.Table:
    """``count`` rows with the ids from ``start`` on; pandas keeps their types: no null integers, whole decimals."""

    def row(n: int) -> Row:
        return {
            "region": REGIONS[n % len(REGIONS)],
            "year": 2019 + n % 2,
            "day": date(2024, 1 + n % 3, 29),
            "at": datetime(2024, 2, 29, 12, 0, 0, 1000 * (n % 2)),
            "id": n,
            "amount": None if n % 5 == 0 else n % 5 / 4,
            "big": 2**63 + n % 3,
            "flag": None if n % 3 == 0 else n % 2 == 0,
            "name": None if n % 3 == 1 else f"näme {n}",
            "never": None,
            "price": None if n % 7 == 0 else Decimal(1234567800 + n).scaleb(-2),
            "raw": None if n % 6 == 0 else bytes([n % 256, 1]),
            "tags": None if n % 4 == 1 else [f"t{n}", "größe"],
            "carrier": None if n % 4 == 2 else REGIONS[n % 5],
            "sku": 1000 + n % 5,
        }

    return pa.Table.from_pylist([row(n) for n in range(start, start + count)], schema=SCHEMA)


@dataclass(frozen=True)
class Kind:
    """How a table is made. ``scope``: what plateau deletes by; it names whole files of these tables."""

    name: str
    partition_on: tuple[str, ...] = ()
    scope: Row = field(default_factory=dict)
    create: Row = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def make(self, lake: Lake) -> Dataset:
        """An empty table of this kind, called ``sales``."""
        return lake.create_dataset("sales", self.partition_on, **self.create)


def model(*tables: pa.Table) -> list[Row]:
    """The rows that readers must give, by id."""
    found = [row for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def ours(dataset: Dataset, **scan: Any) -> list[Row]:
    """What we read, by id."""
    return dataset.scan(**scan).read_all().sort_by("id").to_pylist()


def theirs(frame: pd.DataFrame) -> list[Row]:
    """What plateau read, by id, in our notation."""
    ordered = frame.sort_values("id", ignore_index=True)
    return [{str(name): _value(ordered[name][row]) for name in ordered} for row in range(len(ordered))]


def _value(found: Any) -> Any:
    if found is None or (not hasattr(found, "__len__") and pd.isna(found)):
        return None
    if isinstance(found, pd.Timestamp):
        return found.to_pydatetime()
    if hasattr(found, "tolist"):
        return found.tolist()
    return found
