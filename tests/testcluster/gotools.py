"""The Go programs of the test cluster, built from the Go module proxy into the cache.

Each directory under `gomod/` is a module, as a rule without code of its own: its `tool` block names the programs, and
its go.mod and go.sum pin every dependency. The hash of the directory is the key of the build.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.cache import build_once, content_key
from tests.testcluster.paths import PACKAGE, cache_root
from tests.testcluster.steps import run, step

MODULES = PACKAGE / "gomod"


@dataclass(frozen=True)
class GoModule:
    """One pinned set of programs that are built together."""

    name: str
    # The required module whose version is the version of the programs.
    versioned_by: str | None = None
    # The linker's -X settings that stamp the version into the programs.
    link_variables: tuple[str, ...] = ()
    # Names that `go build` gives (the last path element) and that we do not want.
    renamed: tuple[tuple[str, str], ...] = ()
    # What `go build` builds: "tool" is all programs of the `tool` block.
    package: str = "tool"

    @property
    def directory(self) -> Path:
        return MODULES / self.name

    @property
    def version(self) -> str:
        """The version of the programs, such as `v1.34.4`."""
        if self.versioned_by is None:
            return "v0.0"
        requirement = re.search(
            rf"^\s*(?:require )?{re.escape(self.versioned_by)} (v\S+)", (self.directory / "go.mod").read_text(), re.M
        )
        if requirement is None:
            raise LookupError(f"{self.directory / 'go.mod'} does not require {self.versioned_by}")
        return requirement[1]

    def linker_flags(self) -> str:
        """Strip the programs, and stamp those that would otherwise report a development version."""
        major, minor, *_ = self.version.removeprefix("v").split(".")
        variables = (text.format(version=self.version, major=major, minor=minor) for text in self.link_variables)
        return " ".join(["-s -w", *(f"-X {variable}" for variable in variables)])

    def key(self) -> str:
        """What the programs depend on."""
        return content_key(self.directory, self.linker_flags(), repr(self.renamed))

    def path(self) -> Path:
        """Where the built programs are, or will be."""
        return cache_root() / "tools" / f"{self.name}-{self.key()}"

    def ensure(self) -> Path:
        """Build the programs unless they are in the cache; return their directory."""
        target = self.path()
        if not target.exists():
            with step(f"go build {self.name} {self.version}", f"takes minutes, once: it is kept in {target.parent}"):
                build_once(target, self._build)
        return target

    def _build(self, target: Path) -> None:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        command = ["go", "build", "-trimpath", "-ldflags", self.linker_flags(), "-o", f"{target}/", self.package]
        run(command, cwd=self.directory, env=_with_go(environment))
        for given, wanted in self.renamed:
            (target / given).rename(target / wanted)


@dataclass(frozen=True)
class GoFiles:
    """Files of a module that are no Go."""

    name: str
    module: str
    files: tuple[str, ...]

    def ensure(self) -> Path:
        """Fetch the files unless they are in the cache; return their directory."""
        directory = MODULES / self.name
        target = cache_root() / "tools" / f"{self.name}-{content_key(directory, *self.files)}"
        if not target.exists():
            build_once(target, lambda entry: self._fetch(directory, entry))
        return target

    def _fetch(self, directory: Path, target: Path) -> None:
        environment = _with_go({**os.environ, "GOFLAGS": "-mod=readonly"})
        run(["go", "mod", "download"], cwd=directory, env=environment)
        root = run(["go", "list", "-m", "-f", "{{.Dir}}", self.module], cwd=directory, env=environment).strip()
        for file in self.files:
            shutil.copyfile(Path(root) / file, target / Path(file).name)


KUBERNETES = GoModule(
    name="kubernetes",
    versioned_by="k8s.io/kubernetes",
    link_variables=(
        "k8s.io/component-base/version.gitVersion={version}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
    renamed=(("server", "etcd"),),
)
HELM = GoModule(
    name="helm",
    versioned_by="helm.sh/helm/v3",
    link_variables=("helm.sh/helm/v3/internal/version.version={version}",),
)
VERSITYGW = GoModule(
    name="versitygw",
    versioned_by="github.com/versity/versitygw",
    link_variables=("main.Version={version}",),
)
KUBECONFORM = GoModule(
    name="kubeconform",
    versioned_by="github.com/yannh/kubeconform",
    link_variables=("main.version={version}",),
)
MONITORING_CRDS = GoFiles(
    name="prometheus-operator",
    module="github.com/prometheus-operator/prometheus-operator",
    files=tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "podmonitors", "prometheusrules")
    ),
)
PAUSE = GoModule(name="pause", package=".")


def _with_go(environment: dict[str, str]) -> dict[str, str]:
    """Find the Go toolchain where its own installer puts it, even if PATH does not name it."""
    path = f"{environment.get('PATH', '')}:/usr/local/go/bin"
    if shutil.which("go", path=path) is None:
        raise RuntimeError("building the cluster's tools needs Go 1.26 or newer on PATH")
    return {**environment, "PATH": path}
