"""Running commands and reporting how long each step took."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class CommandError(RuntimeError):
    """A command that failed, with the end of what it printed."""


def report(message: str) -> None:
    """Print one progress line. Standard error, so that `env` and friends keep standard output to themselves."""
    print(f"[cluster] {message}", file=sys.stderr, flush=True)


@contextmanager
def step(name: str, announcement: str = "") -> Iterator[None]:
    """Report the time that the enclosed block took; with an announcement, also that it begins."""
    if announcement:
        report(f"{name}: {announcement}")
    started = time.monotonic()
    try:
        yield
    except BaseException:
        report(f"{name}: FAILED after {time.monotonic() - started:.1f} s")
        raise
    report(f"{name}: {time.monotonic() - started:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run a command and return its standard output; raise CommandError with its last lines if it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(
        words, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-40:])
        raise CommandError(f"`{' '.join(words)}` ended with {result.returncode}:\n{tail}")
    return result.stdout


def succeeds(command: Sequence[str | Path], timeout: float | None = None) -> bool:
    """Whether a command can be run and ends with 0 in time."""
    try:
        run(command, timeout=timeout)
    except (CommandError, OSError, subprocess.TimeoutExpired):
        return False
    return True
