"""Standing sources without a cluster: `kubothek run` takes what landed, and `describe` tells of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kubothek as lake_door
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

SOURCE = "sources: [{name: inbox, prefix: landing/, format: CSV, batch: {maxFiles: 1}%s}]"


def land(project: Path, name: str, content: str) -> None:
    file = project / "store" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def rows(project: Path) -> int:
    return lake_door.open((project / "store").as_uri()).dataset("letters").rows


@pytest.mark.slow
def test_run_ingests_new_files_and_describe_shows_source(kubothek: Kubothek, project: Path) -> None:
    for i in range(18):  # more than one look takes
        land(project, f"landing/{i}.csv", f"a,b\n{i},x\n")
    land(project, "other/more.csv", "a,b\n99,x\n")
    write(
        project, STORE, dataset("letters", SOURCE % ", quarantine: true"), commit("more", "letters", "other/more.csv")
    )
    assert "source 'inbox': 18 files (" in kubothek("plan", "-f", "manifests").out
    assert kubothek("run", "-f", "manifests").code == 0
    assert rows(project) == 19
    assert "source 'inbox': nothing new" in kubothek("plan", "-f", "manifests").out
    shutil.rmtree(project / "store" / ".kubothek-state")
    land(project, "landing/18.csv", "a,b\n18,x\n")
    land(project, "landing/bad.csv", "a,c\n1,x\n")
    assert kubothek("run", "-f", "manifests").code == 0
    assert rows(project) == 20
    told = kubothek("describe", "letters", "--store", "file:store").out
    lines = told[told.index("Sources:") :].splitlines()
    assert lines[1].startswith("  inbox                   19 files taken, the last 'landing/18.csv', ")
    assert lines[2].startswith("    put into quarantine: 'landing/bad.csv': SchemaMismatch: ")


@pytest.mark.slow
def test_run_with_bad_file_names_file_and_resumes_after_replacement(kubothek: Kubothek, project: Path) -> None:
    schema = ", schema: [{name: a, type: int64}, {name: b, type: string}]"
    land(project, "landing/a.csv", "a,b\n1,x\nno,y\n")
    write(project, STORE, dataset("letters", SOURCE % schema))
    failed = kubothek("run", "-f", "manifests")
    assert failed.code == 1
    assert "SourceStalled" in failed.out + failed.err
    assert "'landing/a.csv', column 'a', row 2" in failed.out + failed.err
    land(project, "landing/a.csv", "a,b\n1,x\n2,y\n")
    assert kubothek("run", "-f", "manifests").code == 0
    assert rows(project) == 2
