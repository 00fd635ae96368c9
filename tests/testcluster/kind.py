"""The same cluster by `kind`, for machines with a Docker engine. Here only the commands are ours."""

import functools
import shutil
import tempfile
from pathlib import Path

from tests.testcluster.base import S3_IMAGE, Cluster, wait_until
from tests.testcluster.gotools import VERSITYGW
from tests.testcluster.images import Build
from tests.testcluster.layout import S3_NODE_PORT
from tests.testcluster.paths import CHECKOUT, run_root
from tests.testcluster.steps import run, step, succeeds

NAME = "kubothek"
NODE = f"{NAME}-control-plane"
CONFIG = CHECKOUT / "kind-config.yaml"
# Static pods stop when their manifest goes away.
STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
MANIFESTS = "/etc/kubernetes/manifests"
PARKED = "/etc/kubernetes/stopped"
START_TIMEOUT = 120.0

S3_DOCKERFILE = """\
FROM scratch
COPY versitygw /versitygw
ENTRYPOINT ["/versitygw"]
"""


@functools.cache
def docker_answers() -> bool:
    """Whether there is a Docker engine, rather than only its client."""
    return shutil.which("docker") is not None and succeeds(["docker", "info"], timeout=10)


def create_command() -> list[str]:
    return ["kind", "create", "cluster", "--name", NAME, "--config", str(CONFIG), "--wait", "120s"]


def load_command(image: str) -> list[str]:
    return ["kind", "load", "docker-image", image, "--name", NAME]


def build_command(build: Build) -> list[str]:
    parents = [f"--build-arg={argument}={parent}" for argument, parent in build.parents.items()]
    return ["docker", "build", "--tag", build.tag, "--file", str(build.dockerfile), *parents, str(build.context)]


def stop_command(component: str) -> list[str]:
    """Stop a component inside the node."""
    if component in STATIC_PODS:
        return _in_node(f"mkdir -p {PARKED} && mv {MANIFESTS}/{component}.yaml {PARKED}/")
    return _in_node(f"systemctl stop {component}")


def start_command(component: str) -> list[str]:
    """Start a component inside the node again."""
    if component in STATIC_PODS:
        return _in_node(f"mv {PARKED}/{component}.yaml {MANIFESTS}/")
    return _in_node(f"systemctl start {component}")


class KindCluster(Cluster):
    """One node in a Docker container."""

    # kube-proxy is a DaemonSet in a kind node, and nothing that one process manager could stop.
    components = tuple(name for name in Cluster.components if name != "kube-proxy")

    @property
    def kubeconfig(self) -> Path:
        return run_root() / "kind.kubeconfig"

    @property
    def node_ip(self) -> str:
        return "127.0.0.1"

    @property
    def s3_host_endpoint(self) -> str:
        return f"http://127.0.0.1:{S3_NODE_PORT}"

    def up(self) -> None:
        if self.healthy():
            return
        if NAME not in run(["kind", "get", "clusters"]).split():
            with step("kind create cluster"):
                run(create_command())
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        self.kubeconfig.write_text(run(["kind", "get", "kubeconfig", "--name", NAME]))
        with step("S3 server"):
            self._load_s3_image()
            self.deploy_s3()

    def down(self) -> None:
        with self.removable():
            run(["kind", "delete", "cluster", "--name", NAME])
            self.kubeconfig.unlink(missing_ok=True)

    def healthy(self) -> bool:
        return self.kubeconfig.exists() and self.api_ready() and self.s3_answers()

    def stop_component(self, component: str) -> None:
        run(stop_command(component))

    def start_component(self, component: str) -> None:
        run(start_command(component))
        wait_until(self.api_ready, START_TIMEOUT, component)

    def _load_s3_image(self) -> None:
        image = S3_IMAGE.removeprefix("docker.io/")
        with tempfile.TemporaryDirectory() as directory:
            context = Path(directory)
            (context / "Dockerfile").write_text(S3_DOCKERFILE)
            shutil.copy(VERSITYGW.ensure() / "versitygw", context)
            run(build_command(Build(image, context / "Dockerfile", context)))
        run(load_command(image))


class Docker:
    """The image engine of a machine with Docker."""

    def has(self, tag: str) -> bool:
        return succeeds(["docker", "image", "inspect", tag])

    def build(self, build: Build) -> None:
        run(build_command(build))

    def publish(self, tag: str, image: str) -> bool:
        run(["docker", "tag", tag, image])
        run(load_command(image))
        return True


def _in_node(script: str) -> list[str]:
    return ["docker", "exec", NODE, "sh", "-c", script]
