"""The cluster itself: everything that the operator's tests rely on works before they start."""

import json
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.cluster.paths import PACKAGE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace under the restricted Pod Security Standard."""
    name = f"smoke-{uuid.uuid4().hex[:8]}"
    cluster.run_kubectl("create", "namespace", name)
    cluster.run_kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.run_kubectl("delete", "namespace", name, "--wait=false")


def test_spark_with_an_executor_reads_and_writes_s3(cluster: Cluster, namespace: str) -> None:
    in_namespace = f"--namespace={namespace}"
    location = f"s3a://{cluster.s3_bucket}/{namespace}/squares"
    cluster.run_kubectl(
        in_namespace,
        "create",
        "configmap",
        "smoke",
        f"--from-file={PACKAGE / 'smoke_driver.py'}",
        f"--from-file=executor.yaml={PACKAGE / 'smoke_executor.yaml'}",
    )
    cluster.run_kubectl(
        in_namespace,
        "create",
        "secret",
        "generic",
        "s3",
        f"--from-literal=LOCATION={location}",
        f"--from-literal=S3_ENDPOINT={cluster.s3_endpoint}",
        f"--from-literal=S3_ACCESS_KEY={cluster.s3_access_key}",
        f"--from-literal=S3_SECRET_KEY={cluster.s3_secret_key}",
    )
    cluster.run_kubectl(in_namespace, "apply", "-f", PACKAGE / "smoke.yaml")

    assert _final_phase(cluster, namespace) == "Succeeded", cluster.run_kubectl(in_namespace, "logs", "driver")

    # Spark may complain of the executor that it stops, after the answer.
    logs = cluster.run_kubectl(in_namespace, "logs", "driver").splitlines()
    seen = json.loads(next(line for line in reversed(logs) if line.startswith("{")))
    assert seen["rows"] == 100_000
    assert seen["square"] == 99_999**2
    assert seen["host"].startswith("driver-exec-")
    objects = cluster.s3_client().list_objects_v2(Bucket=cluster.s3_bucket, Prefix=f"{namespace}/squares/")
    assert any(entry["Key"].endswith(".parquet") for entry in objects["Contents"])


def test_the_restricted_standard_is_enforced(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(RuntimeError, match="violates PodSecurity"):
        cluster.run_kubectl(f"--namespace={namespace}", "run", "root", "--image=kubothek/kubothek:dev")


def test_the_s3_server_keeps_its_data_over_an_outage(cluster: Cluster) -> None:
    client, key = cluster.s3_client(), f"outage-{uuid.uuid4().hex}"
    client.put_object(Bucket=cluster.s3_bucket, Key=key, Body=b"kept")
    cluster.stop("s3")
    assert not cluster.s3_answers()
    cluster.start("s3")
    assert client.get_object(Bucket=cluster.s3_bucket, Key=key)["Body"].read() == b"kept"


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_the_control_plane_comes_back(cluster: Cluster, component: str) -> None:
    cluster.stop(component)
    with pytest.raises(RuntimeError):
        cluster.run_kubectl("get", "--raw", "/readyz", timeout=30)
    cluster.start(component)
    assert cluster.run_kubectl("get", "--raw", "/readyz") == "ok"


def _final_phase(cluster: Cluster, namespace: str, timeout: float = 180) -> str:
    deadline = time.monotonic() + timeout
    phase = ""
    while phase not in ("Succeeded", "Failed") and time.monotonic() < deadline:
        time.sleep(0.5)
        phase = cluster.run_kubectl(
            f"--namespace={namespace}", "get", "pod", "driver", "--output=jsonpath={.status.phase}"
        )
    return phase
