"""A Kubernetes node made of ordinary processes of this machine, for machines without a container engine."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired

from tests.testcluster import configs, leftovers
from tests.testcluster.base import ANSWER_TIMEOUT, S3_IMAGE, Cluster, wait_until
from tests.testcluster.cache import content_key, locked
from tests.testcluster.components import Component, components
from tests.testcluster.containerd import Containerd
from tests.testcluster.debian import install_packages
from tests.testcluster.gotools import HELM, KUBECONFORM, KUBERNETES, PAUSE, VERSITYGW
from tests.testcluster.layout import API_PORT, API_SERVICE_IP, NODE_IP, NODE_NAME, PAUSE_IMAGE, S3_NODE_PORT, Layout
from tests.testcluster.layouts import ImageLayout
from tests.testcluster.pki import Authority, kubeconfig
from tests.testcluster.processes import Daemon
from tests.testcluster.steps import CommandError, report, run, step

ADMINISTRATORS = "system:masters"
START_TIMEOUT = 120.0
SILENCE_TIMEOUT = 60.0
"""For a node that runs and does not answer, as on a busy machine."""


class NativeCluster(Cluster):
    """etcd, the control plane, containerd, kubelet and kube-proxy as daemons with their state in the cache."""

    def __init__(self, layout: Layout | None = None) -> None:
        self.layout = layout or Layout.default()
        self.containerd = Containerd(self.layout.containerd_socket)

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @property
    def node_ip(self) -> str:
        return NODE_IP

    @property
    def s3_host_endpoint(self) -> str:
        return f"http://{NODE_IP}:{S3_NODE_PORT}"

    def up(self) -> None:
        with locked(self.layout.run):
            tools = [module.ensure() for module in (KUBERNETES, HELM, VERSITYGW, PAUSE, KUBECONFORM)]
            if self._is_up():
                return
            if os.geteuid() != 0:
                raise PermissionError("a native cluster is made of the machine's own processes: run this as root")
            install_packages()
            with self.removable():
                self._remove()
            with step("write certificates and configurations"):
                self._configure(tools[0])
            self._start()

    def down(self) -> None:
        with locked(self.layout.run), self.removable():
            self._remove()

    def healthy(self) -> bool:
        """Whether the node that runs is the one this code would start, and all of it answers."""
        return self._runs() and self._node_ready() and self.s3_answers()

    def _is_up(self) -> bool:
        """Whether the node is healthy, or becomes so within a minute: a node that answers late is not to be removed."""
        if self.healthy():
            return True
        if not self._runs():
            return False
        with suppress(TimeoutError), step("the node does not answer", f"looking for {SILENCE_TIMEOUT:.0f} s"):
            wait_until(self.healthy, SILENCE_TIMEOUT, "the node", interval=1.0)
        return self.healthy()

    def _runs(self) -> bool:
        """Whether the processes of the node that this code would start are there."""
        current = self._fingerprint_file.exists() and self._fingerprint_file.read_text() == self._fingerprint()
        return current and all(daemon.running_pid() is not None for daemon in self._daemons().values())

    def stop_component(self, component: str) -> None:
        self._daemons()[component].stop()

    def start_component(self, component: str) -> None:
        daemon = self._daemons()[component]
        with self._explained(daemon):
            daemon.start()
            if component == "containerd":
                wait_until(self.containerd.answers, START_TIMEOUT, component)
            elif component in ("etcd", "kube-apiserver"):
                wait_until(self.api_ready, START_TIMEOUT, component)

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of each component's log."""
        return {name: daemon.log_tail(lines) for name, daemon in self._daemons().items()}

    def _start(self) -> None:
        with step("network"):
            run(["ip", "address", "replace", f"{NODE_IP}/32", "dev", "lo"])
            run(["sysctl", "--write", "net.ipv4.ip_forward=1"])
        daemons = self._daemons()
        with ThreadPoolExecutor(1) as background:
            # The control plane needs no containers: both sides start at once.
            node = background.submit(self._start_containerd, daemons["containerd"])
            with step("control plane"), self._explained(daemons["kube-apiserver"]):
                daemons["etcd"].start()
                daemons["kube-apiserver"].start()
                wait_until(self.api_ready, START_TIMEOUT, "kube-apiserver")
                for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
                    daemons[name].start()
            node.result()
        with step("node"), self._explained(daemons["kubelet"]):
            wait_until(lambda: self._node_starts(daemons["kubelet"]), START_TIMEOUT, "kubelet")
        with step("S3 server"):
            wait_until(self._has_service_accounts, START_TIMEOUT, "kube-controller-manager")
            self.deploy_s3()
        self._fingerprint_file.write_text(self._fingerprint())

    def _start_containerd(self, daemon: Daemon) -> None:
        with step("containerd"), self._explained(daemon):
            daemon.start()
            wait_until(self.containerd.answers, START_TIMEOUT, "containerd")
            if self.containerd.forget_containers():
                # It read them when it started.
                daemon.stop()
                daemon.start()
                wait_until(self.containerd.answers, START_TIMEOUT, "containerd")
            layout = ImageLayout(self.layout.run / "static-images")
            programs = {PAUSE_IMAGE: PAUSE.ensure() / "pause", S3_IMAGE: VERSITYGW.ensure() / "versitygw"}
            for image, program in programs.items():
                layout.add_static(image, program)
                self.containerd.import_image(layout, image, image)

    def _remove(self) -> None:
        if not self.layout.run.exists():
            return
        with step("remove the old cluster"):
            for daemon in reversed(self._daemons().values()):
                daemon.stop(kill=daemon.component.name != "containerd")
            leftovers.clean(self.layout)

    def _configure(self, tools: Path) -> None:
        layout = self.layout
        for directory in (layout.pki, layout.etc / "cni"):
            directory.mkdir(parents=True)
        for path, content in self._files().items():
            path.write_text(content)
        self._write_pki()

    def _files(self) -> dict[Path, str]:
        etc = self.layout.etc
        return {
            etc / "containerd.toml": configs.containerd(self.layout),
            etc / "cni" / "10-kubothek.conflist": configs.cni(self.layout),
            etc / "kubelet.yaml": configs.kubelet(self.layout),
            etc / "kube-proxy.yaml": configs.kube_proxy(self.layout),
            etc / "kube-scheduler.yaml": configs.scheduler(self.layout),
        }

    def _write_pki(self) -> None:
        layout, authority = self.layout, Authority("kubothek-test-cluster")
        authority.pair.write(layout.pki, "ca")
        api_hosts = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1")
        servers = {
            "apiserver": authority.issue("kube-apiserver", hosts=(*api_hosts, NODE_IP, API_SERVICE_IP)),
            "kubelet": authority.issue(f"system:node:{NODE_NAME}", "system:nodes", hosts=(NODE_NAME, NODE_IP)),
        }
        clients = {
            "apiserver-kubelet-client": authority.issue("kube-apiserver-kubelet-client", ADMINISTRATORS),
            "admin": authority.issue("kubernetes-admin", ADMINISTRATORS),
            "kube-controller-manager": authority.issue("system:kube-controller-manager"),
            "kube-scheduler": authority.issue("system:kube-scheduler"),
            "kube-proxy": authority.issue("system:kube-proxy"),
            "service-accounts": authority.issue("service-accounts"),
        }
        for name, pair in {**servers, **clients}.items():
            pair.write(layout.pki, name)
        users = {name: layout.component_kubeconfig(name) for name in ("kube-controller-manager", "kube-scheduler")}
        users |= {name: layout.component_kubeconfig(name) for name in ("kube-proxy", "kubelet")}
        users["admin"] = layout.kubeconfig
        for name, path in users.items():
            files = [layout.pki / f"{file}" for file in ("ca.crt", f"{name}.crt", f"{name}.key")]
            path.touch(mode=0o600)
            path.write_text(kubeconfig(f"https://{NODE_IP}:{API_PORT}", *files))

    def _daemons(self) -> dict[str, Daemon]:
        return {name: Daemon(component, self.layout) for name, component in self._components().items()}

    def _components(self) -> dict[str, Component]:
        return components(self.layout, KUBERNETES.path())

    @property
    def _fingerprint_file(self) -> Path:
        return self.layout.run / "fingerprint"

    def _fingerprint(self) -> str:
        """Changes with anything that would start the node differently."""
        return content_key(repr(self._components()), repr(self._files()), VERSITYGW.key(), PAUSE.key())

    def _node_starts(self, kubelet: Daemon) -> bool:
        kubelet.start()  # again if it ended, as it does where containerd answers but is not yet ready for it
        return self._node_ready()

    def _node_ready(self) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        try:
            return self.run_kubectl("get", "node", NODE_NAME, "--output", path, timeout=ANSWER_TIMEOUT) == "True"
        except (CommandError, TimeoutExpired):
            return False

    def _has_service_accounts(self) -> bool:
        return self.succeeds("get", "serviceaccount", "default")

    @contextmanager
    def _explained(self, daemon: Daemon) -> Iterator[None]:
        """Show the log of a component that did not start."""
        try:
            yield
        except (TimeoutError, CommandError):
            report(f"the log of {daemon.component.name} ends with:\n{daemon.log_tail()}")
            raise
