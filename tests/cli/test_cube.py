"""``kubothek cube``: every verb on a real store, from files on this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek import open as open_lake
from tests.cli.conftest import Kubothek

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kartothek" / "k53-cube" / "store"
STORE = ("--store", "file:store")
SHAPE = ("--dimension-columns", "x,y", "--partition-columns", "p")


@pytest.fixture
def geo(kubothek: Kubothek, project: Path) -> Kubothek:
    """A cube of a seed, of what is known of some cells, and of what is known of each x."""
    (project / "seed.csv").write_text("p,x,y,v\n1,1,1,10\n1,2,1,20\n2,1,1,30\n")
    pq.write_table(pa.table({"p": [1, 2], "x": [1, 1], "y": [1, 1], "w": [0.5, None]}), project / "extra.parquet")
    (project / "names.jsonl").write_text('{"x": 1, "name": "one"}\n{"x": 2, "name": "two"}\n')
    data = ("--data", "seed=seed.csv", "--data", "extra=extra.parquet", "--data", "names=names.jsonl")
    built = kubothek("cube", "build", *STORE, "geo", *SHAPE, *data, "--partition-on", "names=", "--index-columns", "v")
    assert built.code == 0, built.err
    assert built.out == "geo: version 1: 3 rows added to seed, 2 rows to extra, 2 rows to names\n"
    return kubothek


def cells(run: Kubothek, *options: str) -> list[dict[str, object]]:
    shown = run("cube", "query", *STORE, "geo", *options, "--output", "json")
    assert shown.code == 0, shown.err
    found: list[dict[str, object]] = json.loads(shown.out)
    return found


def test_cube_query_joins_all_datasets_to_seed_cells(geo: Kubothek) -> None:
    assert cells(geo) == [
        {"name": "one", "p": 1, "v": 10, "w": 0.5, "x": 1, "y": 1},
        {"name": "two", "p": 1, "v": 20, "w": None, "x": 2, "y": 1},
        {"name": "one", "p": 2, "v": 30, "w": None, "x": 1, "y": 1},
    ]
    assert [row["v"] for row in cells(geo, "--conditions", "w > 0", "--payload-columns", "v")] == [10]
    assert cells(geo, "--exclude", "extra,names", "--conditions", "v = 30") == [{"p": 2, "v": 30, "x": 1, "y": 1}]


def test_cube_query_table_shows_read_statistics(geo: Kubothek) -> None:
    shown = geo("cube", "query", *STORE, "geo", "--conditions", "p = 2").out.splitlines()
    assert shown[0].split() == ["name", "p", "v", "w", "x", "y"]
    assert shown[1].split() == ["one", "2", "30", "NULL", "1", "1"]
    assert shown[2].startswith("1 row in ")
    assert "geo++seed version 1 (1 file)" in shown[2]


def test_cube_query_explain_reads_no_rows(geo: Kubothek) -> None:
    plan = json.loads(geo("cube", "query", *STORE, "geo", "--conditions", "v = 30", "--explain", "-o", "json").out)
    assert (plan["cube"], plan["partitions"]) == ("geo", 1)
    assert {each["name"]: each["join"] for each in plan["datasets"]} == {
        "seed": "seed",
        "extra": "left",
        "names": "left",
    }
    assert "geo" in geo("cube", "query", *STORE, "geo", "--explain").out


def test_cube_append_to_existing_cell_shows_newest_row_and_keeps_history(geo: Kubothek, project: Path) -> None:
    (project / "more.csv").write_text("p,x,y,v\n1,1,1,11\n")
    again = ("cube", "append", *STORE, "geo", "--data", "seed=more.csv", "--id", "fix")
    assert geo(*again).out == "geo: version 2: 1 row added to seed\n"
    assert geo(*again).out == "geo: version 2 made this change before\n"
    condition = ("--conditions", "x = 1 AND p = 1", "--payload-columns", "v")
    assert [row["v"] for row in cells(geo, *condition)] == [11]
    assert [row["v"] for row in cells(geo, *condition, "--as-of", "1")] == [10]


def test_cube_query_conditions_match_old_rows_unless_newest_only(geo: Kubothek, project: Path) -> None:
    (project / "more.csv").write_text("p,x,y,v\n1,1,1,11\n")
    assert geo("cube", "append", *STORE, "geo", "--data", "seed=more.csv").code == 0
    old, new = ("--conditions", "v = 10"), ("--conditions", "v = 11")
    assert [row["v"] for row in cells(geo, *old)] == [10], "as kartothek has it"
    assert cells(geo, *old, "--newest-only") == []
    assert [row["v"] for row in cells(geo, *new)] == [row["v"] for row in cells(geo, *new, "--newest-only")] == [11]
    planned = geo("cube", "query", *STORE, "geo", *old, "--newest-only", "--explain").out
    assert "in the newest row of each cell" in planned


def test_cube_update_removes_partitions_and_adds_rows_in_one_version(geo: Kubothek, project: Path) -> None:
    (project / "more.csv").write_text("p,x,y,v\n1,9,9,90\n")
    done = geo("cube", "update", *STORE, "geo", "--data", "seed=more.csv", "--remove", "p = 1")
    assert done.out == "geo: version 2: 1 row added to seed\n"
    assert [(row["p"], row["x"]) for row in cells(geo)] == [(1, 9), (2, 1)]


def test_cube_extend_adds_dataset(geo: Kubothek, project: Path) -> None:
    (project / "late.csv").write_text("y,late\n1,true\n")
    done = geo("cube", "extend", *STORE, "geo", "--data", "late=late.csv", "--partition-on", "late=")
    assert done.out == "geo: version 2: 1 row added to late\n"
    assert {row["late"] for row in cells(geo)} == {True}
    refused = geo("cube", "extend", *STORE, "geo", "--data", "late=late.csv", "--partition-on", "late=")
    assert refused.code == 1
    assert "late" in refused.err


def test_cube_info_and_stats_show_datasets_and_sizes(geo: Kubothek) -> None:
    assert geo("cube", "info", *STORE).out == "geo\n"
    assert geo("describe", *STORE, "geo").out == geo("cube", "info", *STORE, "geo").out
    listed = geo("get", *STORE, "cubes").out.splitlines()
    assert listed[0].split()[:4] == ["NAME", "VERSION", "CELLS", "SIZE"]
    assert (listed[1].split()[:3], listed[1].split()[-3:]) == (["geo", "1", "3"], ["seed,", "extra,", "names"])
    shown = geo("cube", "info", *STORE, "geo").out
    assert "Dimensions:   x, y" in shown
    assert "Dataset seed, the seed, version 1" in shown
    told = json.loads(geo("cube", "info", *STORE, "geo", "-o", "json").out)
    assert told["partitionColumns"] == ["p"]
    names = next(each for each in told["datasets"] if each["name"] == "names")
    assert (names["partitionOn"], names["dimensionColumns"], names["payloadColumns"]) == ([], ["x"], {"name": "string"})
    sizes = json.loads(geo("cube", "stats", *STORE, "geo", "--exclude", "n*", "-o", "json").out)
    assert {name: (each["rows"], each["partitions"]) for name, each in sizes.items()} == {
        "seed": (3, 2),
        "extra": (2, 2),
    }
    assert geo("cube", "stats", *STORE, "geo").out.splitlines()[1].split()[:4] == ["seed", "3", "2", "2"]


def test_cube_partition_removal_needs_confirmation(geo: Kubothek) -> None:
    removal = ("cube", "remove-partitions", *STORE, "geo", "p = 1", "--exclude", "names")
    planned = geo(*removal, "--dry-run")
    assert planned.out == "seed: 1 file of 2\nextra: 1 file of 2\n"
    assert geo(*removal).code != 0, "nobody is there to say yes"
    assert len(cells(geo)) == 3
    assert geo(*removal, "--yes").code == 0
    assert [row["p"] for row in cells(geo)] == [2]
    assert geo("cube", "remove-partitions", *STORE, "geo", "v = 1", "--yes").code == 1


def test_cube_delete_removes_datasets_and_refuses_seed_of_remaining(geo: Kubothek) -> None:
    refused = geo("cube", "delete", *STORE, "geo", "--include", "seed", "--yes")
    assert refused.code == 1
    assert "CubeInvalid" in refused.err
    assert geo("cube", "delete", *STORE, "geo", "--include", "extra,names", "--yes").code == 0
    assert cells(geo)[0] == {"p": 1, "v": 10, "x": 1, "y": 1}
    assert geo("cube", "delete", *STORE, "geo", "--yes").code == 0
    gone = geo("cube", "query", *STORE, "geo")
    assert (gone.code, gone.out) == (1, "")
    assert "DatasetNotFound" in gone.err


def test_cube_broken_by_other_program_is_repaired_by_command_in_error(geo: Kubothek, project: Path) -> None:
    before = cells(geo)
    add_as_another_program(project / "store", "extra", "more")
    (project / "more.csv").write_text("p,x,y,v\n3,1,1,40\n")
    append = ("cube", "append", *STORE, "geo", "--data", "seed=more.csv")
    refused = geo(*append)
    assert (refused.code, refused.out) == (1, "")
    assert "error: CubeBroken: " in refused.err
    assert "'w' in the datasets 'extra' and 'more'" in refused.err
    command = refused.err.partition("take its changes back: kubothek ")[2].splitlines()[0].split()
    assert command == ["cube", "discard", "geo"]
    assert geo(*command, *STORE).code != 0, "nobody is there to say yes"
    assert geo(*append).code == 1
    owners = [project / "store" / ".kubothek" / f"geo++{name}" / "owner.json" for name in ("seed", "extra", "names")]
    for owner in owners:
        owner.write_text('{"owner": "cluster/ns/geo"}')
    done = geo(*command, *STORE, "--yes")
    assert (done.code, done.err) == (0, ""), "also where a manifest owns the cube"
    for owner in owners:
        owner.unlink()
    assert done.out == "geo: version 2: seed, extra, names, as in version 1\n"
    assert cells(geo) == before, "what it took away from extra is there again"
    assert geo(*append).code == 0
    assert [row["v"] for row in cells(geo)] == [10, 20, 30, 40]


def add_as_another_program(store: Path, name: str, new: str) -> None:
    """Add a dataset with the columns of one that is there, and take a partition away from that; nobody is asked."""
    head, at = json.loads((store / f"geo++{name}.by-dataset-metadata.json").read_text()), f"geo++{new}"
    (store / at / "table").mkdir(parents=True)
    shutil.copy(store / f"geo++{name}" / "table" / "_common_metadata", store / at / "table" / "_common_metadata")
    metadata = {key: value for key, value in head["metadata"].items() if not key.startswith("kubothek_")}
    added = head | {"dataset_uuid": at, "metadata": metadata, "partitions": {}}
    (store / f"{at}.by-dataset-metadata.json").write_text(json.dumps(added))
    head["partitions"].popitem()
    (store / f"geo++{name}.by-dataset-metadata.json").write_text(json.dumps(head))


def test_cube_copy_uses_new_prefix_and_dataset_names(geo: Kubothek, project: Path) -> None:
    copy = ("cube", "copy", *STORE, "geo", "--tgt-store", "file:other", "--tgt-prefix", "g2", "--rename", "extra=more")
    assert "would be copied to 'g2'" in geo(*copy, "--dry-run").out
    assert not (project / "other").exists()
    done = geo(*copy)
    assert done.code == 0, done.err
    shown = geo("cube", "query", "--store", "file:other", "g2", "--output", "json")
    assert json.loads(shown.out) == cells(geo)
    assert geo(*copy).code == 1, "what is there is not written over"
    assert geo(*copy, "--include", "seed,extra", "--overwrite", "--no-cleanup").code == 1, "names would be a leftover"
    again = geo(*copy, "--include", "seed,extra", "--overwrite")
    assert (again.code, again.out.partition("\n")[0]) == (0, "g2: names deleted, as the cube that is copied has none")
    assert [
        each["name"]
        for each in json.loads(geo("cube", "info", "--store", "file:other", "g2", "-o", "json").out)["datasets"]
    ] == ["seed", "more"]
    assert geo("cube", "copy", *STORE, "geo").code == 2


def test_cube_index_builds_index_on_column(geo: Kubothek) -> None:
    done = geo("cube", "index", *STORE, "geo", "extra", "w")
    assert done.out.endswith("; extra has indices on w\n")
    assert geo("cube", "index", *STORE, "geo", "extra", "z*").code == 1


def test_cube_cleanup_keeps_young_objects(geo: Kubothek, project: Path) -> None:
    stray = project / "store" / "geo++seed" / "table" / "p=1" / "stray.parquet"
    stray.write_bytes(b"0123456789")
    assert geo("cube", "cleanup", *STORE, "geo", "--yes").out == "geo: 0 objects (0 B) unreferenced\n"
    assert stray.exists()


def test_cube_build_with_bad_input_leaves_no_cube(kubothek: Kubothek, project: Path) -> None:
    (project / "seed.csv").write_text("p,x,y,v\n1,1,1,10\n1,1,1,20\n")
    refused = kubothek("cube", "build", *STORE, "geo", *SHAPE, "--data", "seed=seed.csv")
    assert refused.code == 1
    assert "error: CubeInvalid: " in refused.err
    assert "duplicate" in refused.err.lower()
    assert not list((project / "store").glob("geo*"))
    assert kubothek("cube", "build", *STORE, "geo", *SHAPE, "--data", "seed=seed.txt").code == 2


def test_cube_made_by_kartothek_can_be_read_and_written(kubothek: Kubothek, project: Path) -> None:
    shutil.copytree(GOLDEN, project / "store")
    shown = kubothek("cube", "info", *STORE, "geo")
    assert "none: not written by Kubothek" in shown.out
    before = json.loads(kubothek("cube", "query", *STORE, "geo", "-o", "json").out)
    assert before
    assert kubothek("cube", "remove-partitions", *STORE, "geo", "country = 'DE'", "--include", "seed", "-y").code == 0
    after = json.loads(kubothek("cube", "query", *STORE, "geo", "-o", "json").out)
    assert after == [row for row in before if row["country"] != "DE"]


def test_cube_datasets_are_visible_as_datasets(geo: Kubothek, project: Path) -> None:
    lake = open_lake((project / "store").as_uri())
    assert lake.dataset("geo++seed").rows == 3
    assert "geo++names" in geo("get", *STORE).out
