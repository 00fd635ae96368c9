"""Files as other programs leave them, and stores other than a directory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.cube.handle import Cube
from kubothek.errors import StoreError, VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from tests.cube.query.small import built, rows
from tests.s3server import S3Server

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def found(cube: Cube, **asked: Any) -> list[dict[str, Any]]:
    return cube.query(**asked).to_arrow().to_pylist()


def replaced(store: Store, key: str, table: pa.Table) -> None:
    """Put other bytes into a data file, as a program may that shares the store."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2)
    store.put(key, sink.getvalue())


def test_query_reads_files_with_narrower_types_and_different_columns(store: Store) -> None:
    cube = built(store)
    plan = cube.query("p = 1").plan
    narrow = pa.table({"n": pa.array([7, 8], pa.int8()), "x": pa.array([11, 10], pa.int32()), "more": [1, 2]})
    replaced(store, plan.seed.files_of(0)[0], narrow.append_column("y", pa.array([0, 0], pa.int16())))
    kinds = pa.table({"x": [10], "kind": pa.array(["k"]).dictionary_encode(), "p": [99]})
    replaced(store, plan.datasets[1].files_of(0)[0], kinds)
    assert found(cube, conditions="p = 1") == [
        {"kind": "k", "n": 8, "note": None, "p": 1, "stock": None, "x": 10, "y": 0},
        {"kind": None, "n": 7, "note": None, "p": 1, "stock": 8, "x": 11, "y": 0},
    ]


def test_query_uses_last_row_of_cell_within_file(store: Store) -> None:
    cube = built(store)
    plan = cube.query("p = 2").plan
    twice = rows(x=[20, 21, 20, 21, 20], y=[0] * 5, n=[1, 2, 3, 4, 5])
    replaced(store, plan.seed.files_of(0)[0], twice)
    replaced(store, plan.datasets[1].files_of(0)[0], rows(x=[21, 21], kind=["old", "new"], note=["a", "b"]))
    newest = [
        {"kind": None, "n": 5, "p": 2, "x": 20, "y": 0},
        {"kind": "new", "n": 4, "p": 2, "x": 21, "y": 0},
    ]
    assert found(cube, conditions="p = 2", payload_columns=["n", "kind"]) == newest
    assert found(cube, conditions="p = 2 AND n < 4", payload_columns=["n"]) == [
        {"n": 3, "p": 2, "x": 20, "y": 0},
        {"n": 2, "p": 2, "x": 21, "y": 0},
    ]
    assert found(cube, conditions="p = 2 AND n < 4", payload_columns=["n"], newest_only=True) == []


def test_query_with_damaged_file_raises_store_error(store: Store) -> None:
    cube = built(store)
    store.put(cube.query("p = 0").plan.seed.files_of(0)[0], b"no Parquet at all")
    with pytest.raises(StoreError, match="cannot read"):
        cube.query().to_arrow()
    assert len(found(cube, conditions="p > 0")) == 6


@pytest.mark.s3
def test_query_of_cube_on_s3_returns_rows_and_groups(s3: S3Server, secret: Path, bucket: str) -> None:
    store = open_store(StoreConfig(f"s3://{bucket}/ware/house", s3.endpoint, credentials_dir=str(secret)))
    cube = built(store)
    assert found(cube, conditions="kind IN ('k1', 'k3') AND n = 0", payload_columns=["stock"]) == [
        {"p": 1, "stock": None, "x": 10, "y": 0},
        {"p": 3, "stock": None, "x": 30, "y": 0},
    ]
    assert [group.key for group in cube.query(partition_by="kind")] == [{"kind": f"k{n}"} for n in range(4)]
    gone = cube.query("p = 3")
    store.delete(gone.plan.seed.files_of(0))
    with pytest.raises(VersionIncomplete):
        gone.to_arrow()
