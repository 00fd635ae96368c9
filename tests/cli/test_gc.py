"""``kubothek gc``: says what would go, and deletes it when told."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from kubothek.errors import OwnedByAnother, TooManyDeletes
from tests.cli.conftest import Kubothek

DAY = 24 * 3600


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table of four versions, all of them ten days old."""
    root = tmp_path / "filled"
    root.mkdir()
    letters = door.open(root.as_uri()).create_dataset("letters")
    for n in (1, 2, 3):
        letters.overwrite(pa.table({"n": [n]}))
    age(root, 10 * DAY)
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def age(root: Path, seconds: float) -> None:
    """Let so much time pass."""
    for file in root.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time(), file.stat().st_mtime - seconds))


def data(root: Path) -> int:
    return len(list((root / "letters" / "table").glob("*.parquet")))


def test_gc_without_enforce_reports_garbage_only(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("gc", "letters", "--keep-versions", "1").out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["KIND", "OBJECTS"], ["data", "2"], ["records", "3"]]
    assert lines[3] == "letters: 5 objects would be deleted; 1 version kept, from 4 on"
    assert data(store) == 3


def test_gc_enforce_deletes_objects_of_expired_versions_only(kubothek: Kubothek, store: Path) -> None:
    out = kubothek("gc", "letters", "--enforce", "--keep-versions", "2").out
    assert "letters: 3 objects deleted; 2 versions kept, from 3 on" in out
    assert data(store) == 2
    letters = door.open(store.as_uri()).dataset("letters")
    assert [letters.scan(as_of=version).read_all()["n"].to_pylist() for version in (3, 4)] == [[2], [3]]
    assert "Expire" in kubothek("log", "letters").out
    refused = kubothek("query", "SELECT * FROM letters", "--as-of", "2")
    assert refused.code == 1
    assert "has expired" in refused.err


def test_gc_without_rule_keeps_every_version(kubothek: Kubothek, store: Path) -> None:
    assert "0 objects deleted; 4 versions kept, from 1 on" in kubothek("gc", "letters", "--enforce").out
    assert "0 objects deleted; 4 versions kept" in kubothek("gc", "letters", "--enforce", "--keep-for", "2w").out


def test_gc_keeps_versions_within_grace_period(kubothek: Kubothek, store: Path) -> None:
    assert "2 objects" not in kubothek("gc", "letters", "--keep-versions", "1", "--grace", "30d").out
    too_short = kubothek("gc", "letters", "--grace", "1h")
    assert too_short.code == 1
    assert "kubothek grace" in too_short.err


def test_grace_command_sets_grace_period(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("grace").out == f"{store.as_uri()}: grace period 24h\n"
    assert kubothek("grace", "1h30m").out == f"{store.as_uri()}: grace period 1h30m\n"
    assert kubothek("gc", "letters", "--grace", "1h30m").code == 0
    assert kubothek("grace", "1s").code == 1
    assert kubothek("grace").out.endswith(" 1h30m\n")


def test_gc_above_max_deletes_deletes_nothing(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("gc", "letters", "--enforce", "--keep-versions", "1", "--max-deletes", "4")
    assert answer.code == 1
    assert "5 objects are garbage, more than the 4" in answer.err
    assert data(store) == 3


@pytest.mark.parametrize("wrong", ["", "7", "d", "1h2d", "-1d", "1.5d", "7 d"])
def test_gc_with_invalid_duration_is_refused(kubothek: Kubothek, store: Path, wrong: str) -> None:
    answer = kubothek("gc", "letters", "--keep-for", wrong)
    assert answer.code == 2
    assert "is not a duration: write 7d, 36h or 1d12h" in answer.err


def test_gc_of_missing_dataset_fails(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("gc", "nope")
    assert answer.code == 1
    assert "DatasetNotFound" in answer.err
    assert not (store / ".kubothek" / "nope").exists()


def test_gc_counts_dataset_without_first_commit(kubothek: Kubothek, store: Path) -> None:
    (store / "begun" / "table").mkdir(parents=True)
    (store / "begun" / "table" / "x.parquet").write_bytes(b"rows")
    found = kubothek("health", "begun")
    assert "begun: no version, as the first commit never happened" in found.out
    assert "unreferenced: 0 objects (0 B); within the grace period: 1 more (4 B)" in found.out
    age(store, 10 * DAY)
    assert json.loads(kubothek("health", "begun", "--json").out)["unreferencedObjects"] == 1
    listed = "1 object would be deleted; no version, as the first commit never happened"
    assert listed in kubothek("gc", "begun").out
    assert "1 object deleted" in kubothek("gc", "begun", "--enforce").out
    assert not [*store.glob("begun/table/*")]
    assert kubothek("health", "begun").code == 1
    assert "begun" not in kubothek("get").out
    assert door.open(store.as_uri()).create_dataset("begun", schema={"n": "int64"}).version == 2


def test_python_collect_finds_and_deletes_garbage(store: Path) -> None:
    letters = door.open(store.as_uri()).dataset("letters")
    assert sum(count.objects for count in letters.collect(keep_versions=1).found.values()) == 5
    assert not letters.collect(keep_for=timedelta(days=30), enforce=True).deleted
    with pytest.raises(TooManyDeletes):
        letters.collect(keep_versions=1, enforce=True, max_deletes=0)
    letters.collect(keep_versions=1, enforce=True)
    assert data(store) == 1
    assert letters.scan().read_all()["n"].to_pylist() == [3]


def test_python_collect_of_claimed_dataset_is_refused(store: Path) -> None:
    owner = store / ".kubothek" / "letters" / "owner.json"
    owner.write_text('{"owner": "cluster/ns/letters"}')
    with pytest.raises(OwnedByAnother):
        door.open(store.as_uri()).dataset("letters").collect(keep_versions=1, enforce=True)
