"""The parts of the node that Debian packages."""

import shutil

from tests.cluster.steps import CommandError, run, step

PACKAGES = (
    "buildah",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "iproute2",
    "iptables",
    "runc",
    "socat",
)


def install_packages() -> None:
    """Install what is missing; refresh the package lists only if that fails without."""
    missing = [package for package in PACKAGES if not _installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"a native cluster needs Debian or Ubuntu, with {', '.join(missing)} installed")
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    with step(f"apt-get install {' '.join(missing)}"):
        try:
            run(install)
        except CommandError:
            run(["apt-get", "update", "--quiet"])
            run(install)


def _installed(package: str) -> bool:
    try:
        return run(["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]) == "installed"
    except (CommandError, FileNotFoundError):
        return False
