"""``kubothek compact`` and ``kubothek health``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from kubothek.errors import AccessDenied
from kubothek.storage.file import FileStore
from tests.cli.conftest import Kubothek


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table of many small files."""
    root = tmp_path / "filled"
    root.mkdir()
    letters = door.open(root.as_uri()).create_dataset("letters", ["month"])
    for n in range(3):
        letters.append(pa.table({"month": [1, 2], "n": [n, n], "c": ["a", "b"]}))
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def test_compact_dry_run_shows_planned_rewrites(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("compact", "letters", "--dry-run", "--where", "month = 2").out.splitlines()
    assert lines[0] == "letters: 3 of 3 files would be rewritten"
    assert lines[1].split() == ["PARTITION", "FILES", "SIZE", "ROWS"]
    assert lines[2].split()[:2] == ["month=2", "3"]
    assert door.open(store.as_uri()).dataset("letters").version == 4


@pytest.mark.parametrize("command", ["gc letters", "compact letters --dry-run"])
def test_dry_run_on_read_only_store_succeeds(
    kubothek: Kubothek, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def refuse(*_: object) -> None:
        raise AccessDenied("read-only")

    for write in ("put", "put_if_absent", "put_if_match", "put_many", "delete"):
        monkeypatch.setattr(FileStore, write, refuse)
    answer = kubothek(*command.split())
    assert (answer.code, answer.err) == (0, "")


def test_compact_reports_rewritten_files(kubothek: Kubothek, store: Path) -> None:
    out = kubothek("compact", "letters", "--target-size", "1Mi").out
    assert out.startswith("letters: version 5: 6 files (")
    assert out.rstrip().endswith("with the same 6 rows")
    assert kubothek("compact", "letters").out == "letters: nothing to compact\n"
    assert kubothek("compact", "letters", "--dry-run").out.startswith("letters: nothing to compact (2 files)")


def test_compact_of_cluster_managed_dataset_succeeds(kubothek: Kubothek, store: Path) -> None:
    (store / ".kubothek" / "letters" / "owner.json").write_text('{"owner": "cluster/ns/letters"}')
    assert kubothek("compact", "letters").out.startswith("letters: version ")


def test_compact_with_z_order_sorts_rows(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("compact", "letters", "--z-order-by", "n, c", "--dry-run").out.startswith("letters: 6 of 6 files")
    assert kubothek("compact", "letters", "--z-order-by", "n,c").out.startswith("letters: version 5: 6 files (")
    assert kubothek("compact", "letters", "--z-order-by", "n,c").out.startswith("letters: nothing to compact")
    door.open(store.as_uri()).dataset("letters").append(pa.table({"month": [1], "n": [0], "c": ["x"]}))
    assert kubothek("compact", "letters", "--sort-by", "n").out.startswith("letters: version 7: 2 files (")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sort-by", "nope"), "sortBy names column 'nope'"),
        (("--sort-by", "n", "--z-order-by", "c"), "exclude each other"),
        (("--z-order-by", "month"), "partition column 'month'"),
    ],
)
def test_compact_with_invalid_order_names_reason(
    kubothek: Kubothek, store: Path, arguments: tuple[str, ...], says: str
) -> None:
    answer = kubothek("compact", "letters", *arguments)
    assert answer.code in (1, 2)
    assert says in answer.err


@pytest.mark.parametrize("arguments", [("--where", "n = 1"), ("--where", "month ="), ("--target-size", "many")])
def test_compact_with_invalid_arguments_is_refused_with_error(
    kubothek: Kubothek, store: Path, arguments: tuple[str, ...]
) -> None:
    answer = kubothek("compact", "letters", *arguments)
    assert answer.code in (1, 2)
    assert "fault of Kubothek" not in answer.err
    assert answer.err


def test_health_shows_file_statistics(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("health", "letters").out.splitlines()
    assert lines[0].startswith("letters: version 4 of ")
    assert lines[1].startswith("6 rows in 6 files (")
    assert lines[2].startswith("small files, below 64 MiB: 6 (100%") or "6 (100%" in lines[2]
    kubothek("compact", "letters")
    found = json.loads(kubothek("health", "letters", "--json").out)
    assert (found["files"], found["historyFiles"], found["versions"], found["smallFileShare"]) == (2, 6, 5, 1.0)


def test_health_shows_lag_of_the_export_and_heal_ends_it(kubothek: Kubothek, store: Path) -> None:
    kubothek("iceberg", "letters", "--after-commits", "Omit")
    hint = store / ".kubothek/letters/iceberg/metadata/version-hint.text"
    hint.write_text("4")
    assert "Iceberg metadata: version 4, 1 version behind" in kubothek("health", "letters").out.splitlines()
    assert kubothek("heal", "letters").out == "letters: repaired: the Iceberg export\n"
    found = json.loads(kubothek("health", "letters", "--json").out)
    assert (found["icebergVersion"], found["icebergLag"]) == (5, 0)
