"""What kartothek does to a member: reads its head, writes a file, and puts a new head blindly, keeping metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.schema import render_common_metadata
from tests.cube.small import PREFIX

Head = dict[str, Any]


def put_over(store: Store, name: str, change: Callable[[Head], None]) -> None:
    """Change the head of a member as a program does that knows of no other."""
    key = keys.head(f"{PREFIX}++{name}")
    head = orjson.loads(store.get(key))
    change(head)
    store.put(key, orjson.dumps(head))


def append_as_kartothek(store: Store, name: str, rows: pa.Table, p: int = 0) -> None:
    """One file more in a partition; the indices are left to who reads them next."""
    label = f"p={p}/{uuid4().hex}"
    file = f"{PREFIX}++{name}/table/{label}.parquet"
    store.put(file, parquet(rows.drop_columns(["p"])))

    def add(head: Head) -> None:
        head["partitions"][label] = {"files": {"table": file}}

    put_over(store, name, add)


def add_as_kartothek(store: Store, name: str, rows: pa.Table, *, is_seed: bool = False) -> None:
    """A dataset more, as ``extend_cube`` makes it; not partitioned."""
    uuid, label = f"{PREFIX}++{name}", uuid4().hex
    file = f"{uuid}/table/{label}.parquet"
    store.put(file, parquet(rows))
    store.put(keys.common_metadata(uuid, "table"), render_common_metadata(rows.schema))
    head = {
        "dataset_metadata_version": 4,
        "dataset_uuid": uuid,
        "metadata": {
            "ktk_cube_dimension_columns": ["x"],
            "ktk_cube_is_seed": is_seed,
            "ktk_cube_partition_columns": ["p"],
            "ktk_cube_suppress_index_on": [],
        },
        "partitions": {label: {"files": {"table": file}}},
        "partition_keys": [],
    }
    store.put(keys.head(uuid), orjson.dumps(head))


def parquet(rows: pa.Table) -> bytes:
    """A data file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()
