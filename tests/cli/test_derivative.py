"""Derivatives on the command line: brought in, pulled, planned, run, looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import kubothek as lake_door
from kubothek.api.dataset import Dataset
from kubothek.api.kinds import parse
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE

pytestmark = pytest.mark.slow

PLANES = """
kind: DatasetSnapshot
version: 1
content:
  name: org.example/planes
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Csv, header: true, schema: ["event_time TIMESTAMP", "id BIGINT", "seats BIGINT"]}
      merge: {kind: Snapshot, primaryKey: [id]}
"""
DERIVED = """
kind: DatasetSnapshot
version: 1
content:
  name: %s
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{datasetRef: %s, alias: x}]
      transform: {kind: Sql, engine: datafusion, query: "SELECT event_time, id, seats FROM x WHERE seats > %s"}
"""
AT = ("--store", "file:store")


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where private keys go."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def imported(kubothek: Kubothek, project: Path) -> Path:
    """A root, `planes`, with records, and what is derived from it: `large`, and `largest` from that."""
    for name, text in (
        ("planes", PLANES),
        ("large", DERIVED % ("large", "org.example/planes", 100)),
        ("largest", DERIVED % ("largest", "large", 200)),
    ):
        (project / f"{name}.yaml").write_text(text)
        done = kubothek("import", *AT, f"{name}.yaml")
        assert done.code == 0, done.err
    ingest(kubothek, project, (1, 180), (2, 90), (3, 300))
    return project


def ingest(kubothek: Kubothek, project: Path, *planes: tuple[int, int]) -> None:
    rows = "".join(f"2026-11-22 10:00:00,{number},{seats}\n" for number, seats in planes)
    (project / "planes.csv").write_text(f"event_time,id,seats\n{rows}")
    done = kubothek("ingest", *AT, "planes", "planes.csv")
    assert done.code == 0, done.err


def ids(project: Path, dataset: str) -> list[int]:
    lake = lake_door.open((project / "store").as_uri())
    return [row["id"] for row in lake.sql(f"SELECT id FROM {dataset} ORDER BY id").read_all().to_pylist()]


def test_derivative_pull_runs_alone_recursively_or_for_all(kubothek: Kubothek, imported: Path) -> None:
    alone = kubothek("pull", *AT, "largest")
    assert alone.out == "largest: its inputs have nothing new\n", alone.err
    pulled = kubothek("pull", *AT, "-r", "largest")
    assert pulled.out.splitlines() == [
        "planes: rows are pushed to it (kubothek ingest)",
        "large: version 2: 2 records of 3 that were new",
        "largest: version 2: 1 record of 2 that were new",
    ]
    assert (ids(imported, "large"), ids(imported, "largest")) == ([1, 3], [3])
    ingest(kubothek, imported, (1, 250), (2, 90))
    assert kubothek("pull", *AT, "--all").code == 0
    assert (ids(imported, "large"), ids(imported, "largest")) == ([1], [1])
    assert "nothing new" in kubothek("pull", *AT, "large").out
    assert kubothek("pull", *AT).code == 2
    assert "error: DatasetNotFound: " in kubothek("pull", *AT, "gone").err


def test_derivative_describe_shows_inputs_and_sql(kubothek: Kubothek, imported: Path) -> None:
    kubothek("pull", *AT, "--all")
    described = kubothek("describe", *AT, "large").out
    assert "  Made of:    x\n  Read:       x, 3 records, up to block f1620" in described
    assert "  SQL:        SELECT event_time, id, seats FROM x WHERE seats > 100\n" in described
    log = kubothek("log", *AT, "--odf", "large").out
    assert "derived from x" in log
    assert "offsets 0 to 1, x up to …" in log


def test_derivative_lineage_is_shown_upstream_downstream_and_per_record(kubothek: Kubothek, imported: Path) -> None:
    kubothek("pull", *AT, "--all")
    tree = kubothek("lineage", *AT, "large").out
    assert re.search(
        r"^large: derivative, 2 records.*\nmade of:\n└─ planes: root, 3 records.*\nused by:\n└─ largest", tree
    )
    assert "planes" not in kubothek("lineage", *AT, "--down", "large").out
    assert "largest" not in kubothek("lineage", *AT, "--up", "large").out
    found = json.loads(kubothek("lineage", *AT, "-o", "json", "large").out)
    assert [node["name"] for node in found["nodes"]] == ["planes", "large", "largest"]
    assert kubothek("lineage", *AT, "-o", "dot", "large").out.startswith("digraph lineage {")
    assert kubothek("lineage", *AT, "-o", "svg", "large").out.startswith("<svg ")
    told = kubothek("lineage", *AT, "--row", "1", "large").out
    made_of = r"\n└─ planes \(x\), record 2: .*seats 300"
    assert re.search(r"^large, record 1: .*id 3.*\nmade by block \d+, f1620\w+" + made_of, told), told
    assert json.loads(kubothek("lineage", *AT, "--row", "1", "-o", "json", "large").out)["exact"] is True
    assert kubothek("lineage", *AT, "--row", "1", "-o", "dot", "large").out.count(" -> ") == 1
    followed = kubothek("lineage", *AT, "--row", "0", "--recursive", "largest").out.splitlines()
    assert [line.partition(",")[0] for line in followed[2:]] == ["└─ large (x)", "   └─ planes (x)"]
    assert kubothek("lineage", *AT, "--row", "1", "--up", "large").code == 2
    assert kubothek("lineage", *AT, "--recursive", "large").code == 2
    assert "has no record at offset 9" in kubothek("lineage", *AT, "--row", "9", "large").err


def test_derivative_recursive_verify_names_first_corrupt_input(kubothek: Kubothek, imported: Path) -> None:
    kubothek("pull", *AT, "--all")
    assert kubothek("verify", *AT, "-r", "largest").out.startswith("largest: planes, large, largest: sound, ")
    (data, *_) = sorted((imported / "store" / ".kubothek" / "planes" / "odf" / "data").iterdir())
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    broken = kubothek("verify", *AT, "-r", "largest")
    assert broken.code == 1
    assert "error: Corrupt: largest: planes: " in broken.err
    assert kubothek("verify", *AT, "-r", "--as-of", "1", "largest").code == 2


def test_derivative_import_with_missing_input_fails(kubothek: Kubothek, project: Path) -> None:
    (project / "large.yaml").write_text(DERIVED % ("large", "org.example/planes", 100))
    done = kubothek("import", *AT, "large.yaml")
    assert done.code == 1
    assert "org.example/planes" in done.err


def test_derivative_snapshot_becomes_manifest_with_dataset_inputs(kubothek: Kubothek, project: Path) -> None:
    (project / "large.yaml").write_text(DERIVED % ("large", "org.example/planes", 100))
    written = kubothek("import", *AT, "--manifest", "large.yaml")
    assert written.code == 0, written.err
    dataset = parse(yaml.safe_load(written.out), local=True)
    assert isinstance(dataset, Dataset)
    assert dataset.spec.ledger is not None
    (event,) = dataset.spec.ledger.metadata
    assert event["inputs"] == [{"datasetRef": "planes", "alias": "x"}]


# --- manifests -------------------------------------------------------------------------------------------------------


def manifest(name: str, source: str, seats: int, **transform: object) -> str:
    spec = {
        "storeRef": {"name": "lake"},
        "ledger": {
            "kind": "Derivative",
            "metadata": [
                {
                    "kind": "SetTransform",
                    "inputs": [{"datasetRef": source, "alias": "x"}],
                    "transform": {
                        "kind": "Sql",
                        "engine": "duckdb",
                        "query": f"SELECT event_time, id, seats FROM x WHERE seats > {seats}",
                    },
                }
            ],
            "transform": transform,
        },
    }
    head = {"apiVersion": "kubothek.io/v1alpha1", "kind": "Dataset", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def write(project: Path, **files: str) -> None:
    (project / "manifests").mkdir()
    for name, text in files.items():
        (project / "manifests" / f"{name}.yaml").write_text(text)


ROOT = """
apiVersion: kubothek.io/v1alpha1
kind: Dataset
metadata: {name: planes}
spec:
  storeRef: {name: lake}
  ledger:
    metadata:
      - kind: SetPollingSource
        fetch: {kind: Url, url: "%s"}
        read: {kind: Csv, header: true, schema: ["event_time TIMESTAMP", "id BIGINT", "seats BIGINT"]}
        merge: {kind: Snapshot, primaryKey: [id]}
"""


def test_derivative_manifests_converge_in_one_run_and_second_adds_new_data(kubothek: Kubothek, project: Path) -> None:
    source = project / "planes.csv"
    source.write_text("event_time,id,seats\n2026-11-22 10:00:00,1,180\n2026-11-22 10:00:00,2,300\n")
    write(
        project,
        store=STORE,
        planes=ROOT % source.as_uri(),
        large=manifest("large", "planes", 100),
        largest=manifest("largest", "large", 200),
    )
    planned = kubothek("plan", "-f", "manifests").out
    assert "+ create    dataset/largest   creates its chain with 1 event\n" in planned
    assert "> commit    dataset/largest   consumes all records of its inputs\n" in planned
    ran = kubothek("run", "-f", "manifests")
    assert ran.code == 0, ran.out + ran.err
    assert (ids(project, "large"), ids(project, "largest")) == ([1, 2], [2])
    source.write_text("event_time,id,seats\n2026-11-22 10:00:00,1,280\n")
    assert "its inputs have nothing new" in kubothek("plan", "-f", "manifests").out
    assert kubothek("run", "-f", "manifests").code == 0
    assert (ids(project, "large"), ids(project, "largest")) == ([1], [1])
    assert "error: OwnedByAnother" in kubothek("pull", *AT, "large").err


def test_derivative_cycle_is_refused_by_lint_with_location(kubothek: Kubothek, project: Path) -> None:
    write(project, store=STORE, large=manifest("large", "largest", 1), largest=manifest("largest", "large", 1))
    refused = kubothek("lint", "-f", "manifests")
    assert refused.code == 1
    assert "Cycle: the Dataset would be derived from itself: large from largest from large" in refused.err
    assert "large.yaml:" in refused.err
    assert kubothek("run", "-f", "manifests").code == 1
    assert kubothek("plan", "-f", "manifests").code == 1


def test_derivative_plan_with_missing_input_is_blocked(kubothek: Kubothek, project: Path) -> None:
    write(project, store=STORE, large=manifest("large", "planes", 100))
    planned = kubothek("plan", "-f", "manifests")
    assert planned.code == 1
    assert "! blocked   dataset/large     InputMissing: there is no valid Dataset 'planes'" in planned.out
