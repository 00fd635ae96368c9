"""The project's images: which there are, what each depends on, and how they get to the cluster.

Heavy layers (Python, Java, Spark and every dependency) come first and change rarely; the last layer is the project's
wheel, so that a change of code costs seconds. An image is tagged with the hash of everything it is made of: what has
its tag is up to date.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.testcluster.cache import content_key
from tests.testcluster.paths import CHECKOUT
from tests.testcluster.steps import report, run, step

SOURCES = CHECKOUT / "spark-images"
PROJECT = CHECKOUT / "operator"
PYTHON = "kubothek/python"
BASE = "kubothek/base"
JOB_IMAGE = "kubothek/kubothek:dev"
OPERATOR_IMAGE = "kubothek/operator:dev"
ENGINE_IMAGE = "kubothek/engine:dev"


@dataclass(frozen=True)
class Build:
    """One image: a Dockerfile with its context, and the parent images it is given as arguments."""

    tag: str
    dockerfile: Path
    context: Path
    parents: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """What builds images and brings them to the cluster."""

    def has(self, tag: str) -> bool:
        """Whether an image was built already."""

    def build(self, build: Build) -> None:
        """Build an image."""

    def publish(self, tag: str, image: str) -> bool:
        """Make a built image known to the cluster under another name; whether there was anything to do."""


@dataclass(frozen=True)
class HeavyBuilds:
    """The images below the project's own."""

    python: Build
    base: Build


def heavy_builds() -> HeavyBuilds:
    """Python with all dependencies, and Spark over it."""
    python_key = content_key(SOURCES / "python")
    base_key = content_key(python_key, SOURCES / "base")
    python = Build(f"{PYTHON}:{python_key}", SOURCES / "python" / "Dockerfile", CHECKOUT)
    base = Build(f"{BASE}:{base_key}", SOURCES / "base" / "Dockerfile", CHECKOUT, {"PYTHON_IMAGE": python.tag})
    return HeavyBuilds(python, base)


def project_builds(heavy: HeavyBuilds, wheel: Path, sources: Path = SOURCES) -> dict[str, Build]:
    """The images with the project's wheel (which is alone in its directory), by their name in the cluster."""
    return {
        JOB_IMAGE: _project_build(JOB_IMAGE, "BASE_IMAGE", heavy.base, wheel, sources),
        OPERATOR_IMAGE: _project_build(OPERATOR_IMAGE, "PYTHON_IMAGE", heavy.python, wheel, sources),
        ENGINE_IMAGE: _project_build(ENGINE_IMAGE, "PYTHON_IMAGE", heavy.python, wheel, sources),
    }


def build_images(engine: Engine, wheel: Path) -> dict[str, Build]:
    """Build every image that is not up to date; needs no cluster. Returns those to publish, by name."""
    heavy = heavy_builds()
    project = project_builds(heavy, wheel)
    for build in (heavy.python, heavy.base, *project.values()):
        ensure_built(engine, build)
    return project


def ensure_built(engine: Engine, build: Build) -> None:
    """Build an image whose parents are built, unless it is up to date."""
    if not engine.has(build.tag):
        with step(f"build {build.tag}"):
            engine.build(build)


def publish_images(engine: Engine, builds: Mapping[str, Build]) -> None:
    """Bring built images to the cluster."""
    for image, build in builds.items():
        with step(f"publish {image}"):
            if not engine.publish(build.tag, image):
                report(f"{image} is up to date")


def build_wheel(directory: Path, project: Path = PROJECT) -> Path:
    """Build the project's wheel into an empty directory. The same sources give the same bytes."""
    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory], cwd=project)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _project_build(image: str, argument: str, parent: Build, wheel: Path, sources: Path) -> Build:
    name = image.partition(":")[0]
    dockerfile = sources / name.rpartition("/")[2] / "Dockerfile"
    key = content_key(parent.tag, dockerfile, wheel)
    return Build(f"{name}:{key}", dockerfile, wheel.parent, {argument: parent.tag})
