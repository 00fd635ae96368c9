"""The processes of the native node and their command lines, in the order in which they start."""

from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.layout import API_PORT, ETCD_PEER_PORT, ETCD_PORT, NODE_IP, NODE_NAME, SERVICE_CIDR, Layout

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Component:
    """One process: its name and what to run."""

    name: str
    command: tuple[str, ...]


def components(layout: Layout, tools: Path) -> dict[str, Component]:
    """All processes by name; `tools` is the directory of the Kubernetes programs."""
    commands = {
        "containerd": ("containerd", "--config", str(layout.etc / "containerd.toml")),
        "etcd": _etcd(layout, tools),
        "kube-apiserver": _apiserver(layout, tools),
        "kube-controller-manager": _controller_manager(layout, tools),
        "kube-scheduler": _scheduler(layout, tools),
        "kube-proxy": (str(tools / "kube-proxy"), f"--config={layout.etc / 'kube-proxy.yaml'}"),
        "kubelet": _kubelet(layout, tools),
    }
    return {name: Component(name, command) for name, command in commands.items()}


def _etcd(layout: Layout, tools: Path) -> tuple[str, ...]:
    client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    return (
        str(tools / "etcd"),
        f"--name={NODE_NAME}",
        f"--data-dir={layout.run / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={NODE_NAME}={peer}",
        # The data lives as long as the cluster; a power cut ends both.
        "--unsafe-no-fsync",
    )


def _apiserver(layout: Layout, tools: Path) -> tuple[str, ...]:
    pki = layout.pki
    return (
        str(tools / "kube-apiserver"),
        f"--advertise-address={NODE_IP}",
        f"--secure-port={API_PORT}",
        f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={pki / 'service-accounts.crt'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        # Nothing aggregates APIs here, but the other components complain without end if they cannot learn who would.
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        # A stopped API server is a test's tool here: it need not wait for its clients to notice.
        "--shutdown-delay-duration=0s",
    )


def _controller_manager(layout: Layout, tools: Path) -> tuple[str, ...]:
    kubeconfig = layout.component_kubeconfig("kube-controller-manager")
    return (
        str(tools / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
    )


def _scheduler(layout: Layout, tools: Path) -> tuple[str, ...]:
    kubeconfig = layout.component_kubeconfig("kube-scheduler")
    return (
        str(tools / "kube-scheduler"),
        f"--config={layout.etc / 'kube-scheduler.yaml'}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
    )


def _kubelet(layout: Layout, tools: Path) -> tuple[str, ...]:
    return (
        str(tools / "kubelet"),
        f"--config={layout.etc / 'kubelet.yaml'}",
        f"--kubeconfig={layout.component_kubeconfig('kubelet')}",
        f"--root-dir={layout.kubelet}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
    )
