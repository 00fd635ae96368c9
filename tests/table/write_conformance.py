"""What every way of writing a table must do: the writer itself, and jobs with and without Spark, run these
cases.

A way of writing takes ``tables`` in order, with their own types, and partitions them by ``partition_on``;
``check`` looks at what it stored: the files' labels and keys, their types, and every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.table.log.model.changes import PartitionFile
from kubothek.table.schema import normalise, without_time_zones


@dataclass(frozen=True)
class WriteCase:
    """``paths``: the rows that each partition path must hold afterwards, in this order, as stored."""

    name: str
    tables: tuple[pa.Table, ...]
    partition_on: tuple[str, ...]
    paths: dict[str, list[dict[str, Any]]]

    @property
    def schema(self) -> pa.Schema:
        return normalise(without_time_zones(self.tables[0].schema), self.partition_on)


def check(case: WriteCase, store: Store, uuid: str, files: Sequence[PartitionFile]) -> None:
    """Assert that these files, in any order across partitions, are what the case wants."""
    payload = [field for field in case.schema if field.name not in case.partition_on]
    found: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        path, _, name = file.label.rpartition("/")
        assert file.key == f"{uuid}/table/{file.label}.parquet"
        assert len(name) == 32
        table = pq.ParquetFile(pa.BufferReader(store.get(file.key))).read()
        assert table.schema.remove_metadata() == pa.schema(payload)
        assert file.rows == table.num_rows > 0
        assert file.bytes == store.stat(file.key).size
        found.setdefault(path, []).extend(table.to_pylist())
    assert len({file.label for file in files}) == len(files)
    assert found == case.paths


_MOMENT = datetime(2024, 3, 31, 1, 30, 0, 123456)

CASES: tuple[WriteCase, ...] = (
    WriteCase(
        "plain",
        (pa.table({"x": [1, 2]}), pa.table({"x": [3, None]})),
        (),
        {"": [{"x": 1}, {"x": 2}, {"x": 3}, {"x": None}]},
    ),
    WriteCase(
        "two partition columns, columns in another order",
        (
            pa.table({"z": [1, 2, 3], "year": [2019, 2020, 2019], "a": ["p", "q", "r"], "region": ["n", "n", "s"]}),
            pa.table({"region": ["n"], "a": ["t"], "z": [4], "year": [2019]}),
        ),
        ("region", "year"),
        {
            "region=n/year=2019": [{"a": "p", "z": 1}, {"a": "t", "z": 4}],
            "region=n/year=2020": [{"a": "q", "z": 2}],
            "region=s/year=2019": [{"a": "r", "z": 3}],
        },
    ),
    WriteCase(
        "hostile text in paths",
        (
            pa.table(
                {
                    "k": ["New York", "Zürich", "50%25", "x+y&z", "a/b", "", "a=b", "..", "東京"],
                    "x": list(range(9)),
                }
            ),
        ),
        ("k",),
        {
            "k=New%20York": [{"x": 0}],
            "k=Z%C3%BCrich": [{"x": 1}],
            "k=50%2525": [{"x": 2}],
            "k=x%2By%26z": [{"x": 3}],
            "k=a%2Fb": [{"x": 4}],
            "k=": [{"x": 5}],
            "k=a%3Db": [{"x": 6}],
            "k=..": [{"x": 7}],
            "k=%E6%9D%B1%E4%BA%AC": [{"x": 8}],
        },
    ),
    WriteCase(
        "every type of partition column",
        (
            pa.table(
                {
                    "i": pa.array([-1], pa.int8()),
                    "u": pa.array([2**64 - 1], pa.uint64()),
                    "f": pa.array([0.1], pa.float32()),
                    "s": pa.array(["x"]).dictionary_encode(),
                    "d": [date(2024, 2, 29)],
                    "t": pa.array([datetime(2024, 2, 29, 12)], pa.timestamp("s")),
                    "z": pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC)], pa.timestamp("ms", "Asia/Tokyo")),
                    "x": [1],
                }
            ),
        ),
        ("i", "u", "f", "s", "d", "t", "z"),
        {
            "i=-1/u=18446744073709551615/f=0.10000000149011612/s=x/d=2024-02-29"
            "/t=2024-02-29%2012%3A00%3A00/z=2024-02-29%2012%3A00%3A00": [{"x": 1}]
        },
    ),
    WriteCase(
        "every type of column",
        (
            pa.table(
                {
                    "b": [True, None],
                    "c": pa.array(["x", None]).dictionary_encode(),
                    "d": [date(2024, 2, 29), None],
                    "e": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
                    "f": pa.array([0.5, None], pa.float32()),
                    "i": pa.array([-128, None], pa.int8()),
                    "l": pa.array([[1, None], None], pa.large_list(pa.int16())),
                    "n": pa.nulls(2),
                    "r": pa.array([b"\x00\xff", None], pa.large_binary()),
                    "s": pa.array(["ü", None], pa.large_string()),
                    "t": pa.array([_MOMENT, None], pa.timestamp("ns")),
                    "u": pa.array([2**64 - 1, None], pa.uint64()),
                    "w": pa.array([["a"], []], pa.list_(pa.string())),
                    "y": pa.array([timedelta(seconds=1), None], pa.duration("us")),
                    "z": pa.array([_MOMENT.replace(tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
                }
            ),
        ),
        (),
        {
            "": [
                {
                    "b": True,
                    "c": "x",
                    "d": date(2024, 2, 29),
                    "e": Decimal("1.50"),
                    "f": 0.5,
                    "i": -128,
                    "l": [1, None],
                    "n": None,
                    "r": b"\x00\xff",
                    "s": "ü",
                    "t": _MOMENT,
                    "u": 2**64 - 1,
                    "w": ["a"],
                    "y": timedelta(seconds=1),
                    "z": _MOMENT,
                },
                {**dict.fromkeys("bcdefilnrstuyz"), "w": []},
            ]
        },
    ),
    WriteCase(
        "empty pieces",
        (
            pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}),
            pa.table({"k": [1], "x": [1]}),
        ),
        ("k",),
        {"k=1": [{"x": 1}]},
    ),
)
