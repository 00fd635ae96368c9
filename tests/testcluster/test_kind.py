"""The commands that would be given to kind and Docker."""

from pathlib import Path

import yaml

from tests.testcluster.images import Build
from tests.testcluster.kind import (
    CONFIG,
    KindCluster,
    build_command,
    create_command,
    load_command,
    start_command,
    stop_command,
)
from tests.testcluster.layout import S3_NODE_PORT, SERVICE_CIDR


def test_kind_cluster_is_created_from_configuration_of_checkout() -> None:
    assert create_command()[:5] == ["kind", "create", "cluster", "--name", "kubothek"]
    assert create_command()[create_command().index("--config") + 1] == str(CONFIG)
    config = yaml.safe_load(CONFIG.read_text())
    assert config["networking"]["serviceSubnet"] == SERVICE_CIDR
    (node,) = config["nodes"]
    assert node["role"] == "control-plane"
    assert node["extraPortMappings"][0]["containerPort"] == S3_NODE_PORT
    assert KindCluster().s3_host_endpoint == f"http://127.0.0.1:{node['extraPortMappings'][0]['hostPort']}"


def test_kind_images_are_built_by_docker_and_loaded() -> None:
    build = Build("kubothek/base:1", Path("/src/Dockerfile"), Path("/src"), {"PYTHON_IMAGE": "kubothek/python:2"})
    assert build_command(build) == [
        *("docker", "build", "--tag", "kubothek/base:1", "--file", "/src/Dockerfile"),
        *("--build-arg=PYTHON_IMAGE=kubothek/python:2", "/src"),
    ]
    assert load_command("kubothek/base:1") == [
        *("kind", "load", "docker-image", "kubothek/base:1", "--name", "kubothek")
    ]


def test_static_pod_stops_by_manifest_and_service_by_systemd() -> None:
    assert stop_command("etcd")[-1].endswith("mv /etc/kubernetes/manifests/etcd.yaml /etc/kubernetes/stopped/")
    assert start_command("etcd")[-1] == "mv /etc/kubernetes/stopped/etcd.yaml /etc/kubernetes/manifests/"
    assert stop_command("kubelet")[-1] == "systemctl stop kubelet"
    assert start_command("containerd")[-1] == "systemctl start containerd"
