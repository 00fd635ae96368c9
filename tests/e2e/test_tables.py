"""A table's life on the cluster: every operation, files that land, a query that keeps its result."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.odf import Layout, verify
from tests.e2e import manifests
from tests.e2e.conftest import JOB_IMAGE
from tests.e2e.kubectl import Manifest, eventually
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster


def test_each_operation_is_one_commit_and_rollback_restores_rows(tables: Workspace) -> None:
    tables.prepare()
    tables.put_rows("sources/first.csv", first=0)
    tables.put_rows("sources/even.csv", first=100, count=1)
    kubectl = tables.kubectl
    kubectl.apply(
        manifests.dataset("life", table={"partitionOn": ["p"], "sortBy": ["x"], "indices": [{"column": "text"}]}),
        manifests.commit("add", "life", "sources/first.csv"),
        _change("replace", "Replace", "add", source={"paths": ["sources/even.csv"], "format": "CSV"}),
        _change("delete", "Delete", "replace", where="text = 'row 3'", rowLevel=True),
        _change("update", "Update", "delete", where="x = 5", set={"x": "55"}, rowLevel=True),
    )
    kubectl.wait_for("Ready", *(f"kcm/{name}" for name in ("add", "replace", "delete", "update")))
    assert tables.column("life") == [1, 7, 9, 55, 100]
    found = tables.lake.dataset("life").scan(columns=["x"], where="text = 'row 5'").read_all()
    assert found.column("x").to_pylist() == [55]

    first = kubectl.get("kcm", "add")["status"]["version"]
    kubectl.apply(_change("undo", "Rollback", "update", toVersion=first))
    kubectl.wait_for("Ready", "kcm/undo")
    assert tables.column("life") == list(range(10))


def test_ingested_files_are_committed_once_and_query_result_is_stored(tables: Workspace) -> None:
    tables.prepare()
    tables.put_rows("landing/a.csv", first=0)
    kubectl = tables.kubectl
    source = {"name": "landing", "prefix": "landing/", "format": "CSV", "interval": "10s"}
    kubectl.apply(manifests.dataset("landed", sources=[source]))
    _wait_for_rows(tables, 10)
    tables.put_rows("landing/b.csv", first=10)
    _wait_for_rows(tables, 20)
    assert tables.column("landed") == list(range(20))

    kubectl.apply(
        manifests.query("large", "SELECT x FROM landed WHERE x >= 15", location={"path": "results/large"}),
    )
    kubectl.wait_for("Ready", "queries.kubothek.io/large")
    (key,) = tables.keys("results/large/")
    result = pq.read_table(pa.BufferReader(tables.read(key)))
    assert result.sort_by("x").to_pydict() == {"x": list(range(15, 20))}


def test_ledger_is_created_polled_and_verified(tables: Workspace) -> None:
    tables.prepare()
    tables.put_rows("incoming/a.csv", first=0)
    kubectl = tables.kubectl
    source = {
        "kind": "SetPollingSource",
        "fetch": {"kind": "FilesGlob", "path": f"{tables.url}/incoming/*.csv", "order": "ByName"},
        "read": {"kind": "Csv", "header": True, "schema": ["x BIGINT", "p BIGINT", "text STRING"]},
        "merge": {"kind": "Ledger", "primaryKey": ["x"]},
    }
    kubectl.apply(manifests.dataset("chained", partition_on=["p"], ledger={"metadata": [source]}))
    _wait_for_rows(tables, 10, "chained")
    tables.put_rows("incoming/b.csv", first=5)
    kubectl("annotate", "kds", "chained", "kubothek.io/requestedAt=now")
    _wait_for_rows(tables, 15, "chained")
    assert tables.column("chained") == list(range(15))
    assert kubectl.get("secret", "chained-identity")["data"].keys() == {"ed25519"}
    chain = kubectl.get("kds", "chained")["status"]["ledger"]
    assert (chain["records"], chain["id"][:13]) == (15, "did:odf:fed01")
    verdict = verify(tables.lake.store, Layout(".kubothek/chained/odf/"))
    assert verdict.sound, verdict.first


FETCH = """
import os, pathlib
first = int(os.environ.get("ODF_ETAG", 0))
forbidden = ["/var/run/secrets/kubernetes.io/serviceaccount", "/var/run/kubothek/credentials", "/etc/kubothek/job"]
seen = [path for path in forbidden if os.path.exists(path)] + [os.environ["KEY"]]
print("x,p,text", *(f"{x},{x % 2},{' '.join(seen)}" for x in range(first, first + 5)), sep="\\n")
pathlib.Path(os.environ["ODF_NEW_ETAG_PATH"]).write_text(str(first + 5))
if first == 0:
    pathlib.Path(os.environ["ODF_NEW_HAS_MORE_DATA_PATH"]).touch()
if first == 10:
    raise SystemExit("there is no such plane")
"""
"""The program of a source: five rows a run, two runs in a row, and the third breaks."""


def test_ledger_source_container_is_isolated_and_its_command_is_quoted(tables: Workspace) -> None:
    tables.prepare()
    kubectl = tables.kubectl
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "feed"}, "stringData": {"KEY": "it's $HOME"}}
    )
    fetch = {
        "kind": "Container",
        "image": f"{JOB_IMAGE}:dev",
        "command": ["python3", "-c"],
        "args": [FETCH],
        "env": [{"name": "KEY"}],
    }
    source = {
        "kind": "SetPollingSource",
        "fetch": fetch,
        "read": {"kind": "Csv", "header": True, "schema": ["x BIGINT", "p BIGINT", "text STRING"]},
        "merge": {"kind": "Ledger", "primaryKey": ["x"]},
    }
    ledger = {"metadata": [source], "envSecretRef": {"name": "feed"}}
    kubectl.apply(manifests.dataset("fed", partition_on=["p"], ledger=ledger))
    _wait_for_rows(tables, 10, "fed")
    rows = tables.lake.dataset("fed").scan(columns=["x", "text"]).read_all()
    assert set(rows.column("text").to_pylist()) == {"it's $HOME"}
    kubectl.wait_for("Ready", "kds/fed")
    kubectl("annotate", "kds", "fed", "kubothek.io/requestedAt=now")
    eventually(lambda: "there is no such plane" in str(kubectl.get("kds", "fed")["status"]), "the failure to be told")
    assert tables.column("fed") == list(range(10))
    elsewhere = {**source, "fetch": {**fetch, "image": "docker.io/kubothek/kubothek-evil:dev"}}
    kubectl.apply(manifests.dataset("fed", partition_on=["p"], ledger={**ledger, "metadata": [elsewhere]}))
    eventually(lambda: "ImageNotAllowed" in str(kubectl.get("kds", "fed")["status"]), "the image to be refused")


def test_verification_finds_changed_byte_and_marks_dataset_corrupt(tables: Workspace) -> None:
    tables.prepare()
    tables.put_rows("sources/kept.csv", first=0)
    kubectl = tables.kubectl
    kubectl.apply(manifests.dataset("kept"), manifests.commit("keep", "kept", "sources/kept.csv"))
    kubectl.wait_for("Ready", "kcm/keep")
    kubectl.apply(manifests.verification("before", "kept"))
    kubectl.wait_for("Complete", "kver/before")
    assert kubectl.get("kver", "before")["status"]["verdict"] == "Sound"
    (key,) = [key for key in tables.keys("kept/table/") if key.endswith(".parquet")]
    whole = tables.read(key)
    tables.put(key, whole[:-9] + b"x" + whole[-8:])
    kubectl.apply(manifests.verification("after", "kept"))
    kubectl.wait_for("Failed", "kver/after")
    first = kubectl.get("kver", "after")["status"]["first"]
    assert (first["code"], first["object"]) == ("FileHash", key)
    kubectl("annotate", "kos", "lake", "kubothek.io/requestedAt=corrupt", "--overwrite")
    kubectl.wait_for("Corrupt", "kds/kept")


def _change(name: str, operation: str, after: str, **spec: Any) -> Manifest:
    change = manifests.commit(name, "life", operation=operation, dependsOn=[{"name": after}])
    del change["spec"]["source"]
    change["spec"] |= spec
    return change


def _wait_for_rows(tables: Workspace, rows: int, dataset: str = "landed") -> None:
    eventually(lambda: tables.kubectl.get("kds", dataset)["status"].get("rows") == rows, f"{rows} rows to be taken")
