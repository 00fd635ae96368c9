"""The cluster itself: everything that the operator's tests rely on works before they start."""

import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.testcluster import Cluster
from tests.testcluster.paths import CHECKOUT
from tests.testcluster.steps import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace under the restricted Pod Security Standard."""
    name = f"restricted-{uuid.uuid4().hex[:8]}"
    cluster.run_kubectl("create", "namespace", name)
    cluster.run_kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.run_kubectl("delete", "namespace", name, "--wait=false")


def test_cluster_enforces_restricted_pod_security(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(RuntimeError, match="violates PodSecurity"):
        cluster.run_kubectl(f"--namespace={namespace}", "run", "root", "--image=kubothek/kubothek:dev")


def test_s3_server_of_cluster_keeps_data_across_outage(cluster: Cluster) -> None:
    client, key = cluster.s3_client(), f"outage-{uuid.uuid4().hex}"
    client.put_object(Bucket=cluster.s3_bucket, Key=key, Body=b"kept")
    cluster.stop("s3")
    assert not cluster.s3_answers()
    cluster.start("s3")
    assert client.get_object(Bucket=cluster.s3_bucket, Key=key)["Body"].read() == b"kept"


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_control_plane_component_restarts(cluster: Cluster, component: str) -> None:
    cluster.stop(component)
    assert not cluster.api_ready()
    cluster.start(component)
    assert cluster.api_ready()


def test_network_links_of_killed_pods_are_removed() -> None:
    """In a network namespace of its own: the cluster's pods keep theirs."""
    program = """
import subprocess
from tests.testcluster.layout import POD_GATEWAY
from tests.testcluster.leftovers import remove_pod_links
for command in ("link add host type veth peer name pod", f"address add {POD_GATEWAY}/32 dev host",
                "link add other type veth peer name peer", "address add 10.9.9.9/32 dev other"):
    subprocess.run(["ip", *command.split()], check=True)
remove_pod_links()
print(subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout)
"""
    left = run(["unshare", "--net", sys.executable, "-c", program], cwd=CHECKOUT)
    assert {line.partition("@")[0].split()[0] for line in left.splitlines() if "@" in line} == {"other", "peer"}
