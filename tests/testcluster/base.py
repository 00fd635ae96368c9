"""What tests and demos may ask of their cluster, whichever kind it is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, ClassVar

import boto3
import yaml
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.testcluster.cache import exclusive, shared
from tests.testcluster.gotools import HELM, KUBERNETES
from tests.testcluster.layout import S3_PORT, S3_SERVICE_IP
from tests.testcluster.paths import PACKAGE, cache_root
from tests.testcluster.steps import CommandError, run

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_MANIFEST = PACKAGE / "s3.yaml"
S3_IMAGE = "docker.io/kubothek/s3:dev"
S3_BUCKET = "lake"
S3_REGION = "us-east-1"
ANSWER_TIMEOUT = 30.0
"""Seconds for one answer of the API server, on a machine that has much else to do."""


class Cluster(ABC):
    """A running cluster of one node with an S3 server in it."""

    # The parts that stop(), start() and restart() know.
    components: ClassVar[tuple[str, ...]] = (
        "containerd",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
        "s3",
    )
    # For pods. The S3 server's address as the host sees it is `s3_host_endpoint`.
    s3_endpoint = f"http://{S3_SERVICE_IP}:{S3_PORT}"
    s3_bucket = S3_BUCKET
    s3_region = S3_REGION

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    @property
    @abstractmethod
    def node_ip(self) -> str:
        """An address of the node at which the host reaches its node ports."""

    @property
    @abstractmethod
    def s3_host_endpoint(self) -> str:
        """The S3 server as the host reaches it."""

    @abstractmethod
    def healthy(self) -> bool:
        """Whether everything runs and answers."""

    @abstractmethod
    def up(self) -> None:
        """Create the cluster, or do nothing if it is healthy."""

    @abstractmethod
    def down(self) -> None:
        """Remove the cluster and everything in it; cached builds and images stay."""

    @property
    def in_use(self) -> Path:
        """The file that test runs lock as long as they use the cluster."""
        return cache_root() / "cluster-in-use.lock"

    def held(self) -> AbstractContextManager[None]:
        """Keep every process from removing the cluster while the block runs."""
        return shared(self.in_use)

    @contextmanager
    def removable(self) -> Iterator[None]:
        """Around a removal. Raises RuntimeError if a test run holds the cluster."""
        with exclusive(self.in_use) as ours:
            if not ours:
                raise RuntimeError(
                    f"the cluster does not answer or is to be removed, but a test run uses it and holds {self.in_use}: "
                    "wait until that run has ended, or end it"
                )
            yield

    @abstractmethod
    def stop_component(self, component: str) -> None:
        """Stop one component of the control plane or of the node."""

    @abstractmethod
    def start_component(self, component: str) -> None:
        """Start one component again and wait until it answers."""

    @property
    def kubectl(self) -> Path:
        return KUBERNETES.ensure() / "kubectl"

    @property
    def helm(self) -> Path:
        return HELM.ensure() / "helm"

    @property
    def s3_access_key(self) -> str:
        return _s3_credentials()["access-key"]

    @property
    def s3_secret_key(self) -> str:
        return _s3_credentials()["secret-key"]

    def run_kubectl(self, *arguments: str | Path, stdin: str | None = None, timeout: float | None = None) -> str:
        """Run kubectl as administrator and return what it prints."""
        command = [self.kubectl, "--kubeconfig", self.kubeconfig, *arguments]
        return run(command, stdin=stdin, timeout=timeout)

    def succeeds(self, *arguments: str) -> bool:
        """Whether kubectl does what it is asked; not if the API server does not answer."""
        try:
            self.run_kubectl(*arguments, timeout=ANSWER_TIMEOUT)
        except (CommandError, TimeoutExpired):
            return False
        return True

    def api_ready(self) -> bool:
        """Whether the API server says that it is."""
        return self.succeeds("get", "--raw", "/readyz")

    def s3_client(self) -> "S3Client":
        """A boto3 client on the host."""
        return boto3.client(
            "s3",
            endpoint_url=self.s3_host_endpoint,
            aws_access_key_id=self.s3_access_key,
            aws_secret_access_key=self.s3_secret_key,
            region_name=self.s3_region,
            config=Config(
                s3={"addressing_style": "path"}, connect_timeout=2, read_timeout=30, retries={"total_max_attempts": 2}
            ),
        )

    def stop(self, component: str) -> None:
        """Stop a component; see `components`. Pods keep running when the control plane stops."""
        self._check(component)
        if component == "s3":
            self._scale_s3(0)
        else:
            self.stop_component(component)

    def start(self, component: str) -> None:
        """Start a stopped component and wait until it answers."""
        self._check(component)
        if component == "s3":
            self._scale_s3(1)
            self._await_s3()
        else:
            self.start_component(component)

    def restart(self, component: str) -> None:
        """Stop and start a component."""
        self.stop(component)
        self.start(component)

    def deploy_s3(self) -> None:
        """Install the S3 server (its image must be on the node), and create the bucket."""
        self.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", S3_MANIFEST)
        self._await_s3()
        client = self.s3_client()
        if self.s3_bucket not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=self.s3_bucket)

    def environment(self) -> dict[str, str]:
        """The environment variables with which a shell uses the cluster."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBOTHEK_S3_ENDPOINT": self.s3_endpoint,
            "AWS_ENDPOINT_URL": self.s3_host_endpoint,
            "AWS_ACCESS_KEY_ID": self.s3_access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3_secret_key,
            "AWS_REGION": self.s3_region,
        }

    def _check(self, component: str) -> None:
        if component not in self.components:
            raise ValueError(f"no component {component!r}; there are {', '.join(self.components)}")

    def _scale_s3(self, replicas: int) -> None:
        self.run_kubectl("--namespace=s3", "scale", "deployment/versitygw", f"--replicas={replicas}")
        if replicas == 0:
            self.run_kubectl("--namespace=s3", "wait", "pod", "-l", "app=versitygw", "--for=delete", "--timeout=60s")

    def _await_s3(self) -> None:
        self.run_kubectl("--namespace=s3", "rollout", "status", "deployment/versitygw", "--timeout=120s")
        # Ready is not yet routed: kube-proxy hears of the pod a little later.
        wait_until(self.s3_answers, 30, "the S3 server")

    def s3_answers(self) -> bool:
        """Whether the S3 server serves a request from the host."""
        try:
            self.s3_client().list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True


def wait_until(condition: Callable[[], bool], timeout: float, what: str, interval: float = 0.1) -> None:
    """Wait until a condition holds; raise TimeoutError naming `what` if it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not answer in {timeout:.0f} s")
        time.sleep(interval)


def _s3_credentials() -> dict[str, str]:
    for document in yaml.safe_load_all(S3_MANIFEST.read_text()):
        if document["kind"] == "Secret":
            credentials: dict[str, str] = document["stringData"]
            return credentials
    raise LookupError(f"{S3_MANIFEST} has no Secret")
