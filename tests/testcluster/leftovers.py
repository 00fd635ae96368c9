"""Removing every trace of a node that is no longer wanted, whether it was stopped or killed.

A killed node leaves containers in cgroups, mounts below its run directory, links to pods, rules in the machine's NAT,
and an address. Each function here removes one kind, does nothing if there is nothing, and touches only what is
recognisably ours.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.testcluster.layout import CNI_NETWORK, NODE_IP, POD_GATEWAY, S3_DATA, Layout
from tests.testcluster.steps import run

CGROUPS = Path("/sys/fs/cgroup")
CNI_RESULTS = Path("/var/lib/cni/results")
OUR_CHAINS = ("KUBE-", "CNI-")
NODE_PROGRAMS = (
    "containerd",
    "containerd-shim-runc-v2",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
)
KILL_ROUNDS = 20


def clean(layout: Layout) -> None:
    """Remove what is left of a node; images survive."""
    kill_processes(layout)
    unmount_below(layout.run)
    remove_cgroups()
    remove_pod_links()
    remove_nat_rules()
    subprocess.run(["ip", "address", "delete", f"{NODE_IP}/32", "dev", "lo"], capture_output=True, check=False)
    for result in CNI_RESULTS.glob(f"{CNI_NETWORK}-*"):
        result.unlink(missing_ok=True)
    for directory in (layout.run, S3_DATA):
        shutil.rmtree(directory, ignore_errors=True)


def kill_processes(layout: Layout) -> None:
    """Kill all processes in pods, and the node's own that are not known by a pid file (any more)."""
    for _ in range(KILL_ROUNDS):
        processes = [*_node_processes(layout), *_pod_processes()]
        if not processes:
            return
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.1)
    raise RuntimeError(f"processes of an old cluster cannot be killed: {processes}")


def unmount_below(directory: Path) -> None:
    """Detach all mounts below a directory, the deepest first."""
    for target in mounts_below(directory, Path("/proc/self/mountinfo").read_text()):
        run(["umount", "--lazy", target])


def mounts_below(directory: Path, mountinfo: str) -> list[str]:
    """The mount points below a directory in an unmountable order; `mountinfo` is the kernel's table."""
    points = (line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines())
    return [point for point in reversed(list(points)) if Path(point).is_relative_to(directory)]


def remove_cgroups() -> None:
    """Remove the pods' (now empty) cgroups from every hierarchy."""
    for root in _pod_cgroups():
        for directory, _, _ in os.walk(root, topdown=False):
            try:
                Path(directory).rmdir()
            except OSError:
                # Its last process is still on its way out; an empty cgroup harms nobody.
                continue


def remove_pod_links() -> None:
    """Delete the host's ends of links to pods: one left behind takes the packets of a later pod with its address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == POD_GATEWAY for address in addresses):
            # The network of one pod may hold several, which go together.
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def remove_nat_rules() -> None:
    """Remove the packet filter chains of kube-proxy and the CNI plugins."""
    for family in ("iptables", "ip6tables"):
        if shutil.which(family) is None:
            continue
        current = subprocess.run([f"{family}-save"], capture_output=True, text=True, check=False).stdout
        wanted = without_our_rules(current)
        if wanted != current:
            run([f"{family}-restore"], stdin=wanted)


def without_our_rules(saved: str) -> str:
    """The output of iptables-save less the chains of a Kubernetes node, and less the rules that mention them."""
    return "".join(line for line in saved.splitlines(keepends=True) if not any(chain in line for chain in OUR_CHAINS))


def _node_processes(layout: Layout) -> Iterator[psutil.Process]:
    """The node's components, and containerd's shims: all of them name a file in the run directory."""
    for process in psutil.process_iter(["name", "cmdline", "status"]):
        name, words = process.info["name"], process.info["cmdline"] or []
        ours = name in NODE_PROGRAMS and any(str(layout.run) in word for word in words)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            yield process


def _pod_processes() -> Iterator[psutil.Process]:
    for root in _pod_cgroups():
        for file in root.rglob("cgroup.procs"):
            for pid in _read_pids(file):
                try:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        yield process
                except psutil.NoSuchProcess:
                    continue


def _read_pids(file: Path) -> list[int]:
    try:
        return [int(pid) for pid in file.read_text().split()]
    except OSError:
        return []


def _pod_cgroups() -> list[Path]:
    """The root of the pods' cgroups in each hierarchy: directly below it (v2), or one a controller (v1)."""
    return [path for path in (CGROUPS / "kubepods", *CGROUPS.glob("*/kubepods")) if path.is_dir()]
