"""Skipping metadata on the cluster: of a Dataset, with keys from a Secret, and of files that nobody owns."""

from __future__ import annotations

import base64
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.table.expressions import parse
from kubothek.table.scan.plan import SKIPPING_STEP, plan
from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, Manifest, eventually
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster

INDICES = [{"type": "MinMax", "column": "x"}, {"type": "Prefix", "column": "text", "length": 6}]


def test_skipping_index_of_dataset_is_built_by_job_and_kept_by_commits(skipping: Workspace) -> None:
    skipping.prepare()
    kubectl = skipping.kubectl
    for number in range(3):
        skipping.put_rows(f"sources/{number}.csv", first=100 * number)
    kubectl.apply(
        manifests.dataset("trips"),
        *(manifests.commit(f"add-{number}", "trips", f"sources/{number}.csv") for number in range(2)),
    )
    kubectl.wait_for("Ready", "kcm/add-0", "kcm/add-1")
    kubectl.apply(manifests.dataset("trips", table={"skipping": {"indices": INDICES}}))
    eventually(lambda: _described(skipping) == 2, "two files to be described")
    kubectl.apply(
        manifests.commit("add-2", "trips", "sources/2.csv"),
        manifests.query("one", "SELECT x FROM trips WHERE x = 105", location={"path": "results/one"}),
    )
    kubectl.wait_for("Ready", "kcm/add-2", "queries.kubothek.io/one")
    snapshot = skipping.lake.dataset("trips").snapshot()
    steps = dict(plan(skipping.lake.store, snapshot, parse("x = 205")).steps)
    assert steps[SKIPPING_STEP] == 1, "the commit has described its file"

    def achieved() -> bool:
        found = kubectl.get("kds", "trips")["status"].get("skippingAchieved", {})
        return bool(found.get("queries") == 1 and found["skipped"] >= 1)

    eventually(achieved, "the Dataset to sum up what the query skipped")


def test_skipping_metadata_is_encrypted_and_deleted_with_resource(
    skipping: Workspace,
) -> None:
    skipping.prepare()
    kubectl = skipping.kubectl
    for number in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": range(100 * number, 100 * number + 100)}), sink)
        skipping.put(f"landing/{number}.parquet", sink.getvalue().to_pybytes())
    keys = {label: base64.b64encode(os.urandom(16)).decode() for label in ("footer", "pay")}
    secret: Manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": keys}
    store = manifests.object_store(skipping.url, skipping.cluster.s3_endpoint)
    store["spec"]["keysSecretRef"] = {"name": "keys"}
    kubectl.apply(secret, store, _index())
    kubectl.wait_for("Ready", "ksi/files")
    status = kubectl.get("ksi", "files")["status"]
    assert (status["files"], status["described"]) == (3, 3)
    metadata = skipping.keys(status["location"])
    assert {skipping.read(key)[:4] for key in metadata} == {b"PARE"}

    kubectl.apply(manifests.query("found", "SELECT id FROM files WHERE id = 150", location={"path": "results/found"}))
    kubectl.wait_for("Ready", "queries.kubothek.io/found")
    (read,) = kubectl.get("queries.kubothek.io", "found")["status"]["reads"]
    assert (read["considered"], read["skipped"], read["files"]) == (3, 2, 1)
    lake = skipping.lake  # without keys: the same row, from all files
    assert lake.sql("SELECT id FROM files WHERE id = 150").read_all().to_pylist() == [{"id": 150}]

    kubectl("delete", "ksi", "files", f"--timeout={PATIENCE}s")
    assert skipping.keys(".kubothek/++plain/") == []
    assert len(skipping.keys("landing/")) == 3


def _described(workspace: Workspace) -> int:
    status = workspace.kubectl.get("kds", "trips").get("status", {})
    return int(status.get("skipping", {}).get("files", 0))


def _index() -> Manifest:
    index = {"type": "MinMax", "column": "id", "key": "pay"}
    spec = {
        "location": {"storeRef": {"name": "lake"}, "prefix": "landing"},
        "skipping": {"indices": [index], "footerKey": "footer"},
        "deletionPolicy": "Delete",
    }
    return manifests.resource("SkippingIndex", "files", spec)
