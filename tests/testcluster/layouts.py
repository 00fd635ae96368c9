"""Images outside of any container engine: a directory in the OCI image layout, and archives made of it.

The layout holds layers uncompressed under their own hash, which is what makes the rest fast: buildah does not write
a layer again that it finds there, and containerd neither inflates it nor is handed one that it has.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
REFERENCE = "org.opencontainers.image.ref.name"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EXECUTABLE = 0o755


class ImageLayout:
    """A directory of images, each under a reference."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def blobs(self) -> Path:
        return self.root / "blobs" / "sha256"

    def digest(self, reference: str) -> str | None:
        """The digest of an image's manifest, or None if the layout lacks the image."""
        for entry in self._index()["manifests"]:
            if entry["annotations"][REFERENCE] == reference:
                digest: str = entry["digest"]
                return digest
        return None

    def create(self) -> None:
        """Make the directory an (empty) layout unless it is one."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        (self.root / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))

    def adopt_blobs(self, directory: Path) -> None:
        """Move in all files of a directory that are named by their hash."""
        for file in directory.iterdir():
            if len(file.name) == hashlib.sha256().digest_size * 2:
                file.rename(self.blobs / file.name)

    def add_static(self, reference: str, program: Path) -> None:
        """Add an image of nothing but one statically linked program."""
        self.create()
        layer = self._write(_tar_of(program))
        config = {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, **self._write(_json(config))},
            "layers": [{"mediaType": LAYER_TYPE, **layer}],
        }
        entry = {"mediaType": MANIFEST_TYPE, **self._write(_json(manifest)), "annotations": {REFERENCE: reference}}
        others = [entry for entry in self._index()["manifests"] if entry["annotations"][REFERENCE] != reference]
        (self.root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [*others, entry]}))

    def archive(self, reference: str, image: str, present: Collection[str], out: IO[bytes]) -> None:
        """Write an image as an archive that gives it the name `image`, without the blobs the reader has already."""
        digest = self.digest(reference)
        if digest is None:
            raise LookupError(f"no image {reference} in {self.root}")
        manifest = self._blob(digest)
        entry = {
            "mediaType": MANIFEST_TYPE,
            "digest": digest,
            "size": manifest.stat().st_size,
            "annotations": {"io.containerd.image.name": image},
        }
        with tarfile.open(fileobj=out, mode="w|") as tar:
            _add(tar, "oci-layout", (self.root / "oci-layout").read_bytes())
            _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
            for needed in self._reachable(digest):
                if needed not in present:
                    blob = self._blob(needed)
                    tar.add(blob, arcname=f"blobs/sha256/{blob.name}")

    def _reachable(self, digest: str) -> Iterator[str]:
        manifest = json.loads(self._blob(digest).read_bytes())
        yield digest
        yield manifest["config"]["digest"]
        for layer in manifest["layers"]:
            yield layer["digest"]

    def _index(self) -> dict[str, Any]:
        index = self.root / "index.json"
        loaded: dict[str, Any] = json.loads(index.read_bytes()) if index.exists() else {"manifests": []}
        return loaded

    def _blob(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")

    def _write(self, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._blob(digest).write_bytes(content)
        return {"digest": digest, "size": len(content)}


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _tar_of(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), EXECUTABLE)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
