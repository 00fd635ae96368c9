"""``kubothek iceberg``: writes Iceberg metadata and shows how other engines read it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

import kubothek as library
from kubothek.storage import StoreConfig, open_store
from tests.cli.conftest import Kubothek
from tests.gateway.running import running


@pytest.fixture
def store(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table of two versions."""
    root = project / "filled"
    letters = library.open(root).create_dataset("letters")
    letters.append(pa.table({"letter": ["a", "b"]}))
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def test_iceberg_exports_and_shows_how_engines_read(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("iceberg", "letters")
    assert answer.code == 0
    table = f"file://{store}/.kubothek/letters/iceberg"
    assert answer.out.splitlines() == [
        "letters: version 2; 2 snapshots, 1 manifest written",
        f"metadata: {table}/metadata/v2.metadata.json",
        "",
        f"pyiceberg  StaticTable.from_metadata('{table}').scan()",
        f"polars     pl.scan_iceberg('{table}/metadata/v2.metadata.json')",
        f"DuckDB     SELECT * FROM iceberg_scan('{table}')",
        f"Spark      spark.read.format('iceberg').load('{table}')",
    ]
    scan = answer.out.splitlines()[3].split(maxsplit=1)[1]
    assert eval(scan, {"StaticTable": StaticTable}).to_arrow().num_rows == 2


def test_iceberg_shows_how_engines_read_through_catalogue(kubothek: Kubothek, store: Path) -> None:
    with running(open_store(StoreConfig(store.as_uri())), public=("letters",)) as gateway:
        url = f"{gateway.root}/iceberg"
        lines = kubothek("iceberg", "letters", "--rest", url).out.splitlines()[8:]
        assert [line[:10].strip() for line in lines] == ["pyiceberg", "polars", "DuckDB", "Trino", "", "Spark", ""]
        scan = lines[0].split(maxsplit=1)[1]
        no_token: Any = {"type": "noop"}
        names = {"load_catalog": partial(load_catalog, auth=no_token), "TOKEN": ""}
        assert eval(scan, names).to_arrow().num_rows == 2
    assert kubothek("iceberg", "letters").out.count("kubothek.default") == 0


def test_iceberg_without_hint_shows_the_location_of_the_metadata(kubothek: Kubothek, store: Path) -> None:
    answer = kubothek("iceberg", "letters", "--after-commits", "Omit", "--no-version-hint")
    metadata = f"file://{store}/.kubothek/letters/iceberg/metadata/v3.metadata.json"
    assert f"DuckDB     SELECT * FROM iceberg_scan('{metadata}')" in answer.out.splitlines()
    assert not list(store.rglob("version-hint.text"))
    assert StaticTable.from_metadata(metadata).scan().to_arrow().num_rows == 2
    answer = kubothek("iceberg", "letters", "--no-version-hint")
    assert answer.code == 2
    assert "--no-version-hint goes with --after-commits" in answer.err


def test_iceberg_as_json_names_the_metadata(kubothek: Kubothek, store: Path) -> None:
    found = json.loads(kubothek("iceberg", "letters", "--rebuild", "-o", "json").out)
    table = f"file://{store}/.kubothek/letters/iceberg"
    assert found == {
        "dataset": "letters",
        "version": 2,
        "metadataLocation": f"{table}/metadata/v2.metadata.json",
        "tableLocation": table,
        "snapshots": 2,
        "manifestsWritten": 1,
    }


def test_iceberg_without_pyiceberg_names_the_extra(
    kubothek: Kubothek, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("kubothek.table.iceberg.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg.exceptions", None)
    answer = kubothek("iceberg", "letters")
    assert answer.code == 1
    assert "pip install 'kubothek[iceberg]'" in answer.err


def test_iceberg_after_commits_sets_it_for_all_writers(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("iceberg", "letters", "--after-commits", "omit").out.startswith("letters: version 3;")
    library.open(store).dataset("letters").append(pa.table({"letter": ["c"]}))
    table = StaticTable.from_metadata(f"file://{store}/.kubothek/letters/iceberg")
    assert table.scan().to_arrow().num_rows == 3


def test_iceberg_of_cube_shows_datasets_at_its_version(kubothek: Kubothek, store: Path) -> None:
    cube = library.open(store).create_cube("geo", dimension_columns="x", partition_columns="p")
    cube.build({"seed": pa.table({"x": [1], "p": [0], "v": [1]}), "extra": pa.table({"x": [1], "p": [0], "w": [2]})})
    cube.append({"seed": pa.table({"x": [2], "p": [0], "v": [2]})})
    answer = json.loads(kubothek("iceberg", "geo", "--output", "json").out)
    assert answer["cube"] == "geo"
    versions = {each["dataset"]: each["version"] for each in answer["datasets"]}
    assert versions == {member.uuid: member.snapshot.version for member in cube.snapshot().members.values()}
    cube.append({"seed": pa.table({"x": [3], "p": [0], "v": [3]}), "extra": pa.table({"x": [2], "p": [0], "w": [3]})})
    shown = kubothek("iceberg", "geo").out
    read = [line.removeprefix("pyiceberg  ") for line in shown.splitlines() if line.startswith("pyiceberg")]
    rows = [eval(each, {"StaticTable": StaticTable}).to_arrow().num_rows for each in read]
    assert rows == [3, 2]
    for each in answer["datasets"]:
        table = StaticTable.from_metadata(each["tableLocation"])
        expected = {"geo++seed": 2, "geo++extra": 1}[each["dataset"]]
        assert table.scan(snapshot_id=each["version"]).to_arrow().num_rows == expected
