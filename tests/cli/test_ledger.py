"""Ledgers on the command line: brought in, fed, looked at, taken out, and made true by manifests."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import kubothek as lake_door
from kubothek.api.dataset import Dataset
from kubothek.api.kinds import parse
from kubothek.odf import Multihash
from kubothek.odf.spec import plain_yaml
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log.ownership import Claim, take_claim
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, write
from tests.odf.vectors import GOLDEN

pytestmark = pytest.mark.slow

SNAPSHOT = """
kind: DatasetSnapshot
version: 1
content:
  name: org.example/planes
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Csv, header: true, schema: ["id BIGINT", "name STRING"]}
      merge: {kind: Ledger, primaryKey: [id]}
    - {kind: SetInfo, description: All planes}
"""
RESOURCES = """
$schema: https://opendatafabric.org/schemas/source/v1alpha1/Source
headers: {name: planes.http}
spec:
  ingress: {kind: RestEndpoint, buffer: {kind: Memory, bufferSize: 1000, overflowPolicy: Reject}}
  read: {kind: NdJson, schema: {fields: [{name: id, type: Int64}, {name: name, type: String}]}}
---
$schema: https://opendatafabric.org/schemas/dataset/v1alpha1/Dataset
headers: {name: planes, account: acme, labels: {env: prod}}
spec:
  kind: Root
  metadata: [{kind: SetInfo, description: All planes}]
"""
MARKED = """
$schema: Dataset
headers:
  name: planes
  labels: {env: prod, opendatafabric.org/tier: "1", "https://example.org/schemas/v1/Kind": Root, num: 1, words: a b}
  annotations: {repo: {url: "https://example.org", commits: [1, 2.5, null]}, owner: "https://example.org/me", big: %s}
spec: {kind: Root, metadata: []}
---
$schema: Source
headers: {name: pushed, labels: {a: b}, annotations: {n: 123456789012345678901234567890}}
spec: {read: {kind: NdJson}}
"""
POLLED = """
  ledger:
    envSecretRef: {name: folder}
    metadata:
      - kind: SetPollingSource
        fetch: {kind: Url, url: "%s"}
        read: {kind: Csv, header: true, schema: ["id BIGINT", "name STRING"]}
        merge: {kind: Snapshot, primaryKey: [id]}
"""


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where private keys go."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def snapshot(project: Path) -> Path:
    (project / "planes.yaml").write_text(SNAPSHOT)
    return project / "planes.yaml"


def names(project: Path, dataset: str = "planes") -> list[str]:
    lake = lake_door.open((project / "store").as_uri())
    return [row["name"] for row in lake.sql(f"SELECT name FROM {dataset} ORDER BY id").read_all().to_pylist()]


def imported(kubothek: Kubothek, snapshot: Path) -> None:
    done = kubothek("import", "--store", "file:store", snapshot)
    assert done.code == 0, done.err


def test_ledger_import_creates_dataset_that_ingests_files_and_pipes(
    kubothek: Kubothek, project: Path, snapshot: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = kubothek("import", "--store", "file:store", snapshot)
    assert done.out.startswith("planes: created with 3 blocks, as did:odf:fed01"), done.err
    (key,) = state_home.rglob("ed25519")
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)
    (project / "a.csv").write_text("id,name\n1,Airbus\n2,Boeing\n")
    assert kubothek("ingest", "--store", "file:store", "planes", "a.csv").out == "planes: version 2: 2 records\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": 3, "name": "Cessna"}\n')))
    piped = kubothek("ingest", "--store", "file:store", "planes", "--stdin", "--input-format", "ndjson")
    assert piped.out == "planes: version 3: 1 record\n", piped.err
    assert kubothek("ingest", "--store", "file:store", "planes", "a.csv").out == "planes: nothing new; version 3\n"
    assert names(project) == ["Airbus", "Boeing", "Cessna"]
    bad = project / "bad.csv"
    bad.write_text("id,name\n4,x\nno,y\n")
    failed = kubothek("ingest", "--store", "file:store", "planes", bad)
    assert failed.code == 1
    assert all(told in failed.err for told in ("bad.csv", "'id'", "row 2")), failed.err
    assert kubothek("ingest", "--store", "file:store", "planes", "a.csv", "--source-name", "x").code == 1
    assert kubothek("ingest", "--store", "file:store", "planes").code == 2


def test_ledger_import_as_manifest_keeps_events(kubothek: Kubothek, snapshot: Path) -> None:
    done = kubothek("import", "--manifest", snapshot, "--partition-on", "id")
    manifest: dict[str, Any] = yaml.safe_load(done.out)
    dataset = parse(manifest)
    assert isinstance(dataset, Dataset)
    assert dataset.spec.ledger is not None
    assert (dataset.name, dataset.spec.table.partition_on) == ("planes", ("id",))
    assert list(dataset.spec.ledger.metadata) == yaml.safe_load(SNAPSHOT)["content"]["metadata"]


def test_resources_become_a_dataset_and_come_back(kubothek: Kubothek, project: Path) -> None:
    (project / "r.yaml").write_text(RESOURCES)
    imported(kubothek, project / "r.yaml")
    (project / "a.ndjson").write_text('{"id": 1, "name": "Airbus"}\n')
    pushed = kubothek("ingest", "--store", "file:store", "planes", "a.ndjson", "--source-name", "planes.http")
    assert pushed.code == 0, pushed.err
    shown = kubothek("export", "--store", "file:store", "planes", "--resources")
    assert shown.code == 0, shown.err
    dataset, source = yaml.safe_load_all(shown.out)
    assert [event["kind"] for event in dataset["spec"]["metadata"]] == ["SetInfo", "SetDataSchema"]
    assert source["headers"] == {"name": "planes.http"}
    assert source["spec"]["read"]["schema"]["fields"][0] == {"name": "id", "type": {"kind": "Int64"}}
    (project / "again.yaml").write_text(shown.out)
    again = kubothek("import", "--store", "file:store", project / "again.yaml", "--name", "again")
    assert again.code == 0, again.err
    assert kubothek("export", "--store", "file:store", "planes").code == 2
    assert kubothek("export", "--store", "file:store", "planes", "out", "--resources").code == 2


def test_resources_become_a_manifest_for_a_cluster(kubothek: Kubothek, project: Path) -> None:
    (project / "r.yaml").write_text(RESOURCES)
    done = kubothek("import", "--manifest", project / "r.yaml")
    manifest: dict[str, Any] = yaml.safe_load(done.out)
    dataset = parse(manifest)
    assert isinstance(dataset, Dataset)
    assert dataset.spec.ledger is not None
    assert [event["kind"] for event in dataset.spec.ledger.metadata] == ["SetInfo", "AddPushSource"]


def test_labels_and_annotations_come_back_with_the_resources(kubothek: Kubothek, project: Path) -> None:
    resources = MARKED % "x"
    (project / "r.yaml").write_text(resources)
    imported(kubothek, project / "r.yaml")
    (project / "a.ndjson").write_text('{"id": 1}\n')
    assert kubothek("ingest", "--store", "file:store", "planes", "a.ndjson", "--source-name", "pushed").code == 0
    shown = kubothek("export", "--store", "file:store", "planes", "--resources")
    found = {each["headers"]["name"]: each["headers"] for each in plain_yaml.load_all(shown.out)}
    assert found == {each["headers"]["name"]: each["headers"] for each in plain_yaml.load_all(resources)}


def test_labels_that_kubernetes_can_have_are_in_the_manifest(kubothek: Kubothek, project: Path) -> None:
    (project / "r.yaml").write_text(MARKED % ("x" * (256 << 10)))
    done = kubothek("import", "--manifest", project / "r.yaml")
    manifest = yaml.safe_load(done.out)
    assert manifest["metadata"] == {
        "name": "planes",
        "labels": {"env": "prod", "opendatafabric.org/tier": "1"},
        "annotations": {"owner": "https://example.org/me"},
    }
    named = ["label 'https://example.org/schemas/v1/Kind'", "label 'num'", "label 'words'"]
    named += ["annotation 'repo'", "annotation 'big'", "label 'a' of the Source pushed", "annotation 'n' of the Source"]
    assert len(done.err.splitlines()) == len(named), done.err
    assert all(f"not in the manifest: {each}" in done.err for each in named), done.err


def test_ledger_import_of_invalid_snapshot_names_location(kubothek: Kubothek, snapshot: Path) -> None:
    snapshot.write_text(SNAPSHOT.replace("sourceName", "source"))
    done = kubothek("import", "--store", "file:store", snapshot)
    assert done.code == 1
    assert "planes.yaml: DatasetSnapshot.metadata[0] has the unknown field 'source'" in done.err


def test_ledger_log_shows_chain_by_block(kubothek: Kubothek, project: Path, snapshot: Path) -> None:
    imported(kubothek, snapshot)
    (project / "a.csv").write_text("id,name\n1,Airbus\n2,Boeing\n")
    kubothek("ingest", "--store", "file:store", "planes", "a.csv", "--event-time", "2026-11-21")
    table = kubothek("log", "--odf", "--store", "file:store", "planes").out.splitlines()
    assert [line.split()[2] for line in table[1:]] == ["AddData", "SetDataSchema", "SetInfo", "AddPushSource", "Seed"]
    assert "2026-11-21T00:00:00Z" in table[1]
    assert "offsets 0 to 1" in table[1]
    shown = kubothek("log", "--odf", "--store", "file:store", "planes", "-o", "yaml", "-n", "2").out
    blocks = [document for document in yaml.safe_load_all(shown) if document]
    assert [block["content"]["event"]["kind"] for block in blocks] == ["AddData", "SetDataSchema"]
    assert [block["content"]["sequenceNumber"] for block in blocks] == [4, 3]


def test_ledger_tail_shows_corrections(kubothek: Kubothek, project: Path, snapshot: Path) -> None:
    snapshot.write_text(SNAPSHOT.replace("Ledger, primaryKey", "Snapshot, primaryKey"))
    imported(kubothek, snapshot)
    at = ("--store", "file:store", "planes")
    assert kubothek("tail", *at).out == "planes: no record yet\n"
    for content in ("1,Airbus\n2,Boing\n3,Cessna\n", "1,Airbus\n2,Boeing\n"):
        (project / "a.csv").write_text(f"id,name\n{content}")
        assert kubothek("ingest", *at, "a.csv").code == 0
    records = json.loads(kubothek("tail", *at, "-n", "4", "-o", "json").out)
    assert [(each["offset"], each["op"], each["id"], each["name"]) for each in records] == [
        (2, "+A", 3, "Cessna"),
        (3, "-C", 2, "Boing"),
        (4, "+C", 2, "Boeing"),
        (5, "-R", 3, "Cessna"),
    ]


def test_ledger_query_by_system_time_and_event_time_returns_matching_rows(
    kubothek: Kubothek, project: Path, snapshot: Path
) -> None:
    imported(kubothek, snapshot)
    at = ("--store", "file:store", "planes")
    for day, name in ((20, "Airbus"), (22, "Boeing"), (21, "Cessna")):
        (project / "a.csv").write_text(f"id,name\n{day},{name}\n")
        assert kubothek("ingest", *at, "a.csv", "--event-time", f"2026-11-{day}").code == 0
    asked = ("query", "--store", "file:store", "-o", "csv", "SELECT name FROM planes ORDER BY id")

    def answer(*options: str) -> list[str]:
        done = kubothek(*asked, *options)
        assert done.code == 0, done.err
        return done.out.replace('"', "").split()[1:]

    assert answer("--as-at", "2026-11-21") == ["Airbus", "Cessna"]
    assert answer("--as-at", "2026-11-21", "--as-of", "3") == ["Airbus"]
    blocks = kubothek("log", "--odf", *at).out.splitlines()
    block = next(word for word in blocks[2].split() if word.startswith("f1620"))
    assert answer("--as-of", block) == ["Airbus", "Boeing"]
    assert "VersionNotFound" in kubothek(*asked, "--as-of", block[:-1]).err
    lake_door.open((project / "store").as_uri()).create_dataset("table", schema={"name": "string", "id": "int64"})
    refused = kubothek("query", "--store", "file:store", 'SELECT * FROM "table"', "--as-at", "2026-11-21")
    assert (refused.code, "has no ledger" in refused.err) == (1, True)


def test_ledger_chain_can_be_compacted_reset_and_rebuilt_into_table(
    kubothek: Kubothek, project: Path, snapshot: Path
) -> None:
    imported(kubothek, snapshot)
    at = ("--store", "file:store", "planes")
    for number in range(3):
        (project / "a.csv").write_text(f"id,name\n{number},name-{number}\n")
        assert kubothek("ingest", *at, "a.csv").code == 0
    block = next(word for word in kubothek("log", "--odf", *at).out.splitlines()[3].split() if word.startswith("f1620"))
    assert kubothek("chain", "reset", *at, block, "--yes").out.endswith(f"5 blocks, up to {block}\n")
    assert names(project) == ["name-0"]
    assert kubothek("ingest", *at, "a.csv").code == 0
    assert kubothek("chain", "compact", *at, "--yes").out.endswith("6 blocks became 5\n")
    assert kubothek("heal", *at, "--restore-view").code == 0
    assert names(project) == ["name-0", "name-2"]


@pytest.mark.parametrize("owned", [False, True])
def test_ledger_heal_keep_own_ends_divergence(kubothek: Kubothek, project: Path, snapshot: Path, owned: bool) -> None:
    imported(kubothek, snapshot)
    at = ("--store", "file:store", "planes")
    (project / "a.csv").write_text("id,name\n1,Airbus\n")
    assert kubothek("ingest", *at, "a.csv").code == 0
    (reference,) = project.glob("store/**/refs/head")
    own = reference.read_text()
    reference.write_text("f1620" + 64 * "0")
    refused = kubothek("ingest", *at, "a.csv")
    assert (refused.code, "kubothek heal planes --keep-own" in refused.err) == (1, True)
    if owned:
        store = open_store(StoreConfig((project / "store").as_uri()))
        take_claim(store, "planes", Claim("cluster/ns/planes", "1"))
    done = kubothek("heal", *at, "--keep-own")
    assert (done.code, done.out) == (0, f"planes: refs/head names block {own}, the last one of this dataset\n"), (
        done.err
    )
    assert reference.read_text() == own
    assert kubothek("heal", *at, "--keep-own", "--restore-view").code == 0
    assert names(project) == ["Airbus"]
    lake_door.open((project / "store").as_uri()).create_dataset("table", schema={"name": "string"})
    refused = kubothek("heal", "--store", "file:store", "table", "--keep-own")
    assert (refused.code, "NotALedger" in refused.err) == (1, True)


def test_ledger_watermark_is_set_and_never_decreases(kubothek: Kubothek, snapshot: Path) -> None:
    imported(kubothek, snapshot)
    at = ("set-watermark", "--store", "file:store", "planes")
    assert kubothek(*at, "2026-11-21").out == "planes: the watermark is 2026-11-21T00:00:00Z\n"
    assert kubothek(*at, "2026-11-21T00:00:00Z").out == "planes: the watermark was 2026-11-21T00:00:00Z\n"
    back = kubothek(*at, "2026-11-20")
    assert (back.code, "never goes back" in back.err) == (1, True)
    assert kubothek(*at, "yesterday").code == 2


def test_ledger_export_as_directory_can_be_imported(kubothek: Kubothek, project: Path, snapshot: Path) -> None:
    imported(kubothek, snapshot)
    (project / "a.csv").write_text("id,name\n1,Airbus\n2,Boeing\n")
    kubothek("ingest", "--store", "file:store", "planes", "a.csv")
    done = kubothek("export", "--store", "file:store", "planes", "out")
    assert done.out.startswith("planes: 5 blocks and 1 data file written"), done.err
    shown = sorted(path.name for path in (project / "out").iterdir() if not path.name.startswith("."))
    assert shown == ["blocks", "data", "refs"]
    assert kubothek("export", "--store", "file:store", "planes", "out").out.startswith("planes: 0 blocks and 0 data")
    back = kubothek("import", "--store", "file:store", "out", "--name", "copy")
    assert back.out == "copy: 5 blocks, 2 records, verified\n", back.err
    assert names(project, "copy") == ["Airbus", "Boeing"]
    (slice_,) = (project / "out" / "data").iterdir()
    slice_.write_bytes(slice_.read_bytes()[:-1] + b"x")
    tampered = kubothek("import", "--store", "file:store", "out", "--name", "bad")
    assert (tampered.code, "error: Corrupt: " in tampered.err) == (1, True)
    assert "bad" not in lake_door.open((project / "store").as_uri()).datasets()


def test_ledger_plan_reports_that_run_starts_no_container(kubothek: Kubothek, project: Path) -> None:
    url, container = 'kind: Url, url: "%s"', "kind: Container, image: planes, command: [planes]"
    source = POLLED.replace(url, container)
    assert source != POLLED
    manifest = f"""---
apiVersion: kubothek.io/v1alpha1
kind: Dataset
metadata: {{name: planes}}
spec:
  storeRef: {{name: lake}}{source}
"""
    write(project, STORE, manifest)
    (project / "store").mkdir(exist_ok=True)
    assert "SourceRefused: its source is a container" in kubothek("plan", "-f", "manifests").out


@pytest.mark.slow
def test_ledger_run_polls_once_per_run_and_describe_shows_chain(kubothek: Kubothek, project: Path) -> None:
    file = project / "planes.csv"
    file.write_text("id,name\n1,Airbus\n2,Boing\n")
    manifest = f"""---
apiVersion: kubothek.io/v1alpha1
kind: Dataset
metadata: {{name: planes}}
spec:
  storeRef: {{name: lake}}{POLLED % f"{project.as_uri()}/${{{{ env.FILE }}}}"}
---
apiVersion: v1
kind: Secret
metadata: {{name: folder}}
stringData: {{FILE: planes.csv}}
"""
    write(project, STORE, manifest)
    (project / "store").mkdir(exist_ok=True)
    assert "creates its chain" in kubothek("plan", "-f", "manifests").out
    done = kubothek("run", "-f", "manifests")
    assert done.code == 0, done.out + done.err
    assert names(project) == ["Airbus", "Boing"]
    file.write_text("id,name\n1,Airbus\n2,Boeing\n")
    assert "its source is polled" in kubothek("plan", "-f", "manifests").out
    assert kubothek("run", "-f", "manifests").code == 0
    assert names(project) == ["Airbus", "Boeing"]
    told = kubothek("describe", "--store", "file:store", "planes").out
    assert "Chain:" in told
    assert "Polls:" in told
    ingested = kubothek("poll", "--store", "file:store", "planes")
    assert (ingested.code, "OwnedByAnother" in ingested.err) == (1, True), "it is the Dataset's to write"


def test_ledger_import_of_newer_version_is_not_reported_as_corrupt(kubothek: Kubothek, project: Path) -> None:
    chain = GOLDEN / "newest" / "in1-odf-schema"
    found = kubothek("import", "--store", "file:store", chain, "--name", "newest")
    assert found.code == 0
    newer = Path(shutil.copytree(chain, project / "newer"))
    head = (newer / "refs" / "head").read_text()
    data = (newer / "blocks" / head).read_bytes().replace((3).to_bytes(4, "little"), (4).to_bytes(4, "little"), 1)
    named = str(Multihash.sha3(data))
    (newer / "blocks" / named).write_bytes(data)
    (newer / "refs" / "head").write_text(named)
    found = kubothek("import", "--store", "file:store", newer, "--name", "newer")
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("error: UnsupportedVersion: ")
    assert "written by a newer version of Open Data Fabric" in found.err
