"""Steps of a user of a lake, by names that commit b765f9b has as well: ``python steps.py DIRECTORY STEP...``.

The code is that of PYTHONPATH. ``make`` writes a lake, ``change`` commits to it and maintains it, ``collect`` deletes
what no version needs, ``read`` prints what readers find as JSON, with the result of a verification.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

import kubothek


def _named(name: str, present: str, former: str) -> Any:
    """Return what a module has, which was in another one."""
    try:
        return getattr(import_module(present), name)
    except ModuleNotFoundError:
        return getattr(import_module(former), name)


again = _named("again", "kubothek.odf.dataset", "kubothek.lake.ledger.root")
owner_key_file = _named("owner_key_file", "kubothek.odf.dataset", "kubothek.lake.ledger.root")
read_snapshot = _named("read_snapshot", "kubothek.odf.spec.manifests", "kubothek.lake.ledger.formats.manifests")
IndexDefinition = _named("IndexDefinition", "kubothek.table.skipping.model", "kubothek.lake.skipping.model")

REGISTER = """
kind: DatasetSnapshot
version: 1
content:
  name: register
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Parquet, schema: ["id BIGINT", "name STRING"]}
      merge: {kind: Snapshot, primaryKey: [id]}
"""


def flights(month: int, count: int) -> pa.Table:
    numbers = range(month * 1000, month * 1000 + count)
    return pa.table(
        {
            "month": pa.array([month] * count, pa.int64()),
            "carrier": [("AA", "B6", "Ünited")[n % 3] for n in numbers],
            "number": pa.array(numbers, pa.int64()),
            "delay": [None if n % 7 == 0 else n / 4 for n in numbers],
            "day": [date(2013, month, 1 + n % 28) for n in numbers],
            "fare": [Decimal(n) / 100 for n in numbers],
            "stops": [[n, n + 1][: n % 3] for n in numbers],
        }
    )


def planes(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([number for number, _ in pairs], pa.int64()), "name": [name for _, name in pairs]})


def make(lake: Any, directory: Path) -> None:
    made = lake.create_dataset(
        "flights",
        partition_on=["month"],
        sort_by=["number"],
        indices={"carrier": "Kartothek", "number": "Native"},
        skipping=[IndexDefinition("MinMax", ("delay",)), IndexDefinition("BloomFilter", ("number",))],
    )
    for month in (1, 2, 3):
        made.append(flights(month, 60), id=f"load-{month}")
    made.tag("first")
    made.append(flights(3, 10))
    made.delete(where="number < 1010", row_level=True)
    plain = lake.create_dataset("plain", schema={"a": "int64", "b": "string"}, bucket_by=["a"], num_buckets=3)
    plain.append(pa.table({"a": pa.array(range(50), pa.int64()), "b": [str(n) for n in range(50)]}))
    cube = lake.create_cube("visits", dimension_columns=["id"], partition_columns=["day"], index_columns=["kind"])
    rows: dict[str, Any] = {"id": pa.array([1, 2, 3], pa.int64()), "day": ["a", "a", "b"]}
    cube.build({"seed": pa.table(rows | {"kind": ["x", "y", "x"]})}, id="visits")
    cube.extend({"weights": pa.table(rows | {"weight": [1.5, 2.5, None]})})
    # the former code writes and reads Open Data Fabric 0.34 only
    known = inspect.signature(lake.create_ledger).parameters
    form = {"spec_version": "0.34"} if "spec_version" in known else {}
    register = lake.create_ledger("register", read_snapshot(REGISTER), owner_key_file(directory.parent / "key"), **form)
    register.ledger.push(again(planes((1, "Airbus"), (2, "Boing"))))


def change(lake: Any, directory: Path) -> None:
    made = lake.dataset("flights")
    assert made.append(flights(1, 60), id="load-1").version == 2, "it has happened"
    made.append(flights(4, 20))
    made.replace(flights(2, 15), where="month = 2")
    made.update({"carrier": "ZZ"}, where="number >= 3055", row_level=True)
    made.compact()
    made.heal()
    lake.dataset("plain").overwrite(pa.table({"a": pa.array([1], pa.int64()), "b": ["one"]}))
    cube = lake.cube("visits")
    more = pa.table({"id": pa.array([4], pa.int64()), "day": ["c"], "kind": ["z"]})
    cube.append({"seed": more}, id="more visits")
    lake.dataset("register").ledger.push(again(planes((1, "Airbus"), (2, "Boeing"), (3, "Cessna"))))


def collect(lake: Any, directory: Path) -> None:
    old = time.time() - timedelta(days=3).total_seconds()
    for each in directory.rglob("*"):
        if each.is_file():
            os.utime(each, (old, old))
    for name in lake.datasets():
        lake.dataset(name).collect(keep_versions=1, enforce=True)


def read(lake: Any, directory: Path) -> None:
    found: dict[str, Any] = {name: _found(lake, name) for name in lake.datasets()}
    found["visits"] = sorted(lake.cube("visits").query().to_arrow().to_pylist(), key=str)
    print(json.dumps(found, default=str))


def _found(lake: Any, name: str) -> dict[str, Any]:
    dataset = lake.dataset(name)
    rows = dataset.scan().read_all()
    return {
        "rows": sorted(rows.to_pylist(), key=str),
        "types": [f"{field.name}: {field.type}" for field in rows.schema],
        "selected": dataset.scan(where=f"{rows.schema.names[-1]} is not null").read_all().num_rows,
        "tags": dataset.tags(),
        "skipping": [(index.type, index.columns) for index in dataset.skipping],
        "wrong": dataset.verify().wrong,
    }


if __name__ == "__main__":
    steps: dict[str, Callable[[Any, Path], None]] = {f.__name__: f for f in (make, change, collect, read)}
    for step in sys.argv[2:]:
        steps[step](kubothek.open(Path(sys.argv[1]).as_uri()), Path(sys.argv[1]))
