"""Building images with buildah, and handing them to the native node's containerd."""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.testcluster.cache import locked
from tests.testcluster.containerd import Containerd
from tests.testcluster.images import BASE, PYTHON, Build
from tests.testcluster.layouts import ImageLayout
from tests.testcluster.paths import cache_root
from tests.testcluster.steps import run, step, succeeds

DEBIAN = "library/debian:bookworm-slim"
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
HOST_JAVA_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")


class Buildah:
    """An image engine without a daemon and without a registry, with its store in the cache."""

    def __init__(self, containerd: Containerd) -> None:
        self.containerd = containerd
        self.store = cache_root() / "buildah"
        self.layout = ImageLayout(cache_root() / "images")

    def has(self, tag: str) -> bool:
        return succeeds([*self._buildah(), "inspect", "--type", "image", f"docker.io/{tag}"])

    def build(self, build: Build) -> None:
        with locked(self.store):
            if not self.has(DEBIAN):
                with step("debootstrap"):
                    self._bootstrap_debian()
            arguments = {"DEBIAN_IMAGE": f"docker.io/{DEBIAN}", **build.parents, **self._lent_arguments()}
            command = [*self._buildah(), "bud", "--isolation", "chroot", "--pull-never", "--quiet"]
            command += [f"--volume={source}:{target}" for source, target in self._lent_files().items()]
            command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
            run([*command, "--tag", f"docker.io/{build.tag}", "--file", build.dockerfile, build.context])
            if build.tag.partition(":")[0] in (PYTHON, BASE):
                self._store_layers(build.tag)

    def publish(self, tag: str, image: str) -> bool:
        with locked(self.store):
            if self.layout.digest(tag) is None:
                run([*self._buildah(), "push", "--quiet", f"docker.io/{tag}", f"oci:{self.layout.root}:{tag}"])
        return self.containerd.import_image(self.layout, tag, f"docker.io/{image}")

    def _store_layers(self, tag: str) -> None:
        """Put an image's layers into the layout as they are.

        A push into a layout compresses layers that are not in it, at 10 s a gigabyte, and containerd would have to
        inflate them again. A push into a plain directory can be told not to; the next push finds them.
        """
        self.layout.create()
        with tempfile.TemporaryDirectory(dir=self.layout.root) as directory:
            plain = ["--disable-compression", "--format", "oci", "--quiet"]
            run([*self._buildah(), "push", *plain, f"docker.io/{tag}", f"dir:{directory}"])
            self.layout.adopt_blobs(Path(directory))

    def _bootstrap_debian(self) -> None:
        """Make the image that a registry would have, from Debian's package archive."""
        self.store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.store) as directory:
            root = Path(directory) / "root"
            run(["debootstrap", "--variant=minbase", "bookworm", root])
            for waste in ("var/cache/apt/archives", "var/lib/apt/lists"):
                shutil.rmtree(root / waste)
            container = run([*self._buildah(), "from", "scratch"]).strip()
            run([*self._buildah(), "copy", "--quiet", container, root, "/"])
            run([*self._buildah(), "config", "--cmd", "bash", container])
            run([*self._buildah(), "commit", "--quiet", "--rm", container, f"docker.io/{DEBIAN}"])

    def _lent_files(self) -> dict[str, str]:
        """What of this machine the builds may use: pip's cache, and the certificates of whoever is in between."""
        pip_cache = run([sys.executable, "-m", "pip", "cache", "dir"]).strip()
        Path(pip_cache).mkdir(parents=True, exist_ok=True)
        lent = {pip_cache: "/run/lent/pip"}
        if HOST_CERTIFICATES.exists():
            lent[str(HOST_CERTIFICATES)] = "/run/lent/certificates.crt:ro"
        if HOST_JAVA_TRUST_STORE.exists():
            lent[str(HOST_JAVA_TRUST_STORE)] = "/run/lent/java-trust-store:ro"
        return lent

    def _lent_arguments(self) -> dict[str, str]:
        arguments = {"PIP_CACHE_DIR": "/run/lent/pip"}
        if HOST_CERTIFICATES.exists():
            arguments["PIP_CERT"] = "/run/lent/certificates.crt"
        if HOST_JAVA_TRUST_STORE.exists():
            arguments["MAVEN_OPTS"] = "-Djavax.net.ssl.trustStore=/run/lent/java-trust-store"
        return arguments

    def _buildah(self) -> list[str]:
        return ["buildah", "--root", str(self.store / "root"), "--runroot", "/run/kubothek/buildah"]
