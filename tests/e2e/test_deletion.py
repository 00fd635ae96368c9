"""Deleting a Dataset: what its jobs may still do, how its rows come back, and how a namespace goes away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubothek.errors import DatasetNotFound
from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy, Hold

pytestmark = pytest.mark.cluster


def test_job_of_deleted_dataset_commits_nothing_and_restore_recovers_rows(deletion: Workspace) -> None:
    kubectl = deletion.kubectl
    with deletion.spoiled() as proxy:
        deletion.put_rows("sources/kept.csv", first=0)
        deletion.put_rows("sources/late.csv", first=100)
        kubectl.apply(
            manifests.dataset("mortal", deletionPolicy="Delete"),
            manifests.commit("kept", "mortal", "sources/kept.csv"),
        )
        kubectl.wait_for("Ready", "kcm/kept")

        held = proxy.inject(Hold(), method="PUT", path="mortal.by-dataset-metadata.json")
        kubectl.apply(manifests.commit("late", "mortal", "sources/late.csv"))
        assert held.arrived.wait(PATIENCE), kubectl.situation("kcm/late")
        kubectl.delete("kds", "mortal")
        tombstone = deletion.head("mortal")
        held.release()
        pod = eventually(
            lambda: (found := kubectl.find("pod", "late-1")) and found["status"]["phase"] == "Failed" and found,
            "the late job to end",
        )
        assert "DatasetDeleted" in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
        assert deletion.head("mortal") == tombstone
        with pytest.raises(DatasetNotFound):
            deletion.column("mortal")

        kubectl.delete("kcm", "late")
        kubectl.apply(manifests.dataset("mortal", deletionPolicy="Delete", restore=True))
        kubectl.wait_for("Ready", "kds/mortal")
        assert deletion.column("mortal") == list(range(10))


def test_namespace_deletion_completes_while_store_is_down(workspace: Callable[..., Workspace]) -> None:
    doomed = workspace("doomed")
    with FaultProxy(doomed.cluster.s3_host_endpoint, host=doomed.cluster.node_ip) as proxy:
        doomed.prepare(endpoint=proxy.endpoint)
        doomed.put_rows("sources/rows.csv", first=0)
        doomed.kubectl.apply(
            manifests.dataset("stays", deletionPolicy="Delete"),
            manifests.commit("rows", "stays", "sources/rows.csv"),
        )
        doomed.kubectl.wait_for("Ready", "kcm/rows")
    doomed.kubectl("delete", "namespace", "doomed", f"--timeout={PATIENCE}s")
    assert doomed.column("stays") == list(range(10))
