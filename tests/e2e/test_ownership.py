"""One uuid has one owner: another namespace, or another cluster, may read and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e import manifests
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster


def test_second_claimant_of_dataset_changes_nothing(
    workspace: Callable[..., Workspace], other_cluster: Workspace
) -> None:
    first = workspace("owner-a")
    second = workspace("owner-b", prefix="owner-a")
    for claimant in (first, second, other_cluster):
        claimant.prepare()
    first.put_rows("sources/first.csv", first=0)
    first.put_rows("sources/second.csv", first=100)
    first.kubectl.apply(manifests.dataset("shared"), manifests.commit("first", "shared", "sources/first.csv"))
    first.kubectl.wait_for("Ready", "kcm/first")
    before = {key: first.read(key) for key in first.keys() if "/jobs/" not in key}

    for claimant in (second, other_cluster):
        claimant.kubectl.apply(manifests.dataset("shared"), manifests.commit("second", "shared", "sources/second.csv"))
        refused = claimant.kubectl.wait_for_reason("kds", "shared", "OwnedByAnother")
        assert f"/{first.kubectl.namespace}/shared" in refused["message"]
        waiting = claimant.kubectl.wait_for_reason("kcm", "second", "DependencyNotReady")
        assert "OwnedByAnother" in waiting["message"]

    assert {key: first.read(key) for key in first.keys() if "/jobs/" not in key} == before
