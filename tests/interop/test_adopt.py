"""What other libraries made is taken over and converted where that was asked for, and else only read."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import create_empty_dataset_header, read_table, store_dataframes_as_dataset

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.cli.main import main
from kubothek.errors import DatasetExists, InputError, NeedsConversion, NotAdopted, ObjectNotFound, QueryInvalid
from kubothek.jobs.main import perform
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.log import Claim, DatasetLog, Operation, owner_of
from kubothek.table.log.model import keys as key_of
from tests.faultstore import Crash, FaultStore, every_crash
from tests.table import golden

pytestmark = pytest.mark.filterwarnings("ignore")

Copy = Callable[[str], Lake]
STRANGER = Claim("cluster/ns/sales", "uid")
ADOPTER = Claim("cluster/ns/sales", "uid", adopts=True)


def keys(store: Store) -> dict[str, Any]:
    return {info.key: info.etag for info in store.list("")}


def plateau_rows(uuid: str, url: str, sort_by: str = "id") -> list[list[Any]]:
    frame = read_table(uuid, url)
    return golden.rows(pa.Table.from_pandas(frame, preserve_index=False), sort_by)


# --- being told to ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [lambda log: log.begin("a", "d"), DatasetLog.settle, DatasetLog.delete])
def test_foreign_dataset_without_adopt_is_refused_and_unchanged(golden_copy: Copy, act: Any) -> None:
    store = golden_copy("k53-table").store
    log = DatasetLog(store, "sales", claim=STRANGER)
    before = keys(store)
    with pytest.raises(NotAdopted, match=r"spec\.adopt"):
        act(log)
    assert (log.inspect().problem or "").startswith("NotAdopted: ")
    assert keys(store) == before


def test_adoption_commits_all_foreign_content_as_one_external_commit(golden_copy: Copy) -> None:
    lake = golden_copy("p46-table")
    expected = golden.expected("p46-table")["sales"]
    log = DatasetLog(lake.store, "sales", claim=ADOPTER)
    assert log.inspect().problem is None
    state = log.settle()
    assert (state.version, state.owner) == (1, ADOPTER.owner)
    assert state.totals is not None
    assert state.totals.rows == len(expected["tables"]["table"]["rows"])
    (record,) = log.history()
    assert record.operation is Operation.EXTERNAL
    head = log.snapshot().head
    assert list(head.partition_keys) == expected["partition_keys"]
    assert dict(head.indices) == {column: index["key"] for column, index in expected["indices"].items()}
    assert {k: v for k, v in head.metadata.items() if not k.startswith("kubothek_")} == expected["metadata"]


def test_adopted_dataset_needs_no_second_permission(golden_copy: Copy) -> None:
    store = golden_copy("k53-table").store
    DatasetLog(store, "sales", claim=ADOPTER).settle()
    assert DatasetLog(store, "sales", claim=STRANGER).settle().version == 1


def test_unowned_own_dataset_is_claimed_without_permission(lake: Lake, url: str) -> None:
    lake.create_dataset("ours", schema={"id": "int64"})
    assert DatasetLog(lake.store, "ours", claim=STRANGER).settle().version == 1
    assert owner_of(lake.store, "ours") == STRANGER.owner


def test_own_dataset_overwritten_by_plateau_is_not_foreign(lake: Lake, url: str) -> None:
    """``overwrite=True`` forgets our metadata; our history is still there."""
    lake.create_dataset("ours", schema={"id": "int64"})
    store_dataframes_as_dataset(url, "ours", [pa.table({"id": [7]}).to_pandas()], overwrite=True)
    state = DatasetLog(lake.store, "ours", claim=STRANGER).settle()
    assert state.version == 2
    assert lake.dataset("ours").scan().read_all()["id"].to_pylist() == [7]


@pytest.mark.parametrize("uuid", ["packed", "both"])
def test_msgpack_head_becomes_json_head_that_plateau_prefers(golden_copy: Copy, url: str, uuid: str) -> None:
    lake = golden_copy("k53-msgpack")
    expected = golden.expected("k53-msgpack")[uuid]["tables"]["table"]
    dataset = lake.dataset(uuid)
    DatasetLog(lake.store, uuid, claim=ADOPTER).settle()
    assert golden.rows(dataset.scan(columns=expected["columns"]).read_all()) == expected["rows"]
    assert [row[2] for row in plateau_rows(uuid, url)] == [row[2] for row in expected["rows"]]
    with pytest.raises(ObjectNotFound):
        lake.store.get(key_of.packed_head(uuid))


# --- what is only read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "uuid"), [("k53-implicit", "implicit"), ("k53-multi-table", "multi")])
def test_dataset_that_needs_conversion_refuses_writes(golden_copy: Copy, name: str, uuid: str) -> None:
    lake = golden_copy(name)
    before = keys(lake.store)
    with pytest.raises(NeedsConversion, match=f"kubothek adopt --convert {uuid}"):
        DatasetLog(lake.store, uuid).begin("a", "d")
    assert keys(lake.store) == before
    with pytest.raises(NeedsConversion):
        DatasetLog(lake.store, uuid, claim=ADOPTER).settle()


def test_files_added_to_implicit_dataset_are_visible_until_conversion(golden_copy: Copy) -> None:
    lake = golden_copy("k53-implicit")
    dataset = lake.dataset("implicit-flat")
    store = lake.store
    file = next(info.key for info in store.list("implicit-flat/table/") if info.key.endswith(".parquet"))
    rows = dataset.rows
    store.put("implicit-flat/table/dropped.parquet", store.get(file))
    assert dataset.rows > rows
    rows = dataset.rows
    assert DatasetLog(store, "implicit-flat").convert() == []
    store.put("implicit-flat/table/too-late.parquet", store.get(file))
    assert dataset.rows == rows


def test_header_without_files_is_writable_without_conversion(lake: Lake, url: str) -> None:
    create_empty_dataset_header(url, "new", schema=pa.Table.from_pandas(pd.DataFrame({"id": [0]})).schema)
    lake.dataset("new").append(pa.table({"id": [1]}))
    assert plateau_rows("new", url) == [[1]]


# --- conversion ---------------------------------------------------------------------------------------------


def test_implicit_dataset_is_converted_by_one_commit(golden_copy: Copy, url: str) -> None:
    lake = golden_copy("k53-implicit")
    expected = golden.expected("k53-implicit")["implicit"]
    before = {k: v for k, v in keys(lake.store).items() if not k.startswith("implicit.by-")}
    log = DatasetLog(lake.store, "implicit")
    assert log.convert() == []
    assert log.convert() == []
    after = keys(lake.store)
    assert {k for k in before if before[k] != after.get(k)} <= {"implicit/table/_common_metadata"}
    dataset = lake.dataset("implicit")
    (record,) = dataset.history()
    assert record.operation is Operation.EXTERNAL
    assert {file.label for file in record.delta.added} == {p["label"] for p in expected["partitions"]}
    content = expected["tables"]["table"]
    assert golden.rows(dataset.scan(columns=content["columns"]).read_all()) == content["rows"]
    new = dataset.scan().read_all().slice(0, 1)
    dataset.append(new)
    assert len(plateau_rows("implicit", url)) == len(content["rows"]) + 1


def converted(lake: Lake) -> None:
    assert DatasetLog(lake.store, "multi").convert("core") == ["multi-helper"]


def check_split(lake: Lake, url: str) -> None:
    expected = golden.expected("k53-multi-table")["multi"]
    for uuid, table in (("multi", "core"), ("multi-helper", "helper")):
        content = expected["tables"][table]
        dataset = lake.dataset(uuid)
        assert golden.rows(dataset.scan(columns=content["columns"]).read_all()) == content["rows"]
        assert len(plateau_rows(uuid, url)) == len(content["rows"])
        assert dataset.snapshot().head.metadata["kind"] == "multi"
    assert list(lake.dataset("multi").snapshot().head.indices) == ["x"]
    assert list(lake.dataset("multi-helper").snapshot().head.indices) == []


def test_each_converted_table_becomes_dataset_readable_by_plateau(golden_copy: Copy, url: str) -> None:
    lake = golden_copy("k53-multi-table")
    data = {k: v for k, v in keys(lake.store).items() if k.endswith(".parquet")}
    converted(lake)
    check_split(lake, url)
    assert {k: v for k, v in keys(lake.store).items() if k in data} == data
    helper = lake.dataset("multi-helper")
    helper.append(helper.scan().read_all().slice(0, 1))
    assert len(plateau_rows("multi-helper", url)) == 6
    assert len(plateau_rows("multi", url)) == 10


def test_conversion_without_table_name_is_refused(golden_copy: Copy) -> None:
    lake = golden_copy("k53-multi-table")
    before = keys(lake.store)
    with pytest.raises(InputError, match="has the tables 'core', 'helper'; name one"):
        DatasetLog(lake.store, "multi").convert()
    with pytest.raises(QueryInvalid, match="has the tables 'core', 'helper'; name one, as multi/core"):
        lake.sql("SELECT * FROM multi")
    assert keys(lake.store) == before


def test_conversion_onto_existing_dataset_is_refused(golden_copy: Copy) -> None:
    lake = golden_copy("k53-multi-table")
    lake.create_dataset("multi-helper", schema={"a": "int64"})
    with pytest.raises(DatasetExists, match="multi-helper"):
        DatasetLog(lake.store, "multi").convert("core")
    assert lake.dataset("multi", table="helper").rows == 5


def test_conversion_after_lost_race_with_kartothek_uses_newer_state(golden_copy: Copy, url: str) -> None:
    """Killed after the split, and kartothek has changed the tables before it runs again."""
    lake = golden_copy("k53-multi-table")
    head = lake.store.get("multi.by-dataset-metadata.json")
    document = json.loads(head)
    gone = document["partitions"].pop("p=a/cluster_2")
    lake.store.put("multi.by-dataset-metadata.json", json.dumps(document).encode())
    converted(lake)
    lake.store.put("multi.by-dataset-metadata.json", head)
    assert gone["files"]["helper"] not in lake.dataset("multi-helper").snapshot().head.files().values()
    with_history = DatasetLog(lake.store, "multi")
    with pytest.raises(NeedsConversion):
        with_history.settle()
    converted(lake)
    check_split(lake, url)


@pytest.mark.slow
def test_conversion_after_crash_at_any_write_is_completed_by_next_run(tmp_path: Path) -> None:
    """And until then both tables can be read, each whole."""
    counting = FaultStore(multi_in(tmp_path / "counting").store)
    DatasetLog(counting, "multi").convert("core")
    for number, fault in enumerate(every_crash(counting.calls)):
        root = tmp_path / str(number)
        lake = multi_in(root)
        with pytest.raises(Crash):
            DatasetLog(FaultStore(lake.store, fault), "multi").convert("core")
        several = len(
            json.loads(lake.store.get("multi.by-dataset-metadata.json"))["partitions"]["p=a/cluster_1"]["files"]
        )
        assert lake.dataset("multi", table="core").rows == 10
        assert (lake.dataset("multi", table="helper") if several > 1 else lake.dataset("multi-helper")).rows == 5
        DatasetLog(lake.store, "multi").convert("core")
        check_split(lake, f"hfs://{root}")


def multi_in(root: Path) -> Lake:
    shutil.copytree(golden.ROOT / "k53-multi-table" / "store", root)
    return kubothek.open(root.as_uri())


# --- on the command line and as a resource ------------------------------------------------------------------


def test_adopt_command_converts_multi_table_dataset(
    golden_copy: Copy, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden_copy("k53-multi-table")
    store = ("--store", root.as_uri())
    assert run("describe", "multi", *store) == 1
    assert "multi/core" in capsys.readouterr().err
    assert run("describe", "multi/helper", *store) == 0
    assert "when" in capsys.readouterr().out
    assert run("query", 'SELECT count(*) FROM "multi/core"', *store, "--output", "csv") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "10"
    assert run("adopt", "multi", *store, "--table", "core") == 2
    capsys.readouterr()
    assert run("adopt", "multi", *store, "--convert", "--table", "core") == 0
    assert capsys.readouterr().out.splitlines() == [
        "multi-helper is a separate dataset now",
        "multi is writable now, as table 'core'",
        "multi: owner none",
    ]
    assert run("describe", "multi", *store) == 0


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return exit_.value.code


def test_job_for_adopted_table_may_omit_partitioning(golden_copy: Copy, root: Path, url: str) -> None:
    lake = golden_copy("p46-table")
    rows = lake.dataset("sales-2").rows
    columns = lake.dataset("sales-2").schema
    job = {"uid": "u", "store": {"name": "lake", "url": root.as_uri()}}
    table = {"uuid": "sales-2", "claim": {"owner": STRANGER.owner, "incarnation": "uid"}}
    new = lake.dataset("sales-2").scan().read_all().slice(0, 2)
    pq.write_table(new, root / "new.parquet")
    source = {"format": "Parquet", "paths": ["new.parquet"]}
    commit = {**job, "verb": "commit", "job": "c", "commit_id": "c", "digest": "d", "source": source}
    assert perform_job({**commit, "dataset": table}, root) == "NotAdopted"
    assert perform_job({**commit, "dataset": {**table, "adopt": True}}, root) == "Succeeded"
    dataset = lake.dataset("sales-2")
    assert [record.operation for record in dataset.history()] == [Operation.APPEND, Operation.EXTERNAL]
    assert (dataset.rows, dataset.schema) == (rows + 2, columns)
    assert len(read_table("sales-2", url)) == rows + 2


def perform_job(job: dict[str, Any], root: Path) -> str:
    """The reason with which it ends."""
    path = root.with_name("job.json")
    path.write_text(json.dumps(job))
    return perform([str(path)], Reporter(io.StringIO()))[0].reason


# --- legacy indices -----------------------------------------------------------------------------------------


def test_index_embedded_in_metadata_is_used_and_becomes_file_on_adoption(golden_copy: Copy, url: str) -> None:
    """Very old heads hold value → labels as JSON, in which every value is text (Kartothek specification,
    "Attributes")."""
    lake = golden_copy("p46-table")
    expected = golden.expected("p46-table")["sales"]
    document = json.loads(lake.store.get("sales.by-dataset-metadata.json"))
    for column, index in expected["indices"].items():
        document["indices"][column] = {str(value): labels for value, labels in index["values"]}
    lake.store.put("sales.by-dataset-metadata.json", json.dumps(document).encode())
    dataset = lake.dataset("sales")
    check_lookups(dataset, expected)
    DatasetLog(lake.store, "sales", claim=ADOPTER).settle()
    check_lookups(dataset, expected)
    assert all(isinstance(index, str) for index in dataset.snapshot().head.indices.values())
    value = next(value for value, _ in expected["indices"]["sku"]["values"])
    found = read_table("sales", url, columns=["id"], predicates=[[("sku", "==", value)]])
    mine = dataset.scan(["id"], where=f"sku = {value}").read_all()
    assert sorted(found["id"]) == sorted(mine.to_pandas()["id"])


def check_lookups(dataset: Dataset, expected: dict[str, Any]) -> None:
    for column, index in expected["indices"].items():
        for value, labels in index["values"]:
            planned = dataset.plan([[(column, "=", value)]]).files
            assert {file.label for file in planned} == set(labels)
