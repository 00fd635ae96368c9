"""The operator of an earlier commit is upgraded while it works."""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, names
from tests.e2e.operators import Operator
from tests.e2e.workspace import Workspace
from tests.faultproxy import Hold

pytestmark = pytest.mark.cluster


def test_commit_in_flight_during_upgrade_is_applied_once(upgraded: Workspace, former: Operator) -> None:
    """A job of the former image swaps the head after the operator that started it has gone."""
    former.install(replicas=1)
    kubectl = upgraded.kubectl
    for number, name in enumerate(("before", "during", "after")):
        upgraded.put_rows(f"sources/{name}.csv", first=10 * number)
    with upgraded.spoiled() as proxy:
        kubectl.apply(manifests.dataset("events", ["p"]), manifests.commit("before", "events", "sources/before.csv"))
        kubectl.wait_for("Ready", "kcm/before")
        held = proxy.inject(Hold(), method="PUT", path="events.by-dataset-metadata.json")
        kubectl.apply(manifests.commit("during", "events", "sources/during.csv"))
        assert held.arrived.wait(PATIENCE), kubectl.situation("kcm/during")
        old = former.pods()
        former.upgrade()
        assert not {*former.pods()} & {*old}
        held.release()
        kubectl.wait_for("Ready", "kcm/during")
        assert names(kubectl.items("pods", "kubothek.io/name=during")) == ["during-1"], "no second attempt"
        kubectl.apply(manifests.commit("after", "events", "sources/after.csv"))
        kubectl.wait_for("Ready", "kcm/after")

    assert upgraded.column("events") == list(range(30))
    applied = [id_ for id_ in upgraded.commit_ids("events") if id_.startswith(f"{kubectl.namespace}/")]
    assert applied == [f"{kubectl.namespace}/{name}" for name in ("before", "during", "after")]
