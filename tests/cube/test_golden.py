"""Cubes that kartothek 5.3 and its predecessor made: discovered as recorded, adopted, written to, and copied."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from kubothek.catalog import Lake
from kubothek.cube.discovery import cubes, discover
from kubothek.cube.handle import Cube
from kubothek.cube.state import Member
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.schema import type_name

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "kartothek"
CUBES = [("k53-cube", "geo"), ("k53-cube-legacy", "klee"), ("k53-cube-legacy", "klee-old")]


def expected(directory: str, prefix: str) -> Any:
    return orjson.loads((GOLDEN / directory / "expected.json").read_bytes())["cubes"][prefix]


@pytest.fixture
def golden(tmp_path: Path) -> Store:
    """A copy of the cubes, which may be written to."""
    for directory in ("k53-cube", "k53-cube-legacy"):
        shutil.copytree(GOLDEN / directory / "store", tmp_path / "lake", dirs_exist_ok=True)
    return open_store(StoreConfig((tmp_path / "lake").as_uri()))


@pytest.mark.parametrize(("directory", "prefix"), CUBES)
def test_discovery_of_golden_cube_matches_kartothek_and_writes_nothing(
    golden: Store, directory: str, prefix: str
) -> None:
    before = [(info.key, info.etag) for info in golden.list("")]
    recorded = expected(directory, prefix)
    assert cubes(golden) == ["geo", "klee", "klee-old"]
    found = discover(golden, prefix)
    assert {"uuid_prefix": prefix, **found.spec.to_json()} == recorded["discovered"]
    assert {name: told(member) for name, member in found.members.items()} == {
        name: {key: each[key] for key in ("uuid", "is_seed", "partition_keys", "dimension_columns", "payload_columns")}
        for name, each in recorded["datasets"].items()
    }
    stats = Lake(golden).cube(prefix).stats()
    assert {
        name: {"blobsize": each.bytes, "files": each.files, "partitions": each.partitions, "rows": each.rows}
        for name, each in stats.items()
    } == recorded["stats"]
    shown = {name: type_name(kind) for name, kind in found.columns.items()}
    assert shown == {
        name: {"timestamp": "timestamp[us]"}.get(kind, kind)
        for name, kind in recorded["types"].items()
        if name != "KLEE_TS"
    }
    assert [(info.key, info.etag) for info in golden.list("")] == before


def told(member: Member) -> dict[str, object]:
    return {
        "uuid": member.uuid,
        "is_seed": member.is_seed,
        "partition_keys": list(member.partition_on),
        "dimension_columns": list(member.dimensions),
        "payload_columns": list(member.payload),
    }


def test_first_write_adopts_golden_cube(golden: Store) -> None:
    cube = Lake(golden).cube("geo")
    before = cube.query().to_pandas()
    rows = pa.table({"country": ["FR"], "city": ["Paris"], "mayor": ["Zoe"], "population": [9000]})
    done = cube.append({"population": rows}, id="paris")
    assert done.members == {"seed": 1, "population": 2, "holidays": 1}
    assert [record.operation for record in cube.history()] == ["Append", "Adopt"]
    assert cube.query(as_of=1).to_pandas().equals(before)
    assert discover(golden, "geo").spec == cube.spec
    assert cube.info().members[0].metadata["source"] == "golden"


@pytest.mark.parametrize("way", ["store", "prefix", "names"])
def test_copy_of_golden_cube_returns_same_results(golden: Store, tmp_path: Path, way: str) -> None:
    (tmp_path / "other").mkdir()
    source = Lake(golden).cube("geo")
    target = open_store(StoreConfig((tmp_path / "other").as_uri())) if way == "store" else golden
    names = {"seed": "first", "population": "people", "holidays": "days"} if way == "names" else None
    prefix = "geo" if way == "store" else "earth"
    source.copy(target, prefix=prefix, datasets=names, id="copy")
    copied = Cube.open(target, prefix)
    assert copied.query().to_pandas().equals(source.query().to_pandas())
    assert copied.spec.index_columns == source.spec.index_columns
    assert set(copied.snapshot().members) == set(names.values() if names else source.snapshot().members)
    found = discover(target, prefix)
    assert found.spec.seed_dataset == ("first" if names else "seed")
    for member in found.members.values():
        assert all(key.startswith(f"{prefix}++") for key in member.snapshot.head.files().values())
    assert source.copy(target, prefix=prefix, datasets=names, id="copy").version == 1, "it has happened"
