"""The parts of the node that Debian packages, and programs of packages that are not worth installing."""

import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.cache import build_once, content_key
from tests.testcluster.paths import cache_root
from tests.testcluster.steps import CommandError, run, step

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


def install_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Install what is missing; refresh the package lists only if that fails without."""
    missing = [package for package in packages if not _installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"a native cluster needs Debian or Ubuntu, with {', '.join(missing)} installed")
    with step(f"apt-get install {' '.join(missing)}"):
        _with_lists(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing])


@dataclass(frozen=True)
class Unpacked:
    """Programs of a package, without its services, users and dependencies."""

    package: str
    programs: tuple[str, ...]
    directory: str = "usr/bin"
    """Where the package has them; may be a pattern."""

    def ensure(self) -> Path:
        """Fetch them unless they are in the cache; return their directory."""
        release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        target = cache_root() / "tools" / f"{self.package}-{content_key(release, *self.programs)}"
        if not target.exists():
            with step(f"apt-get download {self.package}"):
                build_once(target, self._unpack)
        return target

    def _unpack(self, target: Path) -> None:
        work = target / "unpacked"
        work.mkdir()
        _with_lists(["apt-get", "download", "--quiet", self.package], cwd=work)
        (archive,) = work.glob("*.deb")
        run(["dpkg-deb", "--extract", archive, work])
        for program in self.programs:
            (found,) = work.glob(f"{self.directory}/{program}")
            found.rename(target / program)
        shutil.rmtree(work)


PROMETHEUS = Unpacked("prometheus", ("prometheus", "promtool"))


def _with_lists(command: list[str], cwd: Path | None = None) -> None:
    try:
        run(command, cwd=cwd)
    except CommandError:
        run(["apt-get", "update", "--quiet"])
        run(command, cwd=cwd)


def _installed(package: str) -> bool:
    try:
        return run(["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]) == "installed"
    except (CommandError, FileNotFoundError):
        return False
