"""``kubothek heal``: makes anew what can be, and says what is lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from tests.cli.conftest import Kubothek


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table at version 3 that has an index."""
    root = tmp_path / "filled"
    root.mkdir()
    letters = door.open(root.as_uri()).create_dataset("letters", indices={"n": "Kartothek"})
    for n in range(2):
        letters.append(pa.table({"n": [n]}))
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def test_heal_of_intact_dataset_reports_nothing_to_repair(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("heal", "letters") == (0, "letters: nothing to repair\n", "")


def test_heal_names_recreated_objects(kubothek: Kubothek, store: Path) -> None:
    for file in (store / "letters" / "indices" / "n").iterdir():
        file.unlink()
    (store / "letters" / "table" / "_common_metadata").unlink()
    answer = kubothek("heal", "letters")
    assert answer == (0, "letters: repaired: _common_metadata, the index on 'n'\n", "")
    assert door.open(store.as_uri()).dataset("letters").scan(where="n = 1").read_all().num_rows == 1


def test_heal_with_lost_data_file_fails_and_names_remedy(kubothek: Kubothek, store: Path) -> None:
    newest = list(door.open(store.as_uri()).dataset("letters").snapshot().head.files().values())[-1]
    (store / newest).unlink()
    answer = kubothek("heal", "letters")
    assert (answer.code, answer.out) == (1, "letters: nothing to repair\n")
    assert answer.err == (
        f"error: Corrupt: letters: 1 data file is lost: {newest}; missing in version 3; version 2 is whole: put the "
        "files back, roll back to it, or delete what they held\n"
    )


def test_heal_of_missing_dataset_fails(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("heal", "nope")
    assert answer.code == 1
    assert "DatasetNotFound" in answer.err
