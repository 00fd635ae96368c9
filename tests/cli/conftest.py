"""The command line in this process, and projects to run it in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from kubothek.cli.main import main
from kubothek.local import processes
from tests.jobserver import ForkedJob


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Kubothek = Callable[..., Answer]


@pytest.fixture
def kubothek(capsys: pytest.CaptureFixture[str]) -> Kubothek:
    """Run a command line as a user would, but in this process."""

    def run(*arguments: str | Path) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBOTHEK_STORE", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def forked_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs start at once."""
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=ForkedJob, DEVNULL=subprocess.DEVNULL))
