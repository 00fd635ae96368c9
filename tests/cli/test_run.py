"""``kubothek run`` with real jobs: what it makes, what it refuses, and how it ends."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

import kubothek as lake_door
from kubothek.local.state import State, locked
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

pytestmark = pytest.mark.slow  # each test starts processes

CUT_GZIP = gzip.compress("\n".join(["a,b", *(f"{n},x" for n in range(9999))]).encode())[:9999]
ROWS = "a,b\n1,x\n2,y\n3,x\n"


def source(project: Path, content: bytes | str = ROWS, name: str = "ok.csv") -> Path:
    """A source file in the store."""
    file = project / "store" / "sources" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def rows(project: Path, name: str) -> int:
    return lake_door.open((project / "store").as_uri()).dataset(name).rows


def test_run_commits_rows_and_second_run_starts_no_job(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters", "table: {partitionOn: [b]}"), commit("first", "letters"))

    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    assert "commit/first" in first.out
    assert "Done: version 1: 3 rows in 2 files added" in first.out
    assert first.out.splitlines()[-1].startswith("4 resources ready (2 jobs, ")
    assert rows(project, "letters") == 3

    second = kubothek("run", "-f", "manifests")
    assert second.code == 0
    assert second.out.startswith("up to date: 4 resources (0 jobs, ")
    assert rows(project, "letters") == 3


def test_run_after_state_loss_repeats_no_commit(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    kubothek("run", "-f", "manifests")
    subprocess.run(["rm", "-r", project / "store" / ".kubothek-state"], check=True)
    again = kubothek("run", "-f", "manifests")
    assert "a commit with the id 'default/first' had made this change before; nothing was added" in again.out
    assert (again.code, rows(project, "letters")) == (0, 3)


def test_run_after_store_loss_commits_rows_again(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    kubothek("run", "-f", "manifests")
    subprocess.run(["rm", "-r", project / "store"], check=True)
    source(project)
    assert kubothek("run", "-f", "manifests").code == 0
    assert rows(project, "letters") == 3


BAD_INPUT: Final = {
    "absent.csv": (None, "SourceNotFound"),
    "empty.csv": (b"", "SourceEmpty"),
    "type.csv": (b"a,b\n1,x\nmany,y\n", "DataTypeMismatch"),
    "column.csv": (b"a,c\n1,x\n", "SchemaMismatch"),
    "cut.csv.gz": (CUT_GZIP, "SourceCorrupt"),
}


def test_run_with_bad_input_names_input_and_changes_nothing(kubothek: Kubothek, project: Path) -> None:
    source(project)
    resources = [STORE]
    for number, (name, (content, _)) in enumerate(BAD_INPUT.items()):
        if content is not None:
            source(project, content, f"bad-{name}")
        resources += [
            dataset(f"letters{number}", "table: {schema: [{name: a, type: int64}, {name: b, type: string}]}"),
            commit(f"a-good{number}", f"letters{number}"),
            commit(f"bad{number}", f"letters{number}", f"sources/bad-{name}"),
        ]
    lines = "".join(resources).splitlines()
    write(project, *resources)
    answer = kubothek("run", "-f", "manifests")
    assert answer.code == 1
    *problems, verdict = answer.err.splitlines()
    assert verdict.startswith("5 of 17 resources failed or waiting (")
    told = dict(zip(sorted(problems[::2]), problems[1::2], strict=True))
    for number, ((problem, log), (name, (_, reason))) in enumerate(zip(told.items(), BAD_INPUT.items(), strict=True)):
        line = lines.index(f"metadata: {{name: bad{number}}}") - 1  # counted from 1, its document begins 2 lines before
        assert problem.startswith(f"failed: commit/bad{number} (manifests/all.yaml:{line}): {reason}: ")
        assert f"'sources/bad-{name}'" in problem
        assert Path(log.removeprefix("        log: ")).exists()
        assert rows(project, f"letters{number}") == 3


def test_run_after_source_repair_commits(kubothek: Kubothek, project: Path) -> None:
    (project / "store").mkdir()
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    assert kubothek("run", "-f", "manifests").code == 1
    source(project)
    assert kubothek("run", "-f", "manifests").code == 0
    assert rows(project, "letters") == 3


def test_run_with_forbidden_edit_is_refused_before_any_job(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    kubothek("run", "-f", "manifests")
    write(project, STORE, dataset("letters", "table: {partitionOn: [b]}"), commit("first", "letters"))
    told = (
        "error: manifests/all.yaml:17: Dataset letters: spec.table.partitionOn: table.partitionOn cannot change, as "
        "every file is laid out by it: create another Dataset\n"
    )
    assert kubothek("run", "-f", "manifests") == (1, "", told)
    assert kubothek("plan", "-f", "manifests") == (1, "", told)


def test_run_with_removed_manifest_reports_resource_and_keeps_data(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    kubothek("run", "-f", "manifests")
    write(project, STORE)
    answer = kubothek("run", "-f", "manifests")
    assert answer.code == 0
    assert answer.err == "note: not in these manifests; unchanged: commit/first, dataset/letters\n"
    assert rows(project, "letters") == 3


def test_run_with_unreachable_bucket_is_reported(
    kubothek: Kubothek, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr("kubothek.local.loop.PATIENCE", timedelta(seconds=1))
    unreachable = STORE.replace('"file:store"', "s3://bucket/lake, endpoint: 'http://127.0.0.1:9'")
    write(project, unreachable, dataset("letters"))
    answer = kubothek("run", "-f", "manifests")
    assert answer.code == 1
    assert "waiting: objectstore/lake (manifests/all.yaml:1): StoreUnavailable: " in answer.err


def test_concurrent_second_run_is_refused(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE)
    with locked([State.of("file:store", None, project)]):
        answer = kubothek("run", "-f", "manifests")
    assert answer.code == 1
    assert answer.err.startswith(f"error: kubothek (pid {os.getpid()}) is running on this store")


GATE = """
import sys
if "/first/" in " ".join(sys.orig_argv):
    open(__file__.replace("sitecustomize.py", "gate")).read()
"""
"""Makes the job of the Commit ``first`` wait for somebody who writes to a FIFO."""


@contextmanager
def running(project: Path) -> Iterator[subprocess.Popen[str]]:
    """``kubothek run`` as a process of its own, with the gate."""
    program = "from kubothek.cli.main import main; main(['run', '-f', 'manifests'])"
    (project / "gated").mkdir()
    (project / "gated" / "sitecustomize.py").write_text(GATE)
    os.mkfifo(project / "gated" / "gate")
    inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project / "gated"), *inherited])}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_run_interrupted_by_ctrl_c_stops_jobs_and_resumes(
    kubothek: Kubothek, project: Path, how: signal.Signals
) -> None:
    source(project)
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    with running(project) as process, (project / "gated" / "gate").open("w"):  # returns when the job is at the gate
        process.send_signal(how)
        _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    notice, verdict = told.splitlines()
    assert notice == "stopping the jobs ..."
    assert verdict.startswith("stopped (2 jobs, ")
    assert verdict.endswith("; run the same command to continue")

    answer = kubothek("run", "-f", "manifests")
    assert (answer.code, rows(project, "letters")) == (0, 3)
    assert [path.name for path in (project / "store/.kubothek-state/jobs/default/first").iterdir()] == ["1"]


@pytest.mark.slow
def test_run_applies_index_edit_before_end(kubothek: Kubothek, project: Path) -> None:
    source(project)
    write(project, STORE, dataset("letters", "table: {partitionOn: [b]}"), commit("first", "letters"))
    assert kubothek("run", "-f", "manifests").code == 0
    indices = "table: {partitionOn: [b], indices: [{column: a}]}"
    write(project, STORE, dataset("letters", indices), commit("first", "letters"))
    edited = kubothek("run", "-f", "manifests")
    assert (edited.code, edited.err) == (0, "")
    letters = lake_door.open((project / "store").as_uri()).dataset("letters")
    assert letters.snapshot().head.index_state.kinds() == {"a": "Native"}
    assert [record.operation for record in letters.history()] == ["Index", "Append"]
    assert kubothek("run", "-f", "manifests").out.splitlines()[-1].startswith("up to date: ")
    assert len(list(letters.history())) == 2
