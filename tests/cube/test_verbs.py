"""What each verb makes of a cube, as its datasets and its readers show it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.cube.discovery import discover
from kubothek.cube.handle import Cube
from kubothek.cube.writing import CheckSchema
from kubothek.errors import CubeInvalid, DatasetExists, SchemaMismatch, VersionNotFound
from kubothek.table.log import Snapshot
from kubothek.table.log.update_skipping import undescribed
from kubothek.table.operations import Written, write_rows
from kubothek.table.skipping.model import IndexDefinition, SkippingState

pytestmark = pytest.mark.slow

SEED = pa.table({"x": [2, 1, 2, 1], "y": ["b", "a", "a", "b"], "p": [0, 0, 1, 1], "v": [1, 2, 3, 4], "i": [5, 5, 6, 6]})
PER_X = pa.table({"x": [1, 2], "q": ["s", "t"], "w": [10, 20]})
PER_Y = pa.table({"y": ["a"], "u": [7.5]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return kubothek.open((tmp_path / "lake").as_uri())


@pytest.fixture
def cube(lake: Lake) -> Cube:
    made = lake.create_cube(
        "geo",
        dimension_columns=["x", "y"],
        partition_columns="p",
        index_columns=["i", "w"],
        suppress_index_on="y",
    )
    made.build(
        {"seed": SEED, "per_x": PER_X, "per_y": PER_Y},
        partition_on={"per_x": ["q"], "per_y": []},
        metadata={"seed": {"source": "test", "gone": 1}},
    )
    return made


def answers(cube: Cube, column: str, as_of: int | None = None) -> list[object]:
    """A column of the whole cube, by x and y."""
    return list(cube.query(payload_columns=[column], as_of=as_of).to_arrow()[column].to_pylist())


def test_build_creates_datasets_sorted_by_dimensions(lake: Lake, cube: Cube) -> None:
    assert answers(cube, "v") == [2, 4, 3, 1]
    assert answers(cube, "w") == [10, 10, 20, 20]
    assert answers(cube, "u") == [7.5, None, 7.5, None]
    found = discover(lake.store, "geo")
    assert found.spec == cube.spec
    assert {name: member.partition_on for name, member in found.members.items()} == {
        "seed": ("p",),
        "per_x": ("q",),
        "per_y": (),
    }
    assert {name: tuple(member.snapshot.head.indices) for name, member in found.members.items()} == {
        "seed": ("x", "i"),
        "per_x": ("w",),
        "per_y": (),
    }
    for key in found.seed.snapshot.head.files().values():
        file = io.BytesIO(lake.store.get(key))
        cells = pq.read_table(file)["x"].to_numpy().tolist()
        footer = pq.read_metadata(file)
        assert cells == sorted(cells), "by dimensions"
        assert footer.row_group(0).column(0).compression == "ZSTD"
    with pytest.raises(DatasetExists):
        lake.create_cube("geo", dimension_columns="x", partition_columns="p")


def test_append_shows_newest_row_of_cell(cube: Cube) -> None:
    again = pa.table({"x": [1], "y": ["a"], "p": [0], "v": [200], "i": [9]})
    done = cube.append({"seed": again}, metadata={"seed": {"source": "more"}})
    assert (done.version, done.members, {name: each.rows for name, each in done.added.items()}) == (
        2,
        {"seed": 2, "per_x": 1, "per_y": 1},
        {"seed": 1},
    )
    assert answers(cube, "v") == [200, 4, 3, 1]
    assert answers(cube, "v", as_of=1) == [2, 4, 3, 1]
    metadata = cube.info().members[0].metadata
    assert (metadata["source"], metadata["gone"]) == ("more", 1)


def test_update_and_removal_use_partition_columns_of_each_dataset(cube: Cube) -> None:
    cube.update({"seed": SEED.slice(1, 1)}, remove="p = 0")
    assert answers(cube, "v") == [2, 4, 3]
    assert answers(cube, "w") == [10, 10, 20]
    cube.remove_partitions("p = 1", datasets=["seed"])
    assert answers(cube, "v") == [2]
    cube.remove_partitions("p = 5", datasets=["per_y"])
    assert answers(cube, "u") == [None], "it is not partitioned on p, so it is emptied"
    assert cube.stats()["per_y"].rows == 0
    cube.remove_partitions("TRUE")
    assert answers(cube, "v") == []
    assert answers(cube, "v", as_of=1) == [2, 4, 3, 1]
    with pytest.raises(VersionNotFound, match="from 1 to 5"):
        cube.snapshot(6)


def test_build_over_cube_with_overwrite_replaces_columns(lake: Lake, cube: Cube) -> None:
    other = lake.cube("geo")
    rows = pa.table({"d": [1, 2], "p": ["n", "s"], "v": ["text", None]})
    created = Cube(lake.store, other.log, type(cube.spec).of("geo", dimension_columns="d", partition_columns="p"))
    with pytest.raises(CubeInvalid, match="partial overwrite"):
        created.build({"seed": rows}, overwrite=True)
    cube.delete(["per_x", "per_y"])
    created.build({"seed": rows}, overwrite=True)
    assert answers(other, "v") == ["text", None]
    assert other.spec.dimension_columns == ("d",)
    assert tuple(other.snapshot().seed.snapshot.head.indices) == ("d",)
    assert "source" not in other.info().members[0].metadata
    assert answers(other, "v", as_of=1) == [2, 4, 3, 1]
    assert discover(lake.store, "geo").spec == other.spec


def test_extend_delete_and_index_change_members(lake: Lake, cube: Cube) -> None:
    cube.extend({"more": pa.table({"x": [1], "p": [0], "m": [1], "n": [2]})})
    assert answers(cube, "m") == [1, None, None, None]
    cube.extend({"more": pa.table({"x": [2], "p": [1], "m": [9]})}, overwrite=True)
    assert answers(cube, "m") == [None, None, 9, None]
    cube.index("more", ["m*"])
    assert "m" in cube.info().members[1].indices
    assert discover(lake.store, "geo").spec.index_columns == {"i", "w", "m"}
    cube.delete(["mo*"])
    assert "more" not in cube.snapshot().members
    assert [record.operation for record in cube.history()] == ["Delete", "Index", "Extend", "Extend", "Build"]


def test_append_adds_columns_only_with_evolve(lake: Lake, cube: Cube) -> None:
    rows = pa.table({"x": [3], "q": ["s"], "w": [30], "i2": ["new"]})
    with pytest.raises(SchemaMismatch, match="per_x"):
        cube.append({"per_x": rows})
    cube.append({"per_x": rows, "seed": SEED}, evolve=["per_x"])
    assert "i2" in cube.snapshot().columns
    with pytest.raises(CubeInvalid, match="'per_x' has no dimension columns 'y'"):
        cube.append({"per_x": pa.table({"x": [3], "y": ["a"], "q": ["s"], "w": [30]})}, evolve=["per_x"])
    with pytest.raises(CubeInvalid, match="already present in cube: 'v'"):
        cube.append({"per_x": pa.table({"x": [3], "q": ["s"], "w": [30], "v": [1]})}, evolve=["per_x"])
    later = pa.table({"y": ["b"], "u": [1.5], "i": [4]})
    with pytest.raises(CubeInvalid, match="already present in cube: 'i'"):
        cube.append({"per_y": later}, evolve=["per_y"])
    assert cube.snapshot().version == 2


def test_prewritten_files_are_validated_like_rows(lake: Lake, cube: Cube) -> None:
    calls: list[str] = []

    def write(rows: pa.Table, name: str, base: Snapshot, check: CheckSchema) -> Written:
        def checked(schema: pa.Schema) -> None:
            calls.append(name)
            check(schema)

        return write_rows(lake.store, base, rows, table=base.schema, check=checked)

    good = pa.table({"x": [5], "y": ["z"], "p": [2], "v": [50], "i": [1]})
    cube.append({"seed": lambda name, base, check: write(good, name, base, check)})
    assert 50 in answers(cube, "v")
    assert calls == ["seed"]
    for bad, why in (
        (pa.concat_tables([good, good]), "duplicate cells"),
        (good.set_column(0, "x", pa.array([None], pa.int64())), "NULL-values in dimension column 'x'"),
    ):
        with pytest.raises(CubeInvalid, match=why):
            cube.append({"seed": lambda name, base, check, bad=bad: write(bad, name, base, check)})
    twice = pa.table({"x": [1], "p": [0], "v": [1]})
    with pytest.raises(CubeInvalid, match="already present in cube: 'v'"):
        cube.extend({"more": lambda name, base, check: write(twice, name, base, check)})
    assert cube.snapshot().version == 2


def test_cleanup_of_intact_cube_deletes_nothing(lake: Lake, cube: Cube) -> None:
    found = cube.cleanup()
    assert {name: each.deleted for name, each in found.items()} == {"seed": {}, "per_x": {}, "per_y": {}}
    assert answers(cube, "v") == [2, 4, 3, 1]


def opened(cube: Cube, where: str, dataset: str) -> tuple[int, int]:
    """How many files of a dataset skipping metadata has to decide about, and how many it leaves."""
    (found,) = (each for each in cube.query(where).plan.datasets if each.name == dataset)
    steps = dict(found.steps)
    return steps["secondary indices"], steps["skipping metadata"]


def test_skipping_metadata_is_maintained_by_every_verb(lake: Lake) -> None:
    definitions = SkippingState((IndexDefinition("MinMax", ("v",)), IndexDefinition("Suffix", ("y",), {"length": "1"})))
    made = lake.create_cube("geo", dimension_columns=["x", "y"], partition_columns="p", suppress_index_on=["x", "y"])
    impossible = SkippingState((IndexDefinition("MinMax", ("nothing",)),))
    tables = {"seed": SEED.drop_columns(["i"]), "per_y": PER_Y}
    made.build(tables, partition_on={"per_y": []}, skipping={"seed": definitions, "per_y": impossible})
    assert opened(made, "v = 4", "seed") == (2, 1)
    assert lake.dataset("geo++per_y").skipping == ()
    made.append({"seed": pa.table({"x": [9], "y": ["zz"], "p": [2], "v": [9]})})
    assert opened(made, "v = 9", "seed") == (3, 1)
    made.copy(lake.store, prefix="other")
    twin = lake.cube("other")
    assert undescribed(lake.store, lake.dataset("other++seed").snapshot()) == 0
    assert opened(twin, "v = 9", "seed") == (3, 1)
    assert opened(twin, "y LIKE '%z'", "seed") == (3, 1)
    wider = {**tables, "seed": tables["seed"].append_column("w", pa.array([1, 2, 3, 4]))}
    made.build(wider, partition_on={"per_y": []}, overwrite=True)
    assert lake.dataset("geo++seed").skipping == definitions.indices
    assert opened(made, "v = 4", "seed") == (2, 1)
    assert undescribed(lake.store, lake.dataset("geo++seed").snapshot()) == 0
