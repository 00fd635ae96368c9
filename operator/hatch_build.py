"""Builds ``kubothek/storage/libsha3_multibuffer.so`` into the wheel, in place for an editable one, if there is a C
compiler.

Without one, or for another processor than x86-64, the wheel is pure Python, and ``sha3_multibuffer.py`` does without.
The library does not depend on Python, so one wheel is for all its versions.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARY = "kubothek/storage/libsha3_multibuffer.so"
_SOURCE = "kubothek/storage/sha3_multibuffer.c"


class Lanes(BuildHookInterface[Any]):
    """Hatchling finds it by its base class."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root, _LIBRARY)
        if wanted() and compiled(Path(self.root, _SOURCE), library):
            build_data["artifacts"].append(f"/{_LIBRARY}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        else:
            library.unlink(missing_ok=True)  # of another source, or another machine
            self.app.display_warning("no C compiler for x86-64 on Linux: SHA3-256 will be hashlib's, one at a time")


def wanted() -> bool:
    """Whether there can be lanes on this machine."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32


def compiled(source: Path, library: Path) -> bool:
    """Whether a compiler made the library, which appears at once: other processes may be using it."""
    made = library.with_suffix(f".{os.getpid()}")
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-fPIC", "-shared", "-s", "-o", str(made), str(source)]
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the compiler of who builds
    except (OSError, subprocess.CalledProcessError):
        made.unlink(missing_ok=True)
        return False
    made.replace(library)
    return True
