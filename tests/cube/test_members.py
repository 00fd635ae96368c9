"""A member is an ordinary dataset, which is written through its cube: by upkeep, by claims, by plateau."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from pathlib import Path

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from plateau.io.eager import update_dataset_from_dataframes

import kubothek
from kubothek.catalog import Lake
from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeLog
from kubothek.errors import CubeBroken, CubeInvalid, DatasetNotFound, NotAdopted, OwnedByAnother
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes import IndexKind
from kubothek.table.log import Claim, DatasetLog
from kubothek.table.log.multi.head import head_key
from kubothek.table.log.update_indexes import reindex
from tests.cube.foreign import append_as_kartothek
from tests.cube.small import SPEC, append, build, cube_in, extra, operations, raw, seed, state
from tests.faultstore import FaultStore
from tests.s3server import S3Server
from tests.table.log.memory import MemoryStore
from tests.table.log.table import append as append_alone

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "kartothek" / "k53-cube" / "store"
CLAIMS = {name: Claim(f"cluster/ns/geo-{name}", "1") for name in ("seed", "extra", "population", "holidays")}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return kubothek.open((tmp_path / "lake").as_uri())


def test_member_maintenance_is_committed_through_cube(lake: Lake) -> None:
    build(lake.store)
    for cell in (3, 4, 5):
        append(lake.store, f"a{cell}", cell)
    before = lake.cube("geo").query().to_pandas()
    member = lake.dataset("geo++seed")
    assert member.compact().version == 5
    assert reindex(lake.store, DatasetLog(lake.store, "geo++extra"), {"w": IndexKind.KARTOTHEK}).version is not None
    assert member.heal().corrupt is None
    assert member.collect(keep_versions=1, enforce=True, keep_for=timedelta(0)).oldest >= 1
    assert [*operations(lake.store)][:6] == ["Build", "Append", "Append", "Append", "Compact", "Index"]
    assert len(member.snapshot().head.partitions) == 1
    assert lake.cube("geo").query().to_pandas().equals(before)
    assert lake.cube("geo").query(as_of=4).to_pandas().equals(before)
    assert {name: lake.dataset(f"geo++{name}").version for name in ("seed", "extra")} == {
        name: each.snapshot.version for name, each in lake.cube("geo").snapshot().members.items()
    }


def test_member_change_that_breaks_cube_is_refused(lake: Lake) -> None:
    build(lake.store)
    member = lake.dataset("geo++extra")
    with pytest.raises(CubeInvalid, match="'v' in the datasets 'extra' and 'seed'"):
        member.append(pa.table({"x": [9], "p": [0], "w": [9], "v": [1]}), evolve=True)
    with pytest.raises(CubeInvalid, match="seed dataset 'seed' is missing"):
        DatasetLog(lake.store, "geo++seed").delete()
    with pytest.raises(CubeInvalid, match="index on column 'x' is missing in dataset 'seed'"):
        reindex(lake.store, DatasetLog(lake.store, "geo++seed"), {})
    assert state(lake.store) == {"seed": [1, 2], "extra": [1]}
    member.append(pa.table({"x": [9], "p": [0], "w": [9]}))
    assert state(lake.store)["extra"] == [1, 9]
    assert lake.cube("geo").snapshot().version == 2


def test_member_readers_see_foreign_append_before_settle(lake: Lake) -> None:
    build(lake.store)
    append_as_kartothek(lake.store, "extra", extra([2], [20]))
    assert lake.dataset("geo++extra").rows == 2
    assert lake.sql('SELECT count(*) n FROM "geo++extra"').read_all()["n"].to_pylist() == [2]
    assert lake.dataset("geo++extra", raw=True).rows == 2
    lake.cube("geo").settle()
    assert lake.dataset("geo++extra").rows == 2


def test_deleted_member_can_be_restored(lake: Lake) -> None:
    build(lake.store)
    cube = lake.cube("geo")
    cube.delete(["extra"])
    with pytest.raises(DatasetNotFound):
        lake.dataset("geo++extra")
    assert list(state(lake.store)) == ["seed"]
    DatasetLog(lake.store, "geo++extra").restore()
    assert state(lake.store) == {"seed": [1, 2], "extra": [1]}
    assert operations(lake.store) == ["Build", "Delete", "Restore"]


def test_dataset_outside_cube_reads_no_cube_head() -> None:
    store = FaultStore(MemoryStore())
    append_alone(DatasetLog(store, "flights"), store, "first")
    append_alone(DatasetLog(store, "flights"), store, "second")
    assert not [call for call in store.calls if "++" in call.key]
    append_alone(DatasetLog(store, "not++yet"), store, "first")
    assert {call.key for call in store.calls if "++cubes" in call.key} == {".kubothek/++cubes/not/head.json"}


@pytest.mark.parametrize("first", ["a", "a+"])
def test_ambiguous_dataset_name_belongs_to_one_cube(first: str) -> None:
    """``a+++b`` is ``+b`` of ``a``, or ``b`` of ``a+``."""
    store = MemoryStore()
    second, names = ("a+", ("+b", "b")) if first == "a" else ("a", ("b", "+b"))
    cube_of(store, first).build({"seed": seed([1]), names[0]: extra([1])})
    cube_of(store, second).build({"seed": seed([2])})
    with pytest.raises(CubeInvalid, match=rf"a\+\+\+b is a dataset of cube '{re.escape(first)}' already"):
        cube_of(store, second).extend({names[1]: extra([1])})
    DatasetLog(store, "a+++b").tag("here")
    assert cube_of(store, first).snapshot().version == 2
    assert list(cube_of(store, second).snapshot().members) == ["seed"]


def test_dataset_named_by_two_cubes_refuses_writes() -> None:
    """No writer brings it so far; a copy of a store does."""
    store = MemoryStore()
    cube_of(store, "a").build({"seed": seed([1]), "+b": extra([1])})
    head = orjson.loads(store.get(head_key("a")).replace(b"/++cubes/a/", b"/++cubes/a+/"))
    members = {"b": head["members"]["+b"]}
    store.put(head_key("a+"), orjson.dumps({**head, "prefix": "a+", "members": members}))
    with pytest.raises(CubeBroken, match=r"a[+]{3}b.*'a' and 'a[+]'"):
        DatasetLog(store, "a+++b").tag("here")


def cube_of(store: Store, prefix: str) -> Cube:
    spec = type(SPEC).of(prefix, dimension_columns="x", partition_columns="p")
    return Cube(store, CubeLog(store, prefix), spec)


def test_member_claims_are_enforced_by_cube(lake: Lake) -> None:
    cube = Cube(lake.store, CubeLog(lake.store, "geo", claim_of=CLAIMS.get), SPEC)
    cube.build({"seed": seed([1, 2]), "extra": extra([1])}, id="build")
    with pytest.raises(OwnedByAnother, match="cluster/ns/geo-seed"):
        lake.cube("geo").append({"seed": seed([3])})
    strange = CubeLog(lake.store, "geo", claim_of=lambda name: Claim(f"other/ns/geo-{name}", "1"))
    with pytest.raises(OwnedByAnother):
        Cube(lake.store, strange).append({"seed": seed([3])})
    assert state(lake.store) == {"seed": [1, 2], "extra": [1]}
    DatasetLog(lake.store, "geo++seed", claim=CLAIMS["seed"]).tag("here")
    cube.append({"seed": seed([3])})
    assert state(lake.store)["seed"] == [1, 2, 3]


def test_cube_of_another_program_is_not_adopted_without_permission(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "lake")
    store = open_store(StoreConfig((tmp_path / "lake").as_uri()))
    before = [info.key for info in store.list("")]
    rows = pa.table({"country": ["FR"], "city": ["Paris"], "mayor": ["Zoe"], "population": [9000]})
    with pytest.raises(NotAdopted, match="set spec"):
        Cube(store, CubeLog(store, "geo", claim_of=CLAIMS.get)).append({"population": rows})
    assert [info.key for info in store.list("")] == before
    adopting = {name: Claim(claim.owner, "1", adopts=True) for name, claim in CLAIMS.items()}
    Cube(store, CubeLog(store, "geo", claim_of=adopting.get)).append({"population": rows})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_plateau_append_to_member_is_visible_in_cube(lake: Lake, tmp_path: Path) -> None:
    build(lake.store)
    frame = pd.DataFrame({"x": [2], "p": [0], "w": [20]})
    update_dataset_from_dataframes([frame], store=f"hfs://{tmp_path}/lake", dataset_uuid="geo++extra")
    assert state(lake.store) == {"seed": [1, 2], "extra": [1, 20]}
    assert lake.cube("geo").query().to_pandas()["w"].tolist() == [1, 20]
    append(lake.store)
    assert state(lake.store) == {"seed": [1, 2, 3], "extra": [1, 20, 3]}
    assert lake.cube("geo").query().to_pandas()["w"].tolist() == [1, 20, 3]


@pytest.mark.s3
def test_cube_on_s3_is_built_appended_and_cleaned(s3: S3Server, secret: Path, bucket: str) -> None:
    lake = kubothek.open(f"s3://{bucket}/ware", endpoint=s3.endpoint, credentials_dir=str(secret))
    cube = lake.create_cube("geo", dimension_columns=["x"], partition_columns=["p"])
    cube.build({"seed": seed([1, 2]), "extra": extra([1])})
    cube.append({"seed": seed([3]), "extra": extra([3])}, id="more")
    assert cube.append({"seed": seed([3]), "extra": extra([3])}, id="more").version == 2
    lake.dataset("geo++seed").compact()
    assert lake.cubes() == ["geo"]
    assert lake.cube("geo").query().to_pandas()["v"].tolist() == [1, 2, 3]
    assert raw(lake.store, "extra") == [1, 3]
    found = lake.cube("geo").cleanup(dry_run=True)
    assert sorted(found) == ["extra", "seed"]
    assert cube_in(lake.store).stats()["seed"].rows == 3
