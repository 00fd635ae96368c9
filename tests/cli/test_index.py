"""``kubothek index``: tidies indices up, and builds them anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from tests.cli.conftest import Kubothek


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table that has indices, and one that has none."""
    root = tmp_path / "filled"
    root.mkdir()
    lake = door.open(root.as_uri())
    letters = lake.create_dataset("letters", indices={"n": "Native", "s": "Kartothek"})
    letters.append(pa.table({"n": [1, 2, 3], "s": ["a", "b", "a"]}))
    lake.create_dataset("plain", schema={"n": "int64"})
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def test_index_of_current_indices_reports_up_to_date(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("index", "letters").out.splitlines()
    assert lines[0] == "letters: the indices are up to date"
    assert [line.split() for line in lines[1:]] == [
        ["COLUMN", "KIND", "STATE", "ROWS"],
        ["n", "Native", "Ready", "3"],
        ["s", "Kartothek", "Ready", "2"],
    ]
    assert kubothek("index", "plain").out == "plain: the indices are up to date\n"


def test_index_rebuild_builds_all_indices(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("index", "letters", "--rebuild").out.startswith("letters: version 3: built n, s\n")


def test_index_that_was_lost_is_rebuilt(kubothek: Kubothek, store: Path) -> None:
    for file in (store / "letters" / "indices" / "s").iterdir():
        file.unlink()
    assert kubothek("index", "letters").out.startswith("letters: version 3: built s\n")
    assert kubothek("index", "letters").out.startswith("letters: the indices are up to date\n")


def test_index_of_missing_dataset_fails(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("index", "nope")
    assert answer.code == 1
    assert "DatasetNotFound" in answer.err
