"""When a native node is removed, without starting one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testcluster import native, steps
from tests.testcluster.layout import Layout
from tests.testcluster.native import NativeCluster


class Node(NativeCluster):
    """Answers as it is told, and counts how often it is removed."""

    def __init__(self, directory: Path, answers: Callable[[], bool], *, runs: bool = True) -> None:
        super().__init__(Layout(run=directory / "node", images=directory / "images"))
        self.directory, self.answers, self.runs = directory, answers, runs
        self.removals = 0

    @property
    def in_use(self) -> Path:
        return self.directory / "in-use"

    def healthy(self) -> bool:
        return self.answers()

    def _runs(self) -> bool:
        return self.runs

    def _remove(self) -> None:
        self.removals += 1

    def _configure(self, tools: Path) -> None:
        pass

    def _start(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Tool:
        def ensure(self) -> Path:
            return tmp_path

    for name in ("KUBERNETES", "HELM", "VERSITYGW", "PAUSE", "KUBECONFORM"):
        monkeypatch.setattr(native, name, Tool())
    monkeypatch.setattr(native, "install_packages", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_node_that_answers_late_is_not_removed(tmp_path: Path) -> None:
    answers = iter([False, False, True, True])
    node = Node(tmp_path, lambda: next(answers))
    node.up()
    assert node.removals == 0


def test_node_that_stays_silent_is_removed_unless_held_by_test_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SILENCE_TIMEOUT", 0.0)
    silent, gone = Node(tmp_path, lambda: False), Node(tmp_path, lambda: False, runs=False)
    with silent.held(), gone.held():
        for remove in (silent.up, gone.up, silent.down):
            with pytest.raises(RuntimeError, match="a test run uses it and holds"):
                remove()
    assert (silent.removals, gone.removals) == (0, 0)
    silent.up()
    gone.up()
    assert (silent.removals, gone.removals) == (1, 1)


def test_slow_step_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    with steps.step("go build helm", "takes minutes, once"):
        assert capsys.readouterr().err == "[cluster] go build helm: takes minutes, once\n"
