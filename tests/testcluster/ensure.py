"""Getting a cluster: kind's where there is a Docker engine, otherwise a native one."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.testcluster.base import Cluster
from tests.testcluster.buildah import Buildah
from tests.testcluster.debian import install_packages
from tests.testcluster.images import Engine, build_images, build_wheel, publish_images
from tests.testcluster.kind import Docker, KindCluster, docker_answers
from tests.testcluster.native import NativeCluster


def why_no_cluster() -> str | None:
    """Why this machine can have no cluster; None if it can."""
    if docker_answers() or (os.geteuid() == 0 and Path("/etc/debian_version").exists()):
        return None
    return "a cluster needs a Docker engine with kind, or Debian as root"


def find_cluster() -> Cluster:
    """The cluster of this machine, whether it runs or not."""
    return KindCluster() if docker_answers() else NativeCluster()


def ensure_cluster(*, images: bool = False) -> Cluster:
    """Bring the cluster up unless it is, and with `images` the project's current images into it."""
    cluster = find_cluster()
    if not images:
        cluster.up()
        return cluster
    engine = image_engine(cluster)
    # Building the cluster's tools keeps the processors busy, building images the network.
    with ThreadPoolExecutor(1) as background, tempfile.TemporaryDirectory() as directory:
        running = background.submit(cluster.up)
        builds = build_images(engine, build_wheel(Path(directory)))
        running.result()
        publish_images(engine, builds)
    return cluster


def image_engine(cluster: Cluster) -> Engine:
    """What builds images on this machine, and brings them to its cluster."""
    if isinstance(cluster, NativeCluster):
        install_packages()
        return Buildah(cluster.containerd)
    return Docker()
