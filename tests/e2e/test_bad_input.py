"""Bad input ends in a condition and an event that say what to do, with the head byte for byte as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import Manifest
from tests.e2e.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

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


@pytest.fixture(scope="module")
def good(workspace: Callable[..., Workspace]) -> Workspace:
    """A dataset with one good commit, and the bad sources beside it."""
    place = workspace("bad-input")
    place.prepare()
    place.put_rows("sources/good.csv", first=0)
    place.put("sources/empty.csv", b"")
    place.put("sources/wrong.csv", b"x,p,text\n1,1,one\ntwo,0,two\n3,1,three\n")
    place.put("sources/unpartitioned.csv", b"x,text\n1,one\n")
    place.put("sources/null.csv", b"x,p,text\n1,,one\n")
    place.kubectl.apply(
        manifests.dataset("rows", ["p"]),
        manifests.dataset("more-rows", ["p"]),
        manifests.commit("good", "rows", "sources/good.csv"),
    )
    place.kubectl.wait_for("Ready", "kcm/good")
    return place


@pytest.fixture(scope="module")
def head_before(good: Workspace) -> bytes | None:
    """The head that the bad commits meet."""
    return good.head("rows")


@pytest.fixture(scope="module")
def bad_input(good: Workspace, head_before: bytes | None) -> Workspace:
    """All bad commits applied at once: they fail side by side."""
    good.kubectl.apply(*(manifest for wrong, _, _ in COMMITS.values() for manifest in wrong))
    return good


@pytest.mark.parametrize("name", COMMITS)
def test_a_bad_commit_says_what_to_do(bad_input: Workspace, name: str) -> None:
    _, reason, words = COMMITS[name]
    ready = bad_input.kubectl.wait_for_reason("kcm", name, reason, timeout=240)
    assert ready["status"] == "False"
    for word in words:
        assert word in ready["message"], ready["message"]


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


def test_a_bad_store_says_what_to_do(bad_input: Workspace) -> None:
    kubectl = bad_input.kubectl
    kubectl.apply(
        manifests.secret("nobody", "nothing", "wrong-credentials"),
        *(make(bad_input) for make, _, _ in STORES.values()),
    )
    for name, (_, reason, words) in STORES.items():
        ready = kubectl.wait_for_reason("kos", name, reason)
        for word in words:
            assert word in ready["message"], ready["message"]


def test_the_head_is_byte_for_byte_what_it_was(bad_input: Workspace, head_before: bytes | None) -> None:
    """Runs last: each of the bad commits has been refused by now."""
    assert bad_input.head("rows") == head_before
    assert bad_input.head("more-rows") is None
