"""The fixed facts of the native node: its addresses, and where each file of it is."""

from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.paths import cache_root, run_root

NODE_NAME = "kubothek"
# An address of our own, on the loopback device: it exists on every machine and never changes.
NODE_IP = "10.88.0.1"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
POD_CIDR = "10.244.0.0/16"
POD_GATEWAY = "10.244.0.1"
API_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
CNI_NETWORK = "kubothek"
PAUSE_IMAGE = "docker.io/kubothek/pause:dev"

S3_SERVICE_IP = "10.96.0.70"
S3_PORT = 7070
S3_NODE_PORT = 30070
# Named in s3.yaml, so it is the same on a native node and inside a kind node.
S3_DATA = Path("/var/lib/kubothek/s3")


@dataclass(frozen=True)
class Layout:
    """The directories of one node."""

    run: Path
    images: Path

    @classmethod
    def default(cls) -> "Layout":
        # containerd's images outlive the cluster: importing them is the slowest part of a cold start.
        return cls(run=run_root(), images=cache_root() / "containerd")

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def etc(self) -> Path:
        return self.run / "etc"

    @property
    def log(self) -> Path:
        return self.run / "log"

    @property
    def pid(self) -> Path:
        return self.run / "pid"

    @property
    def kubelet(self) -> Path:
        return self.run / "kubelet"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run / "kubeconfig"

    def component_kubeconfig(self, component: str) -> Path:
        return self.etc / f"{component}.kubeconfig"
