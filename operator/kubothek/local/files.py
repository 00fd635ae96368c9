"""Small files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file in one step: a reader, or a crash, sees the old bytes or the new, never a part."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_bytes(data)
    staged.replace(path)
