"""Helm as the tests use it: the same binary a user types."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testcluster import Cluster


class HelmError(AssertionError):
    """Helm ended with an error; the message is its own."""


def helm(cluster: Cluster, namespace: str, *arguments: str | Path) -> None:
    """Run ``helm ARGUMENTS`` in a namespace."""
    command = [cluster.helm, "--kubeconfig", cluster.kubeconfig, "--namespace", namespace, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HelmError(f"helm {' '.join(map(str, arguments))}: {done.stderr.strip() or done.stdout.strip()}")
