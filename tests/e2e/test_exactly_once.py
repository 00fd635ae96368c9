"""Whatever happens to pods, manifests and clusters: every Commit is applied exactly once."""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, eventually, names
from tests.e2e.workspace import Workspace
from tests.faultproxy import Hold, Silence

pytestmark = pytest.mark.cluster

# Where the driver pod dies: the request that it is just making, and whether the store has done what it asked.
MOMENTS: dict[str, tuple[str, Hold | Silence]] = {
    "before-data": ("/table/", Hold()),
    "before-record": ("/commits/", Hold()),
    "before-swap": (".by-dataset-metadata.json", Hold()),
    "after-swap": (".by-dataset-metadata.json", Silence()),
    "before-marker": ("/applied/", Hold()),
}


def test_driver_deleted_at_five_moments_commits_exactly_once(crashes: Workspace) -> None:
    """Each time the request that was under way reaches the store late, after the next attempt has begun."""
    kubectl = crashes.kubectl
    with crashes.spoiled() as proxy:
        kubectl.apply(manifests.dataset("events", ["p"]))
        for number, (moment, (path, fault)) in enumerate(MOMENTS.items()):
            crashes.put_rows(f"sources/{moment}.csv", first=10 * number)
            held = proxy.inject(fault, method="PUT", path=f"events{path}" if path.startswith(".") else path)
            kubectl.apply(manifests.commit(moment, "events", f"sources/{moment}.csv"))
            assert held.arrived.wait(PATIENCE), kubectl.situation(f"kcm/{moment}")
            kubectl.delete("pod", f"{moment}-1", force=True)
            kubectl.wait_for_object("pod", f"{moment}-2")
            held.release()
            kubectl.wait_for("Ready", f"kcm/{moment}")

    assert crashes.column("events") == list(range(10 * len(MOMENTS)))
    applied = [id_ for id_ in crashes.commit_ids("events") if id_.startswith(f"{kubectl.namespace}/")]
    assert applied == [f"{kubectl.namespace}/{moment}" for moment in MOMENTS]


def test_eight_commits_applied_together_are_all_committed(commits: Workspace) -> None:
    commits.prepare()
    files = [f"sources/{number}.csv" for number in range(8)]
    for number, file in enumerate(files):
        commits.put_rows(file, first=10 * number)
    commits.kubectl.apply(
        manifests.dataset("eight", ["p"]),
        *(manifests.commit(f"eight-{number}", "eight", file) for number, file in enumerate(files)),
    )
    commits.kubectl.wait_for("Ready", *(f"kcm/eight-{number}" for number in range(8)))

    assert commits.column("eight") == list(range(80))
    assert len(set(commits.commit_ids("eight"))) == len(commits.commit_ids("eight"))
    status = eventually(
        lambda: (found := commits.kubectl.get("kds", "eight")["status"]).get("rows") == 80 and found,
        "the Dataset's status to show all rows",
    )
    assert status["files"] == 16


def test_commit_deleted_and_applied_again_adds_no_rows(commits: Workspace) -> None:
    """By kubectl, with --force, and in a cluster that knows nothing of before."""
    commits.prepare()
    kubectl = commits.kubectl
    commits.put_rows("sources/again.csv", first=0)
    everything = [manifests.dataset("again"), manifests.commit("again", "again", "sources/again.csv")]
    kubectl.apply(*everything)
    kubectl.wait_for("Ready", "kcm/again")
    head = commits.head("again")

    for force in (False, True):
        kubectl.delete("kcm", "again", force=force)
        kubectl.apply(everything[1])
        kubectl.wait_for("Ready", "kcm/again")
        assert kubectl.condition("kcm", "again", "Ready")["reason"] == "AlreadyApplied"  # type: ignore[index]

    # All that a cluster knows of the dataset is in its objects: without them it is a fresh one over the old bucket.
    for kind in ("kcm", "kds", "keng", "kos"):
        kubectl.delete(kind, *names(kubectl.items(kind)))
    kubectl.delete("pods,configmaps", "--all")
    commits.prepare()
    kubectl.apply(*everything)
    kubectl.wait_for("Ready", "kcm/again")

    assert commits.head("again") == head
    assert commits.column("again") == list(range(10))
