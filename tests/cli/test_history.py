"""log, diff and query --explain, on a store with a history, a foreign writer in it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek as door
from kubothek.catalog import Lake
from kubothek.table.log import Change, DatasetLog, Operation, Transaction
from kubothek.table.log.model import keys as lake_keys
from tests.cli.conftest import Kubothek


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: created, appended, deleted a partition, External, appended."""
    root = tmp_path_factory.mktemp("history")
    lake = door.open(root.as_uri())
    flights = lake.create_dataset("flights", ["month"], {"month": "int64", "delay": "int64"})
    flights.append(pa.table({"month": [1, 1, 2], "delay": [1, 2, 3]}), id="first")
    log = DatasetLog(lake.store, "flights")
    started = log.begin("cleanup", "digest")
    assert isinstance(started, Transaction)
    label = next(label for label, key in started.snapshot.head.files().items() if "month=1" in key)
    started.commit(Change(operation=Operation.DELETE, removed=(label,), by="ops"))
    write_blindly(lake, "month=3", 7)
    flights.append(pa.table({"month": [4], "delay": [5]}), id="last")
    return root


def write_blindly(lake: Lake, directory: str, rows: int) -> None:
    """What another library does: a file, and a PUT of the head."""
    key = f"flights/table/{directory}/foreign.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"delay": pa.array(range(rows), pa.int64())}), sink)
    lake.store.put(key, sink.getvalue().to_pybytes())
    head = json.loads(lake.store.get(lake_keys.head("flights")))
    head["partitions"]["foreign"] = {"files": {"table": key}}
    lake.store.put(lake_keys.head("flights"), json.dumps(head).encode())


@pytest.fixture
def store(filled: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBOTHEK_STORE", filled.as_uri())
    return filled


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def test_log_shows_added_and_removed_files_with_author(kubothek: Kubothek, store: Path) -> None:
    _, *commits = cells(kubothek("log", "flights").out)
    assert [[line[0], line[2], *line[4:7]] for line in commits] == [
        ["5", "Append", "+1", "+1", "9"],
        ["4", "External", "+7", "+1", "8"],
        ["3", "Delete", "+0 −2", "+0 −1", "1"],
        ["2", "Append", "+3", "+2", "3"],
        ["1", "Create", "+0", "+0", "0"],
    ]


def test_log_with_limit_still_shows_removed_files(kubothek: Kubothek, store: Path) -> None:
    last = cells(kubothek("log", "flights", "--limit", "3").out)[3]
    assert last[4] == "+0 −2"
    assert "from version 2 down" in kubothek("log", "flights", "--limit", "3").out


def test_log_times_are_accepted_by_as_of_in_any_time_zone(
    kubothek: Kubothek, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        told = datetime.fromisoformat(cells(kubothek("log", "flights", "-n", "1").out)[1][1])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=10)


@pytest.mark.parametrize("command", [("log", "flights"), ("diff", "flights", "1")])
def test_log_with_negative_limit_is_refused(kubothek: Kubothek, store: Path, command: tuple[str, ...]) -> None:
    assert kubothek(*command, "--limit", "-1").code == 2


def test_log_as_json_has_one_object_per_commit(kubothek: Kubothek, store: Path) -> None:
    found = json.loads(kubothek("log", "flights", "--json", "-n", "3").out)
    assert [(commit["version"], commit["operation"]) for commit in found] == [
        (5, "Append"),
        (4, "External"),
        (3, "Delete"),
    ]
    assert (found[2]["rowsAdded"], found[2]["rowsRemoved"], found[2]["filesRemoved"], found[2]["by"]) == (
        0,
        2,
        1,
        "ops",
    )


def test_diff_shows_changed_partitions(kubothek: Kubothek, store: Path) -> None:
    assert cells(kubothek("diff", "flights", "2", "5").out) == [
        ["flights: version 2 → 5, rows 3 → 9"],
        ["PARTITION", "ROWS", "FILES"],
        ["month=1", "−2", "−1"],
        ["month=3", "+7", "+1"],
        ["month=4", "+1", "+1"],
    ]


def test_diff_defaults_to_present_version_and_reports_no_difference(kubothek: Kubothek, store: Path) -> None:
    assert "version 4 → 5" in kubothek("diff", "flights", "4").out
    assert kubothek("diff", "flights", "5").out.splitlines() == [
        "flights: version 5 → 5, rows 9 → 9",
        "the same files, columns and indices",
    ]


def test_diff_with_limit_counts_hidden_partitions(kubothek: Kubothek, store: Path) -> None:
    text = kubothek("diff", "flights", "2", "5", "-n", "1").out
    assert text.splitlines()[-1] == "… and 2 more partitions: --limit shows more"
    found = json.loads(kubothek("diff", "flights", "2", "5", "-n", "1", "--json").out)
    assert (len(found["partitions"]), found["morePartitions"]) == (1, 2)
    assert found["partitions"][0] == {
        "path": "month=1",
        "rowsAdded": 0,
        "rowsRemoved": 2,
        "filesAdded": 0,
        "filesRemoved": 1,
    }


def test_diff_of_rows_shows_changes(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("diff", "flights", "2", "3", "--rows").out.splitlines() == [
        "version   change   month   delay",
        "      3   delete       1       1",
        "      3   delete       1       2",
        "2 rows",
    ]
    assert "the first 1 row (all of them" in kubothek("diff", "flights", "2", "5", "--rows", "-n", "1").out
    assert kubothek("diff", "flights", "2", "5", "--rows", "-n", "0").out.endswith("\n10 rows\n")
    assert kubothek("diff", "flights", "4", "4", "--rows").out.endswith("\n0 rows\n")


def test_diff_of_rows_with_key_shows_updates(kubothek: Kubothek, tmp_path: Path) -> None:
    table = door.open(tmp_path.as_uri()).create_dataset("t")
    table.append(pa.table({"n": [1, 2], "x": ["a", "b"]}))
    table.update({"x": "c"}, where="n = 2", row_level=True)
    line = ["diff", "t", "2", "--rows", "--key", "n", "--store", tmp_path.as_uri()]
    assert cells(kubothek(*line).out) == [
        ["version", "change", "n", "x"],
        ["3", "before", "2", "b"],
        ["3", "after", "2", "c"],
        ["2 rows"],
    ]
    found = json.loads(kubothek(*line, "-o", "json").out)
    assert [row["_change_type"] for row in found] == ["update_preimage", "update_postimage"]
    assert kubothek(*line, "-o", "csv").out.splitlines()[0] == (
        '"n","x","_change_type","_commit_version","_commit_timestamp"'
    )
    assert "_commit_timestamp" in kubothek(*line, "-o", "wide").out
    assert "there is no column 'nope'" in kubothek(*line, "--key", "nope").err
    assert "--key belongs to --rows" in kubothek("diff", "t", "2", "--key", "n", "--store", tmp_path.as_uri()).err


def test_diff_accepts_times(kubothek: Kubothek, store: Path) -> None:
    assert "version 5 → 5" in kubothek("diff", "flights", "2999-01-01").out
    answer = kubothek("diff", "flights", "2026-13-01")
    assert answer.code == 2
    assert "neither a version number nor a time" in answer.err


def test_diff_of_missing_version_or_dataset_fails(kubothek: Kubothek, store: Path) -> None:
    assert "VersionNotFound" in kubothek("diff", "flights", "77").err
    assert "DatasetNotFound" in kubothek("diff", "nope", "1").err


def test_query_explain_shows_files_left_by_each_step(kubothek: Kubothek, store: Path) -> None:
    sql = "SELECT * FROM flights WHERE month > 1 AND delay > 4"
    assert cells(kubothek("query", sql, "--explain").out) == [
        ["flights, version 5, rows where month > 1 AND delay > 4"],
        ["STEP", "FILES LEFT"],
        ["table", "3"],
        ["partition keys", "3"],
        ["secondary indices", "3"],
        ["skipping metadata", "3"],
        ["file statistics", "2"],
    ]


def test_query_explain_as_json_has_steps(kubothek: Kubothek, store: Path) -> None:
    sql = "SELECT * FROM flights AS OF VERSION 2 WHERE month = 1"
    (found,) = json.loads(kubothek("query", sql, "--explain", "-o", "json").out)
    assert (found["dataset"], found["version"], found["where"]) == ("flights", 2, "month = 1")
    assert [step["files"] for step in found["steps"]] == [2, 1, 1, 1, 1]


def test_query_explain_without_datasets_is_reported(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("query", "SELECT 1", "--explain").out == "no dataset is read\n"
    assert kubothek("query", "SELECT 1; SELECT 2", "--explain").code == 1
