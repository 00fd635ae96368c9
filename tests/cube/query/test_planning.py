"""Which files a query reads, and that leaving out the others never brings an old row back."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from kubothek.cube.handle import Cube
from kubothek.cube.query import CubeQuery, assembling, masks, reading
from kubothek.cube.query.model import DatasetPlan
from kubothek.errors import VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.update_skipping import reskip
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from tests.cube.query.small import built, rows, sales

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


@pytest.fixture
def cube(store: Store) -> Cube:
    return built(store)


def left(query: CubeQuery, dataset: str) -> list[int]:
    """How many files each step left."""
    (found,) = (each for each in query.plan.datasets if each.name == dataset)
    assert found.files == found.steps[-1].files_left
    return [step.files_left for step in found.steps]


def cells(query: CubeQuery) -> list[int]:
    found: list[int] = query.to_arrow().column("x").to_pylist()  # type: ignore[assignment]
    return found


def test_query_on_partition_column_prunes_partitions_of_all_datasets(cube: Cube) -> None:
    found = cube.query("p = 2")
    assert (left(found, "sales"), left(found, "kinds")) == ([4, 1, 1, 1, 1, 1], [4, 1, 1, 1, 1, 1])
    assert left(found, "stock") == [1] * 6
    assert found.plan.partitions == 1
    assert cells(found) == [20, 21]


def test_query_on_indexed_dimension_prunes_all_datasets(cube: Cube) -> None:
    found = cube.query("x = 31")
    assert left(found, "sales") == [4, 4, 1, 1, 1, 1]
    assert left(found, "kinds")[-1] <= 1
    assert cells(found) == [31]


def test_query_on_unindexed_column_prunes_partitions_by_statistics(cube: Cube) -> None:
    cube.append(rows(p=[1], x=[12], y=[5], n=[1]))
    found = cube.query("y > 3")
    assert left(found, "sales") == [5, 5, 5, 5, 1, 1]
    assert left(found, "kinds") == [4, 4, 4, 4, 4, 1]
    assert cells(found) == [12]


def test_query_on_index_of_other_dataset_prunes_seed(cube: Cube) -> None:
    found = cube.query("kind = 'k3'")
    assert left(found, "kinds") == [4, 4, 1, 1, 1, 1]
    assert left(found, "sales")[-1] == 1
    assert [each.join.value for each in found.plan.datasets] == ["seed", "inner", "left"]
    assert cells(found) == [30]


def test_query_without_possible_match_opens_no_file(cube: Cube) -> None:
    for nothing in ("p = 9", "x = 5", "kind = 'k9'", "n > 5", "p != 2 AND kind = 'k2'", "n = NULL", "FALSE"):
        found = cube.query(nothing)
        assert found.plan.units == 0, nothing
        assert list(found.groups()) == []
        assert found.to_arrow().num_rows == found.reader().read_all().num_rows == 0


@pytest.mark.parametrize("indexed", [False, True])
def test_query_on_old_payload_finds_overwritten_row_unless_newest_only(cube: Cube, indexed: bool) -> None:
    if indexed:
        cube.index("sales", ["n"])
    cube.append(sales(1, [10], [5]))
    assert cells(cube.query("n = 0", newest_only=True)) == [0, 20, 30]
    assert cells(cube.query("n = 5", newest_only=True)) == [10]
    assert cells(cube.query("n = 0")) == [0, 10, 20, 30]
    assert left(cube.query("n = 5"), "sales")[-1] == 1


@pytest.mark.parametrize("indexed", [False, True])
def test_query_with_newest_only_prunes_only_older_files_without_match(cube: Cube, indexed: bool) -> None:
    if indexed:
        cube.index("sales", ["n"])
    for n in (5, 6, 7):
        cube.append(sales(1, [10], [n]))
    found = [cube.query(f"n = {n}", newest_only=True) for n in (5, 6, 7)]
    assert [left(each, "sales")[-1] for each in found] == [3, 2, 1]
    assert [cells(each) for each in found] == [[], [], [10]]
    cube.append({"kinds": rows(p=[3], x=[31], kind=["k0"], note=["b"])})
    assert cells(cube.query("kind = 'k0' AND note = 'b'", newest_only=True)) == [31]


@pytest.mark.parametrize("indexed", [False, True])
def test_query_null_semantics_are_equal_with_and_without_index(cube: Cube, indexed: bool) -> None:
    if indexed:
        cube.index("kinds", ["note"])
    assert cells(cube.query("note != 'a'")) == []
    assert cells(cube.query("note NOT IN ('a')")) == []
    assert cells(cube.query("note = 'a'")) == [0]
    assert cells(cube.query("note IS NOT NULL")) == [0]
    # NULL, and not there at all: both are NULL in the cube.
    assert cells(cube.query("note IS NULL")) == [1, 10, 11, 20, 21, 30, 31]
    assert cells(cube.query("note IS NULL AND kind = 'k1'")) == [10]
    assert cells(cube.query("note = 'a' OR stock = 8")) == [0, 11]
    assert cells(cube.query("note IS NULL OR kind = 'k0'")) == [0, 1, 10, 11, 20, 21, 30, 31]
    cube.append({"kinds": rows(p=[0], x=[0], kind=["k0"], note=[None])})
    assert cells(cube.query("note = 'a'")) == [0]
    assert cells(cube.query("note = 'a'", newest_only=True)) == []
    assert cells(cube.query("p = 0 AND note IS NULL")) == [0, 1]


def test_query_on_unindexed_column_prunes_partitions_by_skipping_metadata(cube: Cube, store: Store) -> None:
    def described(dataset: str, *indices: tuple[str, str]) -> None:
        wanted = SkippingState(tuple(IndexDefinition(kind, (column,)) for kind, column in indices))
        reskip(store, DatasetLog(store, f"shop++{dataset}"), wanted)

    described("sales", ("MinMax", "n"), ("MinMax", "y"))
    described("kinds", ("BloomFilter", "note"))
    cube.append(sales(1, [10], [5]))
    cube.append(rows(p=[2], x=[22], y=[5], n=[7]))
    with patch.object(masks, "MOST_FOOTERS", 0):
        by_cell, by_other = cube.query("y > 3"), cube.query("note = 'a' AND n = 0")
        assert (left(by_cell, "sales"), cells(by_cell)) == ([6, 6, 6, 1, 1, 1], [22])
        assert (left(by_other, "kinds"), cells(by_other)) == ([4, 4, 4, 1, 1, 1], [0])
        assert left(by_other, "sales") == [6, 6, 6, 1, 1, 1]
        # Of the newest rows, a file that was written over is needed only together with what wrote over it.
        assert [left(cube.query(f"n = {n}", newest_only=True), "sales")[3] for n in (5, 7, 0)] == [1, 1, 6]
        assert cells(cube.query("n = 0", newest_only=True)) == [0, 20, 30]
        # A row that is not there would do: the dataset leaves no partition out.
        assert cells(cube.query("note IS NULL AND n > 4")) == [10, 22]
        assert left(cube.query("n > 7"), "sales")[3] == 0


def test_query_reads_footers_of_limited_file_count(cube: Cube) -> None:
    with patch.object(masks, "MOST_FOOTERS", 3):
        assert left(cube.query("n > 5"), "sales") == [4] * 6
    assert left(cube.query("n > 5"), "sales") == [4, 4, 4, 4, 0, 0]


def test_query_work_units_hold_complete_partitions_of_bounded_size(cube: Cube) -> None:
    assert cube.query().plan.units == 1
    with patch.object(assembling, "UNIT_ROWS", 4):
        assert [cube.query().plan.unit(n) for n in range(2)] == [range(2), range(2, 4)]
    with patch.object(assembling, "UNIT_ROWS", 1):
        assert cube.query().plan.units == 4


def test_query_reads_dataset_joined_to_all_units_once(cube: Cube) -> None:
    read: list[str] = []
    inner = reading.Reading._read

    def counted(self: reading.Reading, dataset: DatasetPlan, combinations: Any) -> pa.Table:
        read.append(dataset.name)
        return inner(self, dataset, combinations)

    with patch.object(assembling, "UNIT_ROWS", 1), patch.object(reading.Reading, "_read", counted):
        cube.query().to_arrow()
    assert sorted(read) == ["kinds"] * 4 + ["sales"] * 4 + ["stock"]


def test_query_groups_are_read_one_by_one(cube: Cube, store: Store) -> None:
    with patch.object(assembling, "UNIT_ROWS", 1):
        found = cube.query(partition_by=["p"], payload_columns=["n"])
        store.delete(found.plan.seed.files_of(3))
        groups = found.groups()
        first = next(groups)
        assert (first.key, first.rows.column("x").to_pylist()) == ({"p": 0}, [0, 1])
        assert next(groups).key == {"p": 1}
        with pytest.raises(VersionIncomplete, match="no longer exists"):
            next(groups)


def test_query_with_missing_file_raises_version_incomplete(cube: Cube, store: Store) -> None:
    found = cube.query()
    store.delete(found.plan.datasets[1].files_of(2))
    for read in (found.to_arrow, found.to_pandas, lambda: found.reader().read_all(), lambda: list(found)):
        with pytest.raises(VersionIncomplete, match="no longer exists"):
            read()
    assert cells(cube.query("p = 0")) == [0, 1]


def test_query_plan_survives_pickle_and_explains_steps(cube: Cube) -> None:
    cube.append(sales(1, [10], [5]))
    found = cube.query("kind = 'k1' AND n > 0", payload_columns=["n", "stock"], partition_by="p")
    assert pickle.loads(pickle.dumps(found.plan)).explain() == found.explain()
    assert found.explain().splitlines() == [
        "cube shop at version 2",
        "  where kind = 'k1' AND n > 0",
        "  sales: seed",
        "    files: table 5, partition keys 5, secondary indices 2, skipping metadata 2, file statistics 2, "
        "partitions left 2",
        "    reads: x, y, n",
        "  kinds: inner join on p, x",
        "    files: table 4, partition keys 4, secondary indices 1, skipping metadata 1, file statistics 1, "
        "partitions left 1",
        "    reads: x, kind",
        "  stock: left join on x",
        "    files: table 1, partition keys 1, secondary indices 1, skipping metadata 1, file statistics 1, "
        "partitions left 1",
        "    reads: x, stock",
        "  1 partition in 1 piece of work, in groups by p; no shuffle",
        "  sorted by x, y, p",
    ]
    told = found.plan.to_json()
    assert [each["join"] for each in told["datasets"]] == ["seed", "inner", "left"]
    assert told["where"] == "kind = 'k1' AND n > 0"
    assert found.to_arrow().to_pylist() == [{"n": 5, "p": 1, "stock": None, "x": 10, "y": 0}]
