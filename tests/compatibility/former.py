"""The code of commit b765f9b, before packages got the names of the field: stores of its users must stay usable."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.testcluster.paths import CHECKOUT

COMMIT = "b765f9b3d4e7868685e17da5a44e5092d6696d2e"
PRESENT = CHECKOUT / "operator"


def extract_former(directory: Path, *paths: str) -> None:
    """Extract paths of that commit from the history into a directory.

    A shallow clone lacks the commit: ``git fetch --unshallow`` brings it.
    """
    archive = subprocess.run(["git", "archive", COMMIT, *paths], cwd=CHECKOUT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")


def former_code(directory: Path) -> Path:
    """Extract that commit's code, compile its C, and return the directory for PYTHONPATH."""
    extract_former(directory, "operator")
    code = directory / "operator"
    lanes = code / "kubothek" / "lake" / "lanes.c"
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-o", lanes.with_name("liblanes.so"), lanes], check=True)
    return code


def run_steps(code: Path, lake: Path, *steps: str) -> Any:
    """Run steps of :mod:`tests.compatibility.steps` with the code in a directory.

    Returns what ``read`` printed, if it is one of the steps.
    """
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("steps.py"), lake, *steps],
        env=os.environ | {"PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{steps} with the code in {code}:\n{done.stderr}"
    return json.loads(done.stdout) if "read" in steps else None
