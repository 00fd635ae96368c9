"""What a run shows: a table on a terminal, lines elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from kubothek.api.commit import Commit, CommitProgress, CommitStatus
from kubothek.api.conditions import State, complete, conditions_of, failed, progressing, waiting
from kubothek.api.kinds import parse
from kubothek.cli.display import LiveTable, PlainScreen
from kubothek.local.summary import summarise

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def commit(name: str, state: State | None = None, **status: object) -> Commit:
    """A Commit in a state."""
    manifest = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Commit",
        "metadata": {"name": name},
        "spec": {"datasetRef": {"name": "d"}, "operation": "Append", "source": {"paths": ["a.csv"], "format": "CSV"}},
    }
    resource = parse(manifest)
    assert isinstance(resource, Commit)
    if state is not None:
        generation, conditions = conditions_of(state, CommitStatus(), 1, NOW)
        status |= {"observed_generation": generation, "conditions": conditions}
    return resource.model_copy(update={"status": CommitStatus().model_copy(update=status)})


NEW, RUNNING = commit("new"), progressing("Progressing", "a job makes the change")
WRITING = commit("writing", RUNNING, progress=CommitProgress(stage="Writing", tasks_done=1, tasks_total=4, rows=1234))
READING = commit("reading", RUNNING, progress=CommitProgress(stage="Reading"))
DONE = commit("done", complete("Succeeded", "the change is committed"), version=2, rows=1, files=1)
FAILED = commit("failed", failed("SourceNotFound", "there is no 'a.csv': upload it"))
QUEUED = commit("queued", waiting("Queued", "waits for other jobs on this machine"))


def rendered(*commits: Commit, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=110, height=height)
    table = LiveTable([summarise(resource) for resource in commits], console)
    with console.capture() as captured:
        console.print(table.render())
    return [line.rstrip() for line in captured.get().splitlines()]


def test_live_table_shows_state_and_progress_of_each_resource() -> None:
    header, *rows = rendered(NEW, WRITING, READING, DONE, FAILED)
    assert header.split() == ["Kind", "Name", "State", "Progress", "Message"]
    assert [row.split()[:4] for row in rows if "writing" not in row and "reading" not in row] == [
        ["·", "Commit", "new", "Waiting"],
        ["✓", "Commit", "done", "Done"],
        ["✗", "Commit", "failed", "Failed"],
    ]
    assert "Running" in rows[1]
    assert "━" in rows[1]
    assert rows[1].endswith("Writing, 1,234 rows")
    assert rows[3].endswith("version 2: 1 row in 1 file added")
    assert rows[4].endswith("there is no 'a.csv': upload it")


def test_live_table_beyond_height_counts_hidden_and_shows_important_rows() -> None:
    many = [commit(f"done-{n}", complete("Succeeded", "")) for n in range(100)]
    lines = rendered(*many, FAILED, WRITING, height=16)
    assert len(lines) <= 12
    assert "failed" in lines[1]
    assert "writing" in lines[2]
    assert "… 93 more" in lines[-1]
    assert "93 Done" in lines[-1]


def test_live_table_update_replaces_row() -> None:
    console = Console(file=StringIO(), width=110, height=40)
    table = LiveTable([summarise(NEW)], console)
    table.update(commit("new", complete("Succeeded", "the change is committed")))
    with console.capture() as captured:
        console.print(table.render())
    assert "Done" in captured.get()
    assert "Waiting" not in captured.get()


def test_plain_output_prints_changes_only(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen([summarise(NEW)])
    for resource in (QUEUED, WRITING, WRITING, DONE, DONE, FAILED):
        screen.update(resource)
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        f"{'commit/writing':<28} Running: Writing, 1,234 rows",
        f"{'commit/done':<28} Done: version 2: 1 row in 1 file added",
        f"{'commit/failed':<28} Failed: there is no 'a.csv': upload it",
    ]


def test_status_of_older_generation_is_not_shown() -> None:
    edited = DONE.model_copy(update={"metadata": DONE.metadata.model_copy(update={"generation": 2})})
    assert summarise(edited).message == "not looked at yet"
