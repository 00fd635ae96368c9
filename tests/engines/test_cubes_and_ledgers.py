"""Engines read the datasets of a cube at the versions of its head, and the table of a ledger."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.odf.dataset import again, owner_key_file
from kubothek.odf.spec.manifests import read_snapshot
from tests.engines.engine import Engine
from tests.engines.histories import sample
from tests.engines.reads import Read
from tests.engines.test_files import CURRENT_ONLY
from tests.table.iceberg.test_export import multiset

pytestmark = pytest.mark.slow

LEDGER = """
kind: DatasetSnapshot
version: 1
content:
  name: planes
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Parquet, schema: ["id BIGINT", "name STRING", "at TIMESTAMP"]}
      merge: {kind: Snapshot, primaryKey: [id]}
"""


def test_datasets_of_cube_are_read_at_the_versions_of_its_head(engine: Engine, tmp_path: Path) -> None:
    if engine.name in CURRENT_ONLY:
        pytest.skip("reads the current version only")
    lake = kubothek.open(tmp_path)
    cube = lake.create_cube("geo", dimension_columns="x", partition_columns="p")
    cube.build({"seed": cells(1, "v"), "extra": cells(1, "w")})
    cube.append({"seed": cells(2, "v")})
    before = cube.snapshot()
    cube.append({"seed": cells(3, "v"), "extra": cells(2, "w")})
    for member in before.members.values():
        exported = lake.dataset(member.uuid).export_iceberg()
        found = engine.read(Read(exported.table_location, exported.metadata_location, member.snapshot.version))
        assert sorted(found["x"].to_pandas()) == ([1, 2] if member.is_seed else [1]), member.name


def cells(cell: int, payload: str) -> pa.Table:
    return pa.table({"x": [cell], "p": ["ö/%"], payload: [cell]})


def test_table_of_ledger_has_the_rows_of_kubothek(engine: Engine, tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path)
    planes = lake.create_ledger("planes", read_snapshot(LEDGER), owner_key_file(tmp_path / "key"))
    for name in ("Boing", "Boeing"):
        at = pa.array([0, 1], pa.timestamp("us"))
        planes.ledger.push(again(pa.table({"id": [1, 2], "name": ["Airbus", name], "at": at})))
    exported = sample(lake, planes)
    (rows,) = [each for version, each in exported.versions.items() if version == planes.version]
    assert rows.num_rows == 2
    naive = pa.schema([f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in rows.schema])
    assert multiset(engine.read(exported.current)) == multiset(rows.cast(naive))
