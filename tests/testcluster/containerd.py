"""What we ask of the node's containerd, through its own client."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.layouts import ImageLayout
from tests.testcluster.steps import CommandError, run, succeeds

# The namespace of containerd in which Kubernetes looks for images and containers.
NAMESPACE = "k8s.io"


@dataclass(frozen=True)
class Containerd:
    """The containerd behind one socket."""

    socket: Path

    def answers(self) -> bool:
        return self.socket.exists() and succeeds([*self._ctr(), "version"], timeout=5)

    def images(self) -> dict[str, str]:
        """The digest of each image's manifest by the image's full name."""
        rows = run([*self._ctr(), "images", "list"]).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows}

    def import_image(self, layout: ImageLayout, reference: str, image: str) -> bool:
        """Make an image of a layout known under the given name; whether there was anything to do."""
        if self.images().get(image) == layout.digest(reference):
            return False
        present = set(run([*self._ctr(), "content", "list", "--quiet"]).split())
        command = [*self._ctr(), "images", "import", "-"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ctr:
            assert ctr.stdin is not None
            assert ctr.stdout is not None
            try:
                layout.archive(reference, image, present, ctr.stdin)
                ctr.stdin.close()
            except BrokenPipeError:
                pass  # What it printed says more.
            output = ctr.stdout.read().decode(errors="replace")
        if ctr.returncode != 0:
            raise CommandError(f"importing {image} ended with {ctr.returncode}:\n{output}")
        return True

    def forget_containers(self) -> bool:
        """Drop the records of containers that a killed node left; whether there were any."""
        containers = run([*self._ctr(), "containers", "list", "--quiet"]).split()
        if containers:
            run([*self._ctr(), "containers", "delete", *containers])
        return bool(containers)

    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket), "--namespace", NAMESPACE]
