"""Bad input ends in a condition and an event that say what to do, with the head byte for byte as it was."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tests.e2e import manifests
from tests.e2e.bad_commits import COMMITS
from tests.e2e.conftest import BAD_INPUT
from tests.e2e.kubectl import Manifest
from tests.e2e.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def head_before(refused: Future[bytes | None]) -> bytes | None:
    """The head that the bad commits met."""
    return refused.result()


@pytest.fixture(scope="module")
def bad_input(workspace: Callable[..., Workspace], head_before: bytes | None) -> Workspace:
    """Where they are."""
    return workspace(BAD_INPUT)


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
