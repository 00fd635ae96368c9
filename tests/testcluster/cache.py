"""A cache of built directories that is never half full.

An entry is a directory named by what it was made from. It is filled under a temporary name and renamed when complete,
so a build that was killed leaves nothing that looks finished, and two builds of the same entry cannot mix.
"""

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_LENGTH = 12


def content_key(*parts: bytes | str | Path) -> str:
    """A short key of the given values; a path stands for its content, a directory for all files below it."""
    digest = hashlib.sha256()
    for part in parts:
        for chunk in _chunks(part):
            digest.update(len(chunk).to_bytes(8, "big"))
            digest.update(chunk)
    return digest.hexdigest()[:KEY_LENGTH]


def _chunks(part: bytes | str | Path) -> Iterator[bytes]:
    if isinstance(part, bytes):
        yield part
    elif isinstance(part, str):
        yield part.encode()
    elif part.is_dir():
        for file in sorted(path for path in part.rglob("*") if path.is_file()):
            yield file.relative_to(part).as_posix().encode()
            yield file.read_bytes()
    else:
        yield part.read_bytes()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file beside `path`; the kernel drops it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a lock on a file that others may hold too; the kernel drops it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Hold a lock on a file that no other holds; False, at once, if another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def build_once(entry: Path, fill: Callable[[Path], None]) -> Path:
    """Return `entry`, filling it first if it does not exist. One process builds it, others wait."""
    if entry.exists():
        return entry
    with locked(entry):
        if entry.exists():
            return entry
        workplace = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
        try:
            fill(workplace)
            workplace.chmod(0o755)
            workplace.rename(entry)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    return entry
