"""The samples do what their comments say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Kubothek

ROOT = Path(__file__).resolve().parents[2]
STORE = ("-f", "examples/stores/local.yaml")


@pytest.fixture
def checkout(project: Path) -> Path:
    """A directory with the examples, as in a clone; the current one."""
    shutil.copytree(ROOT / "examples", project / "examples")
    return project


@pytest.mark.slow
def test_the_readings_are_taken_from_where_they_land_and_found_by_index(kubothek: Kubothek, checkout: Path) -> None:
    landing = sorted((checkout / "examples" / "readings" / "landing").iterdir())
    assert kubothek("put", *STORE, *landing, "--to", "landing/readings/").code == 0
    ran = kubothek("run", *STORE, "-f", "examples/readings")
    assert ran.code == 0
    assert "version 1: 5 rows in 2 files, " in ran.out
    assert "; 1 file in quarantine" in ran.out
    described = kubothek("describe", *STORE, "readings").out
    assert "sensor (Native), kind (Kartothek)" in described
    assert "Layout:       sorted by sensor" in described
    assert "put into quarantine: 'landing/readings/bad.csv': DataTypeMismatch" in described
    explained = kubothek("query", *STORE, "--explain", "SELECT * FROM readings WHERE sensor = 'a-18'").out
    assert [line.split()[-1] for line in explained.splitlines()[2:]] == ["2", "2", "1", "1", "1"]


@pytest.mark.slow
def test_the_sales_of_plateau_are_adopted(kubothek: Kubothek, checkout: Path) -> None:
    shutil.copytree(ROOT / "tests" / "golden" / "kartothek" / "p46-table" / "store", checkout / ".demo" / "store")
    assert kubothek("log", *STORE, "sales").out == "no commits: sales is as another program made it\n"
    manifests = (*STORE, "-f", "examples/adopt")
    assert "= as it is  dataset/sales " in kubothek("plan", *manifests).out
    assert kubothek("run", *manifests).code == 0
    assert "sales belongs to local/default/sales" in kubothek("adopt", *STORE, "sales").out
    assert " External " in kubothek("log", *STORE, "sales").out


@pytest.mark.slow
def test_the_visits_are_compacted_and_collected(kubothek: Kubothek, checkout: Path) -> None:
    here = checkout / "examples" / "maintenance"
    manifests = (*STORE, "-f", "examples/maintenance")
    landing = sorted((here / "landing").iterdir())
    assert kubothek("put", *STORE, *landing, "--to", "landing/visits/").code == 0
    ran = kubothek("run", *manifests)
    assert ran.code == 0
    assert "version 4: 8 rows in 8 files, " in ran.out
    assert "dataset/visits               Ready: version 6: 8 rows in 2 files, " in ran.out
    leftover = checkout / ".demo" / "store" / "visits" / "table" / "site=oslo" / "of-a-crash.parquet"
    leftover.write_bytes(b"0123456789")
    os.utime(leftover, (0, 0))
    policies = (here / "policies.yaml").read_text()
    request = "metadata:\n  annotations: {kubothek.io/requestedAt: now}\n"
    (here / "policies.yaml").write_text(policies.replace("metadata:\n", request))
    planned = kubothek("plan", *manifests).out
    assert "~ change    gcpolicy/hot                 deletes what no kept version of 1 dataset needs" in planned
    assert "= as it is  gcpolicy/nightly             says what it would delete of 1 dataset" in planned
    collected = kubothek("run", *manifests)
    assert collected.code == 0
    assert "gcpolicy/hot                 Ready: 1 object (10 B) of 1 Dataset deleted; next at " in collected.out
    assert "0 objects (0 B) of 1 Dataset that would be deleted (mode is DryRun); next at " in collected.out
    assert not leftover.exists()
    assert "8" in kubothek("query", *STORE, "SELECT count(*) FROM visits").out


@pytest.mark.slow
def test_the_trips_are_described_where_they_lie(kubothek: Kubothek, checkout: Path) -> None:
    landing = sorted((checkout / "examples" / "skipping" / "landing").iterdir())
    assert kubothek("put", *STORE, *landing, "--to", "landing/trips/").code == 0
    ran = kubothek("run", *STORE, "-f", "examples/skipping")
    assert (ran.code, "3 of 3 files are described" in ran.out) == (0, True)
    described = kubothek("skipping", "describe", *STORE, "trips").out
    assert [line.split()[:2] for line in described.splitlines()[3:7]] == [
        ["TokenList", "note"],
        ["GeometryBox", "lon"],
        ["MinMax", "id"],
        ["ValueList", "id"],
    ]
    for where, city in (
        ("city = 'Bern'", "bern"),
        ("note LIKE '%puncture%'", "bern"),
        ("lon > 9 AND lat > 46.8", "chur"),
    ):
        explained = kubothek("skipping", "explain", *STORE, "trips", where).out
        assert explained.splitlines()[-1].strip() == f"landing/trips/{city}.csv"
    assert "from trips (1 file)" in kubothek("query", *STORE, "SELECT * FROM trips WHERE city = 'Bern'").out
