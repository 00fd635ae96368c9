"""Atomic writes of small files."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers, also after a crash, find the old bytes or the new, never a part."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_bytes(data)
    staged.replace(path)
