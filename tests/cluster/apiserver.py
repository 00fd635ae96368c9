"""A real API server (etcd and kube-apiserver, nothing else) for tests: RBAC, CRDs, apply and admission as they are.

There are no controllers and no kubelet: nothing moves unless the test moves it, which is what makes every step of an
operator observable. A test plays the kubelet by patching the status of a pod.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from ssl import create_default_context
from types import TracebackType
from typing import Any

import yaml

from tests.testcluster.gotools import KUBERNETES
from tests.testcluster.pki import Authority

ADMIN = "admin-token"
OPERATOR = "operator-token"
CRDS = Path(__file__).resolve().parents[2] / "crds"
OPERATOR_USER = "system:serviceaccount:kubothek:kubothek"


class ApiServer:
    """A context manager; ``kubeconfig(token)`` is how to reach it. ``arguments`` are further ones of kube-apiserver."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._directory = tempfile.TemporaryDirectory(prefix="kubothek-apiserver-")
        self._root = Path(self._directory.name)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = _free_port()

    def __enter__(self) -> ApiServer:
        tools = KUBERNETES.ensure()
        etcd_port, peer_port = _free_port(), _free_port()
        authority = Authority("test")
        authority.pair.write(self._root, "ca")
        authority.issue("kube-apiserver", hosts=("127.0.0.1", "localhost")).write(self._root, "server")
        authority.issue("service-accounts").write(self._root, "sa")
        (self._root / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{OPERATOR},{OPERATOR_USER},2,"system:serviceaccounts"\n'
        )
        client, peer = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._start(
            tools / "etcd",
            f"--data-dir={self._root / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        self._start(
            tools / "kube-apiserver",
            f"--etcd-servers={client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=10.97.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._root / 'tokens.csv'}",
            f"--tls-cert-file={self._root / 'server.crt'}",
            f"--tls-private-key-file={self._root / 'server.key'}",
            "--service-account-issuer=https://test",
            f"--service-account-key-file={self._root / 'sa.crt'}",
            f"--service-account-signing-key-file={self._root / 'sa.key'}",
            "--shutdown-delay-duration=0s",
            *self._arguments,
        )
        self._context = create_default_context(cafile=str(self.ca))
        self._wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._directory.cleanup()

    def kubeconfig(self, token: str = ADMIN, server: str | None = None) -> Path:
        """The path of a kubeconfig file for the user of this token; ``server`` if it is reached through a proxy."""
        cluster: dict[str, Any] = {"server": server or f"https://127.0.0.1:{self.port}"}
        if server is None:
            cluster["certificate-authority"] = str(self._root / "ca.crt")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        file = self._root / f"kubeconfig-{abs(hash((token, server)))}"
        file.write_text(yaml.safe_dump(document))
        return file

    @property
    def ca(self) -> Path:
        """The certificate authority that signed the server's certificate."""
        return self._root / "ca.crt"

    def request(
        self, method: str, path: str, body: object = None, content: str = "application/json", user: str = ""
    ) -> Any:
        """One request as administrator, or as a user who can log in and has the rights that were given by name; returns
        the parsed answer, raises urllib's HTTPError otherwise.
        """
        impersonated = {"Impersonate-User": user, "Impersonate-Group": "system:authenticated"} if user else {}
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": content, **impersonated},
        )
        with urllib.request.urlopen(request, context=self._context, timeout=60) as response:
            return json.load(response)

    def apply(self, path: str, obj: dict[str, Any]) -> Any:
        """Server-side apply as administrator."""
        return self.request("PATCH", f"{path}?fieldManager=test&force=true", obj, "application/apply-patch+yaml")

    def install_crds(self) -> None:
        """Those of the project; returns when they can be used."""
        crds = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in sorted(CRDS.glob("*.yaml"))]
        names = [crd["metadata"]["name"] for crd in crds]
        for name, crd in zip(names, crds, strict=True):
            self.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", crd)
        self.kubectl("wait", "--for=condition=Established", "--timeout=120s", *(f"crd/{name}" for name in names))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; returns what it prints, raises with its error if it fails."""
        command = [str(KUBERNETES.ensure() / "kubectl"), f"--kubeconfig={self.kubeconfig()}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _start(self, *command: str | Path) -> None:
        log = (self._root / f"{Path(command[0]).name}.log").open("wb")
        with log:
            self._processes.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            assert all(process.poll() is None for process in self._processes), self._logs()
            try:
                self.request("GET", "/api/v1/namespaces/kube-system")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"the API server did not become ready:\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in self._root.glob("*.log"))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
