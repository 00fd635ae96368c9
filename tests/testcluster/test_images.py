"""What is built from what, and how images travel; no image is built here."""

import io
import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.testcluster.images import (
    ENGINE_IMAGE,
    JOB_IMAGE,
    OPERATOR_IMAGE,
    PROJECT,
    SOURCES,
    Build,
    build_images,
    heavy_builds,
    project_builds,
    publish_images,
)
from tests.testcluster.layouts import ImageLayout


class Recorder:
    """An image engine that only notes what it is asked."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.published: dict[str, str] = {}

    def has(self, tag: str) -> bool:
        return tag in self.built

    def build(self, build: Build) -> None:
        self.built.append(build.tag)

    def publish(self, tag: str, image: str) -> bool:
        known = self.published.get(image) == tag
        self.published[image] = tag
        return not known


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    wheel = tmp_path / "kubothek-0-py3-none-any.whl"
    wheel.write_bytes(b"code")
    return wheel


def test_image_parents_are_built_once_before_children(wheel: Path) -> None:
    engine = Recorder()
    builds = build_images(engine, wheel)
    assert [tag.partition(":")[0] for tag in engine.built] == [
        "kubothek/python",
        "kubothek/base",
        "kubothek/kubothek",
        "kubothek/operator",
        "kubothek/engine",
    ]
    build_images(engine, wheel)
    assert len(engine.built) == 5
    publish_images(engine, builds)
    assert set(engine.published) == {JOB_IMAGE, OPERATOR_IMAGE, ENGINE_IMAGE}


def test_code_change_rebuilds_last_layer_only(wheel: Path) -> None:
    heavy = heavy_builds()
    before = project_builds(heavy, wheel)
    wheel.write_bytes(b"changed code")
    after = project_builds(heavy, wheel)
    assert heavy_builds() == heavy
    for image in (JOB_IMAGE, OPERATOR_IMAGE, ENGINE_IMAGE):
        assert before[image].tag != after[image].tag
        assert before[image].parents == after[image].parents


def test_dockerfile_uses_given_parent_image(wheel: Path) -> None:
    heavy = heavy_builds()
    for build in (heavy.base, *project_builds(heavy, wheel).values()):
        (argument,) = build.parents
        assert f"FROM ${{{argument}}}" in build.dockerfile.read_text()


def test_registry_images_are_all_pinned_by_digest() -> None:
    for dockerfile in SOURCES.glob("*/Dockerfile"):
        text = dockerfile.read_text()
        arguments = dict(re.findall(r"^ARG (\w+)=(.+)$", text, re.MULTILINE))
        for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
            found = arguments[image.strip("${}")] if image.startswith("$") else image
            assert found.startswith("kubothek/") or re.fullmatch(r"[\w/:.-]+@sha256:[0-9a-f]{64}", found), dockerfile


def test_image_packages_all_have_hashes() -> None:
    for dockerfile in SOURCES.glob("*/Dockerfile"):
        for options in re.findall(r"pip install (.+)", dockerfile.read_text()):
            assert "--no-deps" in options
            assert "--require-hashes" in options or "--no-index" in options, "of this checkout's own wheel only"


def test_images_contain_tested_version_of_each_requirement() -> None:
    tested = _pins(PROJECT / "constraints.txt")
    python = _pins(SOURCES / "python" / "requirements.txt")
    base = _pins(SOURCES / "base" / "requirements.txt")
    assert (python | base).items() <= tested.items()
    assert not python.keys() & base.keys()
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_python = list(project["dependencies"])
    for extra in ("operator", "engine", "tracing", "mqtt", "iceberg"):
        of_python += extras[extra]
    assert _names(of_python) <= python.keys(), "run `make lock-images`"
    assert _names(extras["spark"]) <= (python | base).keys(), "run `make lock-images`"


def _pins(requirements: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)", requirements.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def _names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", each) for each in requirements)
    return {name[0].lower().replace("_", "-") for name in found if name}


def test_image_archive_omits_blobs_that_reader_has(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    layout = ImageLayout(tmp_path / "layout")
    layout.add_static("reference", program)
    digest = layout.digest("reference")
    assert digest is not None
    manifest = json.loads((layout.blobs / digest.removeprefix("sha256:")).read_bytes())
    layer = manifest["layers"][0]["digest"]

    everything, without_layer = _members(layout, set()), _members(layout, {layer})
    assert set(everything) - set(without_layer) == {f"blobs/{layer.replace(':', '/')}"}
    (entry,) = json.loads(everything["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"] == {"io.containerd.image.name": "docker.io/test/image:dev"}


def test_static_image_is_replaceable_and_reproducible(tmp_path: Path) -> None:
    program, layout = tmp_path / "program", ImageLayout(tmp_path / "layout")
    digests = []
    for content in (b"one", b"two", b"one"):
        program.write_bytes(content)
        layout.add_static("reference", program)
        digests.append(layout.digest("reference"))
    assert digests[0] == digests[2] != digests[1]
    assert layout.digest("other") is None


def _members(layout: ImageLayout, present: set[str]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    layout.archive("reference", "docker.io/test/image:dev", present, buffer)
    buffer.seek(0)
    members = {}
    with tarfile.open(fileobj=buffer) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            members[member.name] = file.read()
    return members
