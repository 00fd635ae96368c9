"""Dry runs and refused writes leave the store of another program as it is, byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from plateau.api.dataset import store_dataframes_as_dataset, update_dataset_from_dataframes

import kubothek
from kubothek.catalog import Lake
from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeAlreadyApplied
from kubothek.dataset import Dataset
from kubothek.errors import LakeError
from kubothek.table.log import AlreadyApplied, Operation
from tests.table import golden

COLUMNS = {"p": [1, 1, 2], "x": [10, 11, 20]}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"hfs://{tmp_path}"


@pytest.fixture
def lake(tmp_path: Path, url: str) -> Lake:
    """A partitioned dataset with an index, which plateau wrote."""
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame(COLUMNS)], store=url, dataset_uuid="d", partition_on=["p"], secondary_indices=["x"]
    )
    return kubothek.open(tmp_path.as_uri())


def objects(lake: Lake) -> dict[str, str]:
    return {info.key: info.etag for info in lake.store.list("") if not info.key.startswith(".kubothek/probe/")}


WRONG: list[Callable[[Dataset], object]] = [
    lambda dataset: dataset.append(pa.table({"p": [1], "x": ["text"]})),
    lambda dataset: dataset.append(pa.table({"p": [1], "y": [1]})),
    lambda dataset: dataset.replace(pa.table({"p": [1], "x": [1]}), where="x = 1"),
    lambda dataset: dataset.replace(pa.table({"p": [1], "x": [1]}), where="p = 2"),
    lambda dataset: dataset.delete("x = 10"),
    lambda dataset: dataset.delete("nothing = 10"),
    lambda dataset: dataset.delete("p = 1 OR p <> 1"),
    lambda dataset: dataset.update({"x": "text"}, where="x = 10", row_level=True),
    lambda dataset: dataset.overwrite(pa.table({"p": [1], "x": ["text"]})),
    lambda dataset: dataset.rollback(7),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_refused_write_leaves_foreign_store_unchanged(lake: Lake, wrong: Callable[[Dataset], object]) -> None:
    before = objects(lake)
    with pytest.raises(LakeError):
        wrong(lake.dataset("d"))
    left = objects(lake)
    assert {key: left.get(key) for key in before} == before
    assert not [key for key in left.keys() - before.keys() if not key.endswith(".parquet")]


def test_dry_runs_leave_foreign_store_unchanged(lake: Lake) -> None:
    before = objects(lake)
    dataset = lake.dataset("d")
    assert not dataset.collect(keep_versions=1).found
    dataset.plan_compaction()
    dataset.health()
    assert objects(lake) == before


def test_dry_run_over_foreign_commit_lists_what_enforcement_deletes(lake: Lake, url: str) -> None:
    dataset = lake.dataset("d")
    dataset.append(pa.table({"p": [3], "x": [30]}))
    update_dataset_from_dataframes([pd.DataFrame({"p": [4], "x": [40]})], store=url, dataset_uuid="d")
    before = objects(lake)
    planned = dataset.collect(keep_versions=1)
    assert objects(lake) == before
    done = dataset.collect(keep_versions=1, enforce=True)
    assert (planned.found, planned.versions) == (done.found, done.versions)


def test_valid_write_adopts_foreign_commit_first(lake: Lake, url: str) -> None:
    dataset = lake.dataset("d")
    dataset.append(pa.table({"p": [3], "x": [30]}), id="mine")
    update_dataset_from_dataframes([pd.DataFrame({"p": [4], "x": [40]})], store=url, dataset_uuid="d")
    dataset.replace(pa.table({"p": [4], "x": [41]}), where="p = 4")
    assert isinstance(dataset.append(pa.table({"p": [3], "x": [30]}), id="mine"), AlreadyApplied)
    assert set(dataset.scan().read_all().column("x").to_pylist()) == {10, 11, 20, 30, 41}
    operations = [record.operation for record in dataset.history()][::-1]
    assert operations == [Operation.EXTERNAL, Operation.APPEND, Operation.EXTERNAL, Operation.REPLACE]
    assert dataset.scan(where="x = 41").read_all().num_rows == 1


def test_schema_overwritten_by_plateau_is_used_for_writes(lake: Lake, url: str) -> None:
    dataset = lake.dataset("d")
    dataset.append(pa.table({"p": [3], "x": [30]}))
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame({"p": [1], "x": ["a"]})], store=url, dataset_uuid="d", partition_on=["p"], overwrite=True
    )
    dataset.append(pa.table({"p": [2], "x": ["b"]}))
    assert set(dataset.scan().read_all().column("x").to_pylist()) == {"a", "b"}


@pytest.fixture
def geo(tmp_path: Path) -> Lake:
    """A cube that kartothek wrote."""
    shutil.copytree(golden.ROOT / "k53-cube" / "store", tmp_path / "cube")
    return kubothek.open((tmp_path / "cube").as_uri())


def test_cube_cleanup_dry_run_leaves_kartothek_cube_unchanged(geo: Lake) -> None:
    before = objects(geo)
    assert not any(done.found for done in geo.cube("geo").cleanup(dry_run=True).values())
    assert objects(geo) == before


DAY = datetime(2026, 11, 27)
HOLIDAY: dict[str, list[Any]] = {"day": [DAY], "holiday": ["none"], "weight": [1.0]}
WRONG_FOR_CUBES: list[Callable[[Cube], object]] = [
    lambda cube: cube.append({"holidays": pa.table(HOLIDAY | {"weight": ["text"]})}),
    lambda cube: cube.append({"holidays": pa.table(HOLIDAY | {"new": [1]})}),
    lambda cube: cube.append({"holidays": pa.table(HOLIDAY), "nothing": pa.table(HOLIDAY)}),
    lambda cube: cube.append({"holidays": pa.table({"day": [DAY], "temp": [1]})}, evolve="holidays"),
    lambda cube: cube.update({"holidays": pa.table(HOLIDAY)}, remove="temp = 1"),
    lambda cube: cube.remove_partitions("temp = 1"),
    lambda cube: cube.extend({"more": pa.table({"day": [DAY], "temp": [1]})}),
    lambda cube: cube.extend({"more": pa.table({"day": ["text"], "m": [1]})}),
    lambda cube: cube.extend({"seed": pa.table(HOLIDAY)}),
    lambda cube: cube.index("holidays", "nothing"),
    lambda cube: cube.build({"seed": pa.table(HOLIDAY)}),
]


@pytest.mark.parametrize("wrong", WRONG_FOR_CUBES)
def test_refused_write_leaves_kartothek_cube_unchanged(geo: Lake, wrong: Callable[[Cube], object]) -> None:
    before = objects(geo)
    with pytest.raises(LakeError):
        wrong(geo.cube("geo"))
    assert objects(geo) == before


@pytest.mark.parametrize("wrong", WRONG_FOR_CUBES[::6])
def test_refused_write_leaves_foreign_cube_change_unchanged(geo: Lake, wrong: Callable[[Cube], object]) -> None:
    geo.cube("geo").append({"holidays": pa.table(HOLIDAY)})
    head = json.loads(geo.store.get(key := "geo++holidays.by-dataset-metadata.json"))
    head["partitions"].popitem()
    geo.store.put(key, json.dumps(head).encode())
    before = objects(geo)
    with pytest.raises(LakeError):
        wrong(geo.cube("geo"))
    assert objects(geo) == before
    geo.cube("geo").append({"holidays": pa.table(HOLIDAY)})
    assert [record.operation for record in geo.cube("geo").history()] == ["Append", "External", "Append", "Adopt"]


def test_valid_write_adopts_kartothek_cube_first(geo: Lake) -> None:
    cube = geo.cube("geo")
    rows = geo.dataset("geo++holidays").scan().read_all().num_rows
    cube.append({"holidays": pa.table(HOLIDAY)}, id="mine")
    assert isinstance(cube.append({"holidays": pa.table(HOLIDAY)}, id="mine"), CubeAlreadyApplied)
    assert [record.operation for record in cube.history()] == ["Append", "Adopt"]
    assert geo.dataset("geo++holidays").scan().read_all().num_rows == rows + 1
