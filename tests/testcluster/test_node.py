"""What the native node is configured and cleaned with, without starting one."""

import ipaddress
import json
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.testcluster import configs
from tests.testcluster.base import S3_IMAGE, S3_MANIFEST
from tests.testcluster.components import Component, components
from tests.testcluster.gotools import HELM, KUBECONFORM, KUBERNETES, PAUSE, VERSITYGW, GoModule
from tests.testcluster.layout import (
    API_SERVICE_IP,
    NODE_IP,
    PAUSE_IMAGE,
    POD_CIDR,
    S3_DATA,
    S3_NODE_PORT,
    S3_PORT,
    S3_SERVICE_IP,
    SERVICE_CIDR,
    Layout,
)
from tests.testcluster.leftovers import mounts_below, without_our_rules
from tests.testcluster.pki import Authority, kubeconfig
from tests.testcluster.processes import Daemon, start_time

LAYOUT = Layout(run=Path("/run/node"), images=Path("/var/images"))


def test_node_addresses_do_not_overlap() -> None:
    services, pods = ipaddress.ip_network(SERVICE_CIDR), ipaddress.ip_network(POD_CIDR)
    assert not services.overlaps(pods)
    for address in (API_SERVICE_IP, S3_SERVICE_IP):
        assert ipaddress.ip_address(address) in services
    assert ipaddress.ip_address(NODE_IP) not in services
    assert ipaddress.ip_address(NODE_IP) not in pods


def test_containerd_stores_images_outside_run_directory() -> None:
    config = tomllib.loads(configs.containerd(LAYOUT))
    assert config["root"] == "/var/images"
    assert config["state"].startswith("/run/node/")
    assert config["grpc"]["address"] == str(LAYOUT.containerd_socket)
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == PAUSE_IMAGE
    assert cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False


def test_pod_network_leases_are_in_run_directory() -> None:
    ptp, portmap = json.loads(configs.cni(LAYOUT))["plugins"]
    assert ptp["ipam"]["ranges"] == [[{"subnet": POD_CIDR}]]
    assert ptp["ipam"]["dataDir"].startswith("/run/node/")
    assert portmap["type"] == "portmap"


def test_kubelet_authorizes_log_access_by_api_server() -> None:
    config = yaml.safe_load(configs.kubelet(LAYOUT))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["containerRuntimeEndpoint"] == f"unix://{LAYOUT.containerd_socket}"


def test_api_server_authorizes_by_rbac() -> None:
    command = components(LAYOUT, Path("/tools"))["kube-apiserver"].command
    assert command[0] == "/tools/kube-apiserver"
    assert "--authorization-mode=Node,RBAC" in command
    assert f"--service-cluster-ip-range={SERVICE_CIDR}" in command


def test_s3_manifest_matches_layout() -> None:
    documents = {document["kind"]: document for document in yaml.safe_load_all(S3_MANIFEST.read_text())}
    service, pod = documents["Service"]["spec"], documents["Deployment"]["spec"]["template"]["spec"]
    assert service["clusterIP"] == S3_SERVICE_IP
    assert (service["ports"][0]["port"], service["ports"][0]["nodePort"]) == (S3_PORT, S3_NODE_PORT)
    assert pod["volumes"][0]["hostPath"]["path"] == str(S3_DATA)
    assert f"docker.io/{pod['containers'][0]['image']}" == S3_IMAGE


def test_server_certificate_names_its_hosts() -> None:
    pair = Authority("test").issue("server", "system:nodes", hosts=("node", NODE_IP))
    names = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    purposes = pair.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == ["node"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(NODE_IP)]
    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes
    organization = pair.certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [attribute.value for attribute in organization] == ["system:nodes"]


def test_client_certificate_is_not_valid_for_server() -> None:
    authority = Authority("test")
    pair = authority.issue("client")
    purposes = pair.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    pair.certificate.verify_directly_issued_by(authority.pair.certificate)


def test_private_key_is_readable_by_owner_only(tmp_path: Path) -> None:
    Authority("test").pair.write(tmp_path, "ca")
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0


def test_kubeconfig_points_to_its_files() -> None:
    document = yaml.safe_load(kubeconfig("https://node:6443", Path("/ca"), Path("/crt"), Path("/key")))
    assert document["clusters"][0]["cluster"] == {"server": "https://node:6443", "certificate-authority": "/ca"}
    assert document["users"][0]["user"] == {"client-certificate": "/crt", "client-key": "/key"}


@pytest.mark.parametrize("module", [KUBERNETES, HELM, VERSITYGW, KUBECONFORM, PAUSE], ids=lambda module: module.name)
def test_tool_is_pinned_and_cached_by_its_inputs(module: GoModule) -> None:
    assert module.version.startswith("v")
    assert module.path().name == f"{module.name}-{module.key()}"


def test_kubernetes_programs_report_version() -> None:
    assert KUBERNETES.version.startswith("v1.34.")
    assert f"gitVersion={KUBERNETES.version}" in KUBERNETES.linker_flags()
    assert "gitMinor=34" in KUBERNETES.linker_flags()


def test_daemon_is_found_by_pid_file(tmp_path: Path) -> None:
    sleeper = Component("sleeper", ("sleep", "60"))
    Daemon(sleeper, Layout(run=tmp_path, images=tmp_path)).start()
    daemon = Daemon(sleeper, Layout(run=tmp_path, images=tmp_path))
    pid = daemon.running_pid()
    assert pid is not None
    daemon.start()
    assert daemon.running_pid() == pid
    daemon.stop()
    assert daemon.running_pid() is None
    assert start_time(pid) is None


def test_daemon_with_reused_pid_is_not_running(tmp_path: Path) -> None:
    (tmp_path / "pid").mkdir()
    (tmp_path / "pid" / "sleeper").write_text("1 0")
    daemon = Daemon(Component("sleeper", ("sleep", "60")), Layout(run=tmp_path, images=tmp_path))
    assert daemon.running_pid() is None


def test_firewall_cleanup_removes_rules_of_node_only() -> None:
    saved = (
        "*nat\n"
        ":OUTPUT ACCEPT [0:0]\n"
        ":KUBE-SERVICES - [0:0]\n"
        "-A OUTPUT -j KUBE-SERVICES\n"
        "-A OUTPUT -d 192.0.2.1/32 -j ACCEPT\n"
        "-A POSTROUTING -s 10.244.0.2/32 -j CNI-0123\n"
        "COMMIT\n"
    )
    assert without_our_rules(saved) == ("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 192.0.2.1/32 -j ACCEPT\nCOMMIT\n")


def test_mounts_are_removed_innermost_first() -> None:
    mountinfo = (
        "20 1 8:1 / / rw - ext4 /dev/a rw\n"
        "30 20 0:5 / /run/node/pods/1/vol\\040ume rw - tmpfs tmpfs rw\n"
        "31 30 0:6 / /run/node/pods/1/vol\\040ume/inner rw - tmpfs tmpfs rw\n"
        "32 20 0:7 / /run/node-of-another rw - tmpfs tmpfs rw\n"
    )
    assert mounts_below(Path("/run/node"), mountinfo) == [
        "/run/node/pods/1/vol ume/inner",
        "/run/node/pods/1/vol ume",
    ]
