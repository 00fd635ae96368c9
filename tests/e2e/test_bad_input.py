"""Bad input ends in a condition and an event that say what to do, with the head byte for byte as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import Manifest
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster

# What is wrong → the manifests, the reason, and what the message must name.
COMMITS: dict[str, tuple[list[Manifest], str, tuple[str, ...]]] = {
    "no-such-file": (
        [manifests.commit("no-such-file", "rows", "sources/absent.csv")],
        "SourceNotFound",
        ("sources/absent.csv",),
    ),
    "empty-file": (
        [manifests.commit("empty-file", "rows", "sources/empty.csv")],
        "SourceEmpty",
        ("sources/empty.csv",),
    ),
    "wrong-type": (
        [manifests.commit("wrong-type", "rows", "sources/wrong.csv")],
        "DataTypeMismatch",
        ("sources/wrong.csv", "'x'", "row 2", "'two'"),
    ),
    "no-partition-column": (
        [manifests.commit("no-partition-column", "rows", "sources/unpartitioned.csv")],
        "SchemaMismatch",
        ("'p'",),
    ),
    "null-partition": (
        [manifests.commit("null-partition", "rows", "sources/null.csv")],
        "PartitionInvalid",
        ("'p'", "null"),
    ),
    "no-dataset": (
        [manifests.commit("no-dataset", "absent", "sources/good.csv")],
        "DatasetNotFound",
        ("absent",),
    ),
    "no-image": (
        [
            manifests.engine("no-image", image="docker.io/kubothek/no-such-image:v1"),
            manifests.commit("no-image", "more-rows", "sources/good.csv", engineRef={"name": "no-image"}),
        ],
        "ImagePullFailed",
        ("docker.io/kubothek/no-such-image:v1",),
    ),
}
STORES: dict[str, tuple[Callable[[Workspace], Manifest], str, tuple[str, ...]]] = {
    "no-bucket": (
        lambda place: manifests.object_store("s3://no-such-bucket/x", place.cluster.s3_endpoint, "no-bucket"),
        "BucketNotFound",
        ("no-such-bucket",),
    ),
    "wrong-key": (
        lambda place: manifests.object_store(
            place.url, place.cluster.s3_endpoint, "wrong-key", secret="wrong-credentials"
        ),
        "InvalidCredentials",
        ("wrong-credentials",),
    ),
    "endpoint-down": (
        lambda place: manifests.object_store(place.url, f"http://{place.cluster.node_ip}:1", "endpoint-down"),
        "StoreUnavailable",
        (":1",),
    ),
}


def test_bad_commits_name_remedy_and_change_nothing(bad_input: Workspace) -> None:
    """All at once: they fail side by side, some of them after a while."""
    bad_input.prepare()
    bad_input.put_rows("sources/good.csv", first=0)
    bad_input.put("sources/empty.csv", b"")
    bad_input.put("sources/wrong.csv", b"x,p,text\n1,1,one\ntwo,0,two\n3,1,three\n")
    bad_input.put("sources/unpartitioned.csv", b"x,text\n1,one\n")
    bad_input.put("sources/null.csv", b"x,p,text\n1,,one\n")
    kubectl = bad_input.kubectl
    kubectl.apply(
        manifests.dataset("rows", ["p"]),
        manifests.dataset("more-rows", ["p"]),
        manifests.commit("good", "rows", "sources/good.csv"),
    )
    kubectl.wait_for("Ready", "kcm/good")
    head = bad_input.head("rows")
    kubectl.apply(*(manifest for wrong, _, _ in COMMITS.values() for manifest in wrong))
    for name, (_, reason, words) in COMMITS.items():
        ready = kubectl.wait_for_reason("kcm", name, reason)
        assert ready["status"] == "False"
        for word in words:
            assert word in ready["message"], ready["message"]
    assert bad_input.head("rows") == head
    assert bad_input.head("more-rows") is None
    kubectl.delete("kcm", "no-image")  # its pod would hold half a processor for ever


def test_bad_stores_name_remedy(bad_input: Workspace) -> None:
    kubectl = bad_input.kubectl
    kubectl.apply(
        manifests.secret("nobody", "nothing", "wrong-credentials"),
        *(make(bad_input) for make, _, _ in STORES.values()),
    )
    for name, (_, reason, words) in STORES.items():
        ready = kubectl.wait_for_reason("kos", name, reason)
        for word in words:
            assert word in ready["message"], ready["message"]
