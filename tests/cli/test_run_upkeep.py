"""``kubothek run`` with real jobs: small files of Datasets become large ones, by themselves and on request."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as lake_door
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

NAMES = ("one", "two")


def sources(project: Path) -> None:
    for number, name in enumerate(NAMES):
        file = project / "store" / "sources" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"a,b\n{number},x\n{number},y\n")


def commits() -> list[str]:
    return [commit(name, "letters", f"sources/{name}.csv") for name in NAMES]


def compaction(name: str, spec: str = "") -> str:
    return f"""\
---
apiVersion: kubothek.io/v1alpha1
kind: Compaction
metadata: {{name: {name}}}
spec:
  datasetRef: {{name: letters}}
  {spec}
"""


def letters(project: Path) -> tuple[int, int, list[int]]:
    """Version, files, and the rows' values."""
    table = lake_door.open((project / "store").as_uri()).dataset("letters")
    values = table.scan(columns=["a"]).read_all()["a"].to_numpy().tolist()
    return table.version, table.health().totals.files, sorted(values)


ROWS = [0, 0, 1, 1]


@pytest.mark.slow
def test_run_compacts_dataset_after_last_commit(kubothek: Kubothek, project: Path) -> None:
    sources(project)
    wish = "maintenance: {compaction: {minFiles: 2}}"
    write(project, STORE, dataset("letters", wish), *commits())
    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    assert letters(project) == (3, 1, ROWS)
    second = kubothek("run", "-f", "manifests")
    assert second.out.startswith("up to date: 5 resources (0 jobs, ")


@pytest.fixture
def grown(project: Path) -> Path:
    """A project in whose store a table of two files is."""
    (project / "store").mkdir()
    letters = lake_door.open((project / "store").as_uri()).create_dataset("letters")
    for _ in NAMES:
        letters.append(pa.table({"a": [1], "b": ["x"]}))
    return project


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("maintenance: {compaction: {minFiles: 2}}", "~ change dataset/letters 2 small files can be fewer"),
        ("maintenance: {compaction: {minFiles: 3}}", None),
        (
            "maintenance: {compaction: {minFiles: 2, zOrderBy: [a, b]}}",
            "~ change dataset/letters 2 files can be put in order",
        ),
        ("maintenance: {compaction: {minFiles: 2, sortBy: [nope]}}", "! blocked dataset/letters LayoutInvalid"),
        (
            "maintenance: {compaction: {minFiles: 2, schedule: {cron: '@yearly'}}}",
            None,
        ),
        (
            "maintenance: {compaction: {schedule: {cron: '0 0 30 2 *'}}}",
            "! blocked dataset/letters InvalidSchedule: maintenance.compaction.schedule",
        ),
        (
            "suspend: true\n  maintenance: {compaction: {minFiles: 2}}",
            "‖ suspended dataset/letters spec.suspend is true",
        ),
    ],
)
def test_plan_shows_maintenance_of_dataset(kubothek: Kubothek, grown: Path, spec: str, says: str | None) -> None:
    write(grown, STORE, dataset("letters", spec))
    answer = kubothek("plan", "-f", "manifests")
    lines = (" ".join(line.split()) for line in answer.out.splitlines())
    told = [line for line in lines if "files" in line or line.startswith(("!", "‖"))]
    assert len(told) == (says is not None)
    assert all(line.startswith(says) for line in told if says is not None)
    assert answer.code == (says is not None and says.startswith("!"))


@pytest.mark.slow
def test_run_compactions_wait_for_commits_and_report_outcome(kubothek: Kubothek, project: Path) -> None:
    sources(project)
    asked = (compaction("a", "dryRun: true"), compaction("b", "where: nowhere = 1"), compaction("c"))
    write(project, STORE, *asked, dataset("letters"), *commits())
    assert "no file of dataset/letters is worth rewriting yet" in kubothek("plan", "-f", "manifests").out
    answer = kubothek("run", "-f", "manifests")
    lines = {word: line for line in answer.out.splitlines() for word in line.split() if word.startswith("compaction/")}
    assert "2 files" in lines["compaction/a"]
    assert "nowhere" in lines["compaction/b"]
    assert "version 3: 2 files" in lines["compaction/c"]
    assert answer.code == 1, "one of them failed"
    planned = {line.split("compaction/")[-1][0]: line for line in kubothek("plan", "-f", "manifests").out.splitlines()}
    assert planned["b"].startswith("! blocked")
    assert planned["c"].startswith("= as it is")
    assert letters(project) == (3, 1, ROWS)
