"""A PySpark program in processes of its own, which SIGKILL ends while its writes wait at requests to the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faultproxy import Injected
from tests.spark import writing

_TIMEOUT = 240.0
"""Seconds for a write to come to its request: as long as a slow machine may take."""


class Program:
    """The program of :mod:`tests.spark.writing` with its JVM and Python workers; a context manager, which kills all."""

    def __init__(self, log: Path, python: Path) -> None:
        """``log`` is where its output goes, ``python`` the Python of its workers."""
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(writing.__file__))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYSPARK_PYTHON": str(python)},
                text=True,
                start_new_session=True,  # by which all its processes are known: the workers have groups of their own
            )

    def start(self, write: dict[str, Any], until: Injected) -> None:
        """Start this write beside the others, and return when it waits at this request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(write) + "\n")
        self._process.stdin.flush()
        assert until.arrived.wait(_TIMEOUT), f"{write} never came to {until}: {self._log.read_text()[-20000:]}"

    def kill(self) -> None:
        """SIGKILL every process of the program: the oldest first, so that none acts on the end of another."""
        while alive := _processes(self._process.pid):
            for process in alive:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def _processes(session: int) -> list[int]:
    """Return the processes of this session of the operating system that have not ended, the oldest first."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            number = int(process.name)
            # Fields after the name in parentheses: state, parent, group, session (man 5 proc).
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append((int(fields[19]), number))
    return [number for _, number in sorted(found)]
