"""Files are opened below a directory also where the kernel has no openat2."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from kubothek.storage import beneath


def test_missing_openat2_is_replaced_by_directory_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.ENOSYS)
    monkeypatch.setattr(beneath, "_RESOLVE", 1 << 40)  # so that the call fails
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"x")
    descriptor = beneath.Beneath(tmp_path).open("a/b/file", os.O_RDONLY)
    assert os.read(descriptor, 2) == b"x"
    os.close(descriptor)
