"""``kubothek run`` with Queries: real jobs, in the order that dependsOn says, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import kubothek as door
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

REPORT = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {name: report}
spec:
  storeRef: {name: lake}
  dependsOn: [{name: first}]
  sql: SELECT b, sum(a)::BIGINT AS a FROM letters GROUP BY b ORDER BY b
  result: {location: {path: reports, format: CSV}}
"""
TOTALS = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {name: totals}
spec:
  storeRef: {name: lake}
  dependsOn: [{name: first}]
  sql: SELECT b, sum(a)::BIGINT AS a FROM letters GROUP BY b
  result: {datasetRef: {name: totals}}
"""
SUMMED = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Commit
metadata: {name: summed}
spec:
  datasetRef: {name: totals}
  operation: Append
  dependsOn: [{name: first}]
  source:
    sql: SELECT b, sum(a)::BIGINT AS a FROM letters GROUP BY b
"""


STANDING = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {name: totals}
spec:
  storeRef: {name: lake}
  follow: [{name: letters}]
  sql: SELECT b, sum(a)::BIGINT AS a FROM letters GROUP BY b
  result: {datasetRef: {name: totals}, operation: Merge, key: [b]}
"""


def project_with_queries(project: Path, *queries: str) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a,b\n1,x\n2,y\n3,x\n")
    write(project, STORE, dataset("letters"), dataset("totals"), commit("first", "letters"), *queries)


@pytest.mark.slow
def test_run_executes_queries_once_after_their_commits(kubothek: Kubothek, project: Path) -> None:
    project_with_queries(project, REPORT, TOTALS)
    planned = kubothek("plan", "-f", "manifests").out
    assert "runs, and its rows become a file in reports" in planned
    assert "runs, and its rows become Dataset 'totals'" in planned

    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    (report,) = (project / "store" / "reports").iterdir()
    assert report.read_text() == '"b","a"\n"x",4\n"y",2\n'
    assert f"2 rows in reports/{report.name}" in first.out
    totals = door.open((project / "store").as_uri()).dataset("totals")
    found = {row["b"]: row["a"] for row in totals.scan().read_all().to_pylist()}
    assert found == {"x": 4, "y": 2}

    second = kubothek("run", "-f", "manifests")
    assert "(0 jobs, " in second.out
    assert [file.name for file in (project / "store" / "reports").iterdir()] == [report.name]
    assert "its rows are a file in reports" in kubothek("plan", "-f", "manifests").out
    listed = kubothek("get", "-f", "manifests", "queries").out
    assert f"2 rows in reports/{report.name}" in listed
    assert "2 rows in version 1 of Dataset 'totals'" in listed


@pytest.mark.slow
def test_run_keeps_dataset_of_following_query_current(kubothek: Kubothek, project: Path) -> None:
    project_with_queries(project, STANDING)
    planned = kubothek("plan", "-f", "manifests").out
    assert "after other jobs: Dataset 'letters' of spec.follow has no version yet" in planned

    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    totals = door.open((project / "store").as_uri()).dataset("totals")
    assert {row["b"]: row["a"] for row in totals.scan().read_all().to_pylist()} == {"x": 4, "y": 2}
    assert "(0 jobs, " in kubothek("run", "-f", "manifests").out
    assert "the next one begins when an input has a new version" in kubothek("plan", "-f", "manifests").out

    (project / "store" / "sources" / "ok2.csv").write_text("a,b\n10,y\n7,z\n")
    second_commit = commit("second", "letters", "sources/ok2.csv")
    write(project, STORE, dataset("letters"), dataset("totals"), commit("first", "letters"), second_commit, STANDING)
    second = kubothek("run", "-f", "manifests")
    assert (second.code, second.err) == (0, "")
    assert {row["b"]: row["a"] for row in totals.scan().read_all().to_pylist()} == {"x": 4, "y": 12, "z": 7}
    assert [record.version for record in totals.history()] == [3, 2, 1]


@pytest.mark.slow
def test_run_commits_rows_of_statement_once(kubothek: Kubothek, project: Path) -> None:
    project_with_queries(project, SUMMED)
    assert "append to dataset/totals: rows of a SELECT over objectstore/lake" in kubothek("plan", "-f", "manifests").out
    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    totals = door.open((project / "store").as_uri()).dataset("totals")
    assert {row["b"]: row["a"] for row in totals.scan().read_all().to_pylist()} == {"x": 4, "y": 2}
    assert "(0 jobs, " in kubothek("run", "-f", "manifests").out
    assert totals.rows == 2


@pytest.mark.slow
def test_lint_reports_statement_of_commit_that_does_not_parse(kubothek: Kubothek, project: Path) -> None:
    project_with_queries(project, SUMMED.replace("GROUP BY b", "GROUPED BY b"))
    linted = kubothek("lint", "manifests")
    assert linted.code == 1
    assert "Commit summed: spec.source.sql: QueryInvalid: Parser Error: " in linted.out + linted.err


@pytest.mark.slow
def test_run_with_invalid_query_fails_and_is_retried_by_next_run(kubothek: Kubothek, project: Path) -> None:
    project_with_queries(project, REPORT.replace("FROM letters", "FROM latters"))
    for _ in range(2):
        answer = kubothek("run", "-f", "manifests")
        assert answer.code == 1
        assert "no dataset 'latters'; there is 'letters'" in answer.out
    assert not (project / "store" / "reports").exists()


def test_queries_example_is_valid_with_its_dependencies(kubothek: Kubothek) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    paths = [argument for name in ("stores/local.yaml", "flights", "queries") for argument in ("-f", examples / name)]
    assert "3 Queries" in kubothek("lint", *paths).out
