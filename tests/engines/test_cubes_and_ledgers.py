"""Engines read the datasets of a cube at the versions of its head, and the table of a ledger."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kubothek
from kubothek import Lake
from kubothek.odf.dataset import again, owner_key_file
from kubothek.odf.spec.manifests import read_snapshot
from tests.engines.engine import Engine
from tests.engines.histories import Sample, sample
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


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return kubothek.open(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="session")
def members(lake: Lake) -> list[tuple[Read, list[int]]]:
    """How to read each dataset of a cube at an earlier version of the cube, and the cells that it had."""
    cube = lake.create_cube("geo", dimension_columns="x", partition_columns="p")
    cube.build({"seed": cells(1, "v"), "extra": cells(1, "w")})
    cube.append({"seed": cells(2, "v")})
    members = cube.snapshot().members.values()
    cube.append({"seed": cells(3, "v"), "extra": cells(2, "w")})
    exports = [lake.dataset(member.uuid).export_iceberg() for member in members]
    return [
        (
            Read(export.table_location, export.metadata_location, member.snapshot.version),
            [1, 2] if member.is_seed else [1],
        )
        for member, export in zip(members, exports, strict=True)
    ]


def cells(cell: int, payload: str) -> pa.Table:
    return pa.table({"x": [cell], "p": ["ö/%"], payload: [cell]})


@pytest.fixture(scope="session")
def ledger(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A ledger of two pushes."""
    key = owner_key_file(tmp_path_factory.mktemp("keys") / "key")
    planes = lake.create_ledger("planes", read_snapshot(LEDGER), key)
    for name in ("Boing", "Boeing"):
        at = pa.array([0, 1], pa.timestamp("us"))
        planes.ledger.push(again(pa.table({"id": [1, 2], "name": ["Airbus", name], "at": at})))
    return sample(lake, planes)


def test_datasets_of_cube_are_read_at_the_versions_of_its_head(
    engine: Engine, members: list[tuple[Read, list[int]]]
) -> None:
    if engine.name in CURRENT_ONLY:
        pytest.skip("reads the current version only")
    for read, expected in members:
        assert sorted(engine.read(read)["x"].to_pandas()) == expected, read


def test_table_of_ledger_has_the_rows_of_kubothek(engine: Engine, ledger: Sample) -> None:
    rows = ledger.versions[ledger.dataset.version]
    assert rows.num_rows == 2
    naive = pa.schema([f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in rows.schema])
    assert multiset(engine.read(ledger.current)) == multiset(rows.cast(naive))
