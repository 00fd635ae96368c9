"""The samples do what their comments say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Kubothek

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
STORE = ("-f", "examples/stores/local.yaml")


@pytest.fixture
def checkout(project: Path) -> Path:
    """A directory with the examples, as in a clone; the current one."""
    shutil.copytree(ROOT / "examples", project / "examples")
    return project


@pytest.mark.slow
def test_readings_example_ingests_files_and_finds_rows_by_index(kubothek: Kubothek, checkout: Path) -> None:
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
def test_plateau_sales_example_is_adopted(kubothek: Kubothek, checkout: Path) -> None:
    shutil.copytree(ROOT / "tests" / "golden" / "kartothek" / "p46-table" / "store", checkout / ".demo" / "store")
    assert kubothek("log", *STORE, "sales").out == "no commits: another program wrote sales\n"
    manifests = (*STORE, "-f", "examples/adopt")
    assert "= as it is  dataset/sales " in kubothek("plan", *manifests).out
    assert kubothek("run", *manifests).code == 0
    assert "sales: owner local/default/sales" in kubothek("adopt", *STORE, "sales").out
    assert " External " in kubothek("log", *STORE, "sales").out


@pytest.mark.slow
def test_visits_example_is_compacted_and_collected(kubothek: Kubothek, checkout: Path) -> None:
    here = checkout / "examples" / "maintenance"
    manifests = (*STORE, "-f", "examples/maintenance")
    landing = sorted((here / "landing").iterdir())
    assert kubothek("put", *STORE, *landing, "--to", "landing/visits/").code == 0
    ran = kubothek("run", *manifests)
    assert ran.code == 0
    assert "version 4: 8 rows in 8 files, " in ran.out
    assert "dataset/visits               Ready: version 6: 8 rows in 2 files, " in ran.out
    assert "verification/visits          Done: version " in ran.out
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
def test_trips_example_gets_skipping_index_on_plain_files(kubothek: Kubothek, checkout: Path) -> None:
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


@pytest.mark.slow
def test_flights_cube_example_answers_from_all_datasets(kubothek: Kubothek, checkout: Path) -> None:
    sources = checkout / ".demo" / "cube"
    sources.mkdir(parents=True)
    hour = "1,2013-01-31 13:00:00,EWR"
    flights = f"{hour},B6,1172,N258JB,RSW,228\n{hour},UA,1,N1,SFO,500\n{hour},UA,2,unknown,SFO,\n"
    (sources / "flights.csv").write_text(f"month,time_hour,origin,carrier,flight,tailnum,dest,dep_delay\n{flights}")
    (sources / "weather.csv").write_text(f"month,time_hour,origin,temp,wind_speed,visib\n{hour},39,39.1,10\n")
    (sources / "planes.csv").write_text("tailnum,manufacturer,model,seats\nN258JB,EMBRAER,ERJ 190-100 IGW,20\n")
    (sources / "airports.csv").write_text("origin,airport\nEWR,Newark Liberty Intl\n")
    assert kubothek("put", *STORE, *sorted(sources.iterdir()), "--to", "sources/cube/").code == 0
    manifests = (*STORE, "-f", "examples/cube")
    planned = kubothek("plan", *manifests).out
    assert "+ create    cube/nyc              nothing is at 'nyc' yet; its first commit builds it" in planned
    assert "> commit    commit/nyc            build cube/nyc: 4 files (" in planned
    ran = kubothek("run", *manifests)
    assert ran.code == 0, ran.err
    assert "Ready: version 1: 3 cells in 4 datasets, " in ran.out
    (report,) = (checkout / ".demo" / "store" / "reports" / "late-in-a-gale").iterdir()
    rows = report.read_text().splitlines()
    assert rows[0].replace('"', "").split(",")[:3] == ["airport", "carrier", "dep_delay"]
    assert [line.split(",")[4] for line in rows[1:]] == ['"EMBRAER"', ""], "a plane that nobody knows is NULL"
    again = kubothek("run", *manifests)
    assert "up to date: 9 resources (0 jobs, " in again.out
    assert again.err == "", "the Datasets that the Cube made are no strangers"
    planned = kubothek("plan", *manifests).out
    assert "= as it is  cube/nyc              version 1, 4 datasets" in planned
    assert "= as it is  commit/nyc            is version 1 of cube/nyc" in planned
    assert "= as it is  dataset/nyc-planes    version 1, 1 row" in planned
    assert kubothek("lint", "-f", "examples/cube").out == "valid: 1 Cube, 1 Commit, 1 Query\n"


@pytest.mark.slow
def test_cube_member_written_directly_is_refused_by_lint(kubothek: Kubothek, checkout: Path) -> None:
    (checkout / "m.yaml").write_text(
        """\
apiVersion: kubothek.io/v1alpha1
kind: Cube
metadata: {name: geo}
spec:
  storeRef: {name: lake}
  dimensionColumns: [x]
  partitionColumns: [p]
  datasets: [{name: seed}]
---
apiVersion: kubothek.io/v1alpha1
kind: Commit
metadata: {name: build}
spec:
  cube:
    cubeRef: {name: geo}
    operation: Build
    datasets: [{name: seed, source: {paths: [in/seed.csv], format: CSV}}]
---
apiVersion: kubothek.io/v1alpha1
kind: Commit
metadata: {name: plain}
spec: {datasetRef: {name: geo-seed}, dependsOn: [{name: build}], operation: Delete, where: p = 1}
"""
    )
    (checkout / "tidy.yaml").write_text(
        """apiVersion: kubothek.io/v1alpha1
kind: Compaction
metadata: {name: tidy}
spec: {datasetRef: {name: geo-seed}}
"""
    )
    (checkout / "seed.csv").write_text("p,x,v\n1,1,1\n")
    assert kubothek("put", *STORE, "seed.csv", "--to", "in/").code == 0
    ran = kubothek("run", *STORE, "-f", "m.yaml")
    assert ran.code == 1
    assert "failed: commit/plain (m.yaml:19): MemberOfCube: Dataset 'geo-seed' belongs to Cube 'geo'" in ran.err
    assert "! blocked   commit/plain" in kubothek("plan", *STORE, "-f", "m.yaml").out
    ran = kubothek("run", *STORE, "-f", "m.yaml", "-f", "tidy.yaml")
    assert "compaction/tidy" in ran.out
    assert "compaction/tidy" not in ran.err, "its maintenance is its own"


@pytest.mark.slow
def test_register_example_is_published_and_pulled_back(kubothek: Kubothek, checkout: Path) -> None:
    head = "tailnum,year,type,manufacturer,model,engines,seats,speed,engine\n"
    rows = [
        f"N{number},2001,Jet,{maker},A{number},2,100,NA,Turbo\n" for number, maker in ((1, "AIRBUS"), (2, "BOEING"))
    ]
    for name, lines in (("planes", rows), ("planes-corrected", rows[:1])):
        (checkout / f"{name}.csv").write_text(head + "".join(lines))
    assert kubothek("put", *STORE, "planes.csv", "planes-corrected.csv", "--to", "sources/").code == 0
    out, back = ("-f", "examples/exchange/push.yaml"), ("-f", "examples/exchange/pull.yaml")
    planned = kubothek("plan", *STORE, "-f", "examples/ledger", *out).out
    assert "> commit    sync/register-out" in planned
    assert "pushes to file:.demo/public/aviation/register what is new" in planned
    assert kubothek("run", *STORE, "-f", "examples/ledger", *out).code == 0
    published = checkout / ".demo" / "public" / "aviation" / "register"
    first = kubothek("run", *STORE, *back)
    assert first.code == 0, first.out
    assert "Ready: version 1: 1 row in 1 file" in first.out
    assert f"both end with {(published / 'refs' / 'head').read_text()}" in first.out
    assert kubothek("verify", *STORE, "their-register").code == 0
    again = kubothek("run", *STORE, *back)
    assert again.code == 0
    assert "(1 job, " in again.out
    assert "version 1, 1 row" in kubothek("plan", *STORE, *back).out, "nothing new is no new version"


def test_delays_example_is_derived_and_updated_after_correction(
    kubothek: Kubothek, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(checkout / "state"))
    sources = checkout / "sources"
    sources.mkdir()
    head = "event_time,origin,carrier,flight,delay\n"
    rows = ["2013-01-01 10:00:00,EWR,UA,1545,2\n", "2013-01-01 23:00:00,JFK,MQ,3944,853\n"]
    (sources / "departures.csv").write_text(head + "".join(rows))
    (sources / "departures-corrected.csv").write_text(head + rows[1].replace("853", "13"))
    (sources / "winds.csv").write_text(
        "event_time,origin,wind_speed\n2013-01-01 10:00:00,EWR,25.0\n2013-01-01 23:00:00,JFK,3.5\n"
    )
    assert kubothek("put", *STORE, *sorted(sources.iterdir()), "--to", "sources/derivative/").code == 0
    planned = kubothek("plan", *STORE, "-f", "examples/derivative/delays.yaml").out
    assert [line.split()[-5:] for line in planned.splitlines() if line.startswith("> commit    dataset/delays ")] == [
        ["all", "records", "of", "its", "inputs"]
    ]
    ran = kubothek("run", *STORE, "-f", "examples/derivative/delays.yaml")
    assert ran.code == 0, ran.out + ran.err
    asked = ("query", *STORE, "--output", "csv", "SELECT carrier, windy, minutes FROM delays ORDER BY 1")
    assert kubothek(*asked).out.splitlines()[1:] == ['"MQ",false,853', '"UA",true,2']
    assert kubothek("run", *STORE, "-f", "examples/derivative").code == 0
    assert kubothek(*asked).out.splitlines()[1:] == ['"MQ",false,13']
    told = kubothek("tail", *STORE, "-o", "csv", "-n", "3", "delays").out
    assert [line.split(",")[1].strip('"') for line in told.splitlines()[1:]] == ["-C", "+C", "-R"]
    assert ": sound, " in kubothek("verify", *STORE, "--recursive", "delays").out
