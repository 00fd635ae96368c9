"""`make demo-cluster`, under way."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.kubectl import eventually

SPARK_IS_THROUGH = "commit.kubothek.io/nyc condition met"
"""What the demo says when its commits are made: an executor asks for half of the node, and small jobs that come and go
would not leave it that.
"""
LIMIT = 800
"""Seconds for all of it."""


class Demo:
    """A context manager: what is still under way then is ended."""

    def __init__(self, root: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                ["make", "demo-cluster"], cwd=root, env=environment, stdout=file, stderr=subprocess.STDOUT
            )

    def wait_for_commits(self) -> None:
        """The operator is installed, and has made the demo's commits."""
        eventually(self._spark_is_through, "the commits of the demo")

    def output(self) -> str:
        """What it printed, once it is through."""
        assert self._process.wait(LIMIT) == 0, self._said()[-12000:]
        return self._said()

    def _spark_is_through(self) -> bool:
        assert not self._process.poll(), self._said()[-12000:]
        return SPARK_IS_THROUGH in self._said()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
