"""lint and plan: what is wrong, and what would be done, without doing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def everything(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


def test_lint_counts_what_is_valid(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights"), commit("a", "flights"), commit("b", "flights"))
    assert kubothek("lint", "-f", "manifests") == (0, "valid: 1 ObjectStore, 1 Engine, 1 Dataset, 2 Commits\n", "")


def test_lint_tells_every_problem_on_a_line_of_its_own(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights", "nonsense: 1"), commit("a", "flights", spec="retryLimit: many"))
    answer = kubothek("lint", "-f", "manifests")
    assert answer.code == 1
    first, second = lines(answer.err)
    assert first.startswith("error: manifests/all.yaml:17: Dataset flights: spec.nonsense: is not a known field")
    assert second.startswith("error: manifests/all.yaml:26: Commit a: spec.retryLimit: ")


def test_plan_of_a_new_project_says_what_is_created_and_writes_nothing(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights"), commit("a", "flights"))
    before = everything(project)
    answer = kubothek("plan", "-f", "manifests")
    assert lines(answer.out) == [
        "+ create    objectstore/lake  the directory store",
        "= as it is  engine/default    runs jobs on this machine",
        "+ create    dataset/flights   nothing is at 'flights' yet; its first commit makes it",
        "! blocked   commit/a          SourceNotFound: sources/ok.csv is not in objectstore/lake; "
        "`kubothek put` brings it there",
    ]
    assert answer.code == 1
    assert everything(project) == before


def test_plan_tells_the_size_of_a_source_and_whether_spark_carries_it(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE.replace("spec:\n", "spec:\n  sparkFrom: 10\n"), dataset("flights"))
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "small.csv").write_text("a\n1\n")
    (project / "store" / "sources" / "big.csv").write_text("a\n" + "1\n" * 100)
    (project / "manifests" / "more.yaml").write_text(
        commit("big", "flights", "sources/big.csv") + commit("small", "flights", "sources/small.csv")
    )
    answer = kubothek("plan", "-f", "manifests")
    assert answer.code == 0
    assert lines(answer.out)[-2:] == [
        "> commit    commit/big        append to dataset/flights: sources/big.csv (202 B, by Spark)",
        "> commit    commit/small      append to dataset/flights: sources/small.csv (4 B, without Spark)",
    ]


def test_plan_tells_what_a_change_without_a_source_does(kubothek: Kubothek, project: Path) -> None:
    changes = {
        "a": "operation: Delete, where: month = 3",
        "b": "operation: Update, where: 'TRUE', set: {a: '1'}, rowLevel: true",
        "c": "operation: Rollback, toVersion: 3",
        "d": "operation: Rollback, toTime: '2026-11-21T12:00:00Z'",
        "e": "operation: Delete, where: month = 3, purge: true",
    }
    head = "apiVersion: kubothek.io/v1alpha1\nkind: Commit\n"
    manifests = (
        f"---\n{head}metadata: {{name: {name}}}\nspec: {{datasetRef: {{name: flights}}, {spec}}}\n"
        for name, spec in changes.items()
    )
    write(project, STORE, dataset("flights"), *manifests)
    (project / "store").mkdir(exist_ok=True)
    assert lines(kubothek("plan", "-f", "manifests").out)[-5:] == [
        "> commit    commit/a          delete dataset/flights where month = 3",
        "> commit    commit/b          update dataset/flights where TRUE",
        "> commit    commit/c          roll dataset/flights back to version 3",
        "> commit    commit/d          roll dataset/flights back to 2026-11-21T12:00:00Z",
        "> commit    commit/e          purge dataset/flights where month = 3",
    ]


@pytest.mark.slow
def test_plan_checks_filters_before_anything_runs(kubothek: Kubothek, project: Path) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a\n1\n")
    write(project, STORE, dataset("flights"), commit("first", "flights"))
    assert kubothek("run", "-f", "manifests").code == 0
    changes = {
        "one": "where: b = 3",
        "two": "where: a =",
        "three": "where: b = 3, dependsOn: [{name: first}]",
        "four": "where: b = 3, dependsOn: [{name: one}]",
    }
    manifests = (
        f"---\napiVersion: kubothek.io/v1alpha1\nkind: Commit\nmetadata: {{name: {name}}}\n"
        f"spec: {{datasetRef: {{name: flights}}, operation: Delete, {spec}}}\n"
        for name, spec in changes.items()
    )
    write(project, STORE, dataset("flights"), commit("first", "flights"), *manifests)
    answer = kubothek("plan", "-f", "manifests")
    assert answer.code == 1
    assert lines(answer.out)[-5:] == [
        "= as it is  commit/first      is version 1 of dataset/flights",
        "! blocked   commit/one        FilterInvalid: no column 'b'; there are a",
        "! blocked   commit/two        FilterInvalid: filter, character 4: expected a literal, found the end",
        "> commit    commit/four       delete dataset/flights where b = 3",  # by then there may be such a column
        "! blocked   commit/three      FilterInvalid: no column 'b'; there are a",
    ]


def test_the_sample_of_changes_is_valid_together_with_what_it_changes(kubothek: Kubothek) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    paths = [argument for name in ("stores/local.yaml", "flights", "changes") for argument in ("-f", examples / name)]
    answer = kubothek("lint", *paths)
    assert answer.code == 0
    assert "8 Commits" in answer.out


def test_plan_tells_what_syncs_would_do_and_which_cannot(kubothek: Kubothek, project: Path) -> None:
    def sync(name: str, of: str, direction: str, more: str = "") -> str:
        spec = f"{{repositoryRef: {{name: theirs}}, datasetRef: {{name: {of}}}, direction: {direction}{more}}}"
        return f"---\napiVersion: kubothek.io/v1alpha1\nkind: Sync\nmetadata: {{name: {name}}}\nspec: {spec}\n"

    repository = (
        "---\napiVersion: kubothek.io/v1alpha1\nkind: Repository\nmetadata: {name: theirs}\n"
        "spec: {url: 'https://example.org/data/'}\n"
    )
    syncs = (
        sync("in", "copy", "Pull", ", remote: a/b"),
        sync("idle", "copy", "Pull", ", suspend: true"),
        sync("over", "own", "Pull"),
        sync("out", "own", "Push"),
        sync("table", "flights", "Push"),
        sync("lost", "nowhere", "Pull"),
    )
    copy, own = dataset("copy", "ledger: {kind: Copy}"), dataset("own", "ledger: {metadata: []}")
    write(project, STORE, dataset("flights"), copy, own, repository, *syncs)
    told = lines(kubothek("plan", "-f", "manifests").out)
    by_name = {word: line for line in told for word in line.split()[:5] if "/" in word}
    assert "nothing is at 'copy' yet; a Sync brings it" in by_name["dataset/copy"]
    assert by_name["repository/theirs"].endswith("https://example.org/data/ is pulled from")
    assert by_name["sync/in"].endswith("pulls https://example.org/data/a/b what is new")
    assert by_name["sync/idle"].startswith("‖ suspended")
    for name, reason in (("over", "NotACopy"), ("out", "PushNotAllowed"), ("table", "NotALedger")):
        assert by_name[f"sync/{name}"].startswith("! blocked")
        assert f"{reason}: " in by_name[f"sync/{name}"]
    assert by_name["sync/lost"].endswith("needs dataset/nowhere, which is not in these manifests: add its manifest with -f")


def test_plan_names_what_no_manifest_has(kubothek: Kubothek, project: Path) -> None:
    write(project, dataset("flights"), commit("a", "flights"), commit("b", "planes"))
    assert lines(kubothek("plan", "-f", "manifests").out) == [
        "! blocked   dataset/flights  needs objectstore/lake, which is not in these manifests: add its manifest with -f",
        "! blocked   commit/a         needs objectstore/lake, which is not in these manifests: add its manifest with -f",
        "! blocked   commit/b         needs dataset/planes, which is not in these manifests: add its manifest with -f",
    ]


@pytest.mark.slow
def test_plan_after_a_run_says_what_an_edit_changes_and_when_it_takes_effect(kubothek: Kubothek, project: Path) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a\n1\n")
    write(project, STORE, dataset("flights"), commit("a", "flights"))
    assert kubothek("run", "-f", "manifests").code == 0
    write(
        project,
        STORE,
        dataset("flights", "table: {targetFileSize: 1Gi}"),
        commit("a", "flights", spec="suspend: true"),
        commit("b", "flights", spec="id: default/a"),
        commit("c", "flights", "sources/other.csv", spec="id: default/a"),
        commit("d", "flights", spec="suspend: true"),
    )
    before = everything(project)
    answer = kubothek("plan", "-f", "manifests")
    assert lines(answer.out) == [
        "= as it is  objectstore/lake  file:store can be read",
        "= as it is  engine/default    runs jobs on this machine",
        "~ change    dataset/flights   spec.table.targetFileSize: 128Mi → 1Gi (takes effect at the next write)",
        "= as it is  dataset/flights   version 1, 1 row",
        "~ change    commit/a          spec.suspend: false → true (may be edited)",
        "= as it is  commit/a          is version 1 of dataset/flights",
        "= as it is  commit/b          is version 1 of dataset/flights",
        "! blocked   commit/c          IdReused: the id 'default/a' was another change, version 1 of dataset/flights",
        "‖ suspended commit/d          spec.suspend is true",
    ]
    assert answer.code == 1
    assert everything(project) == before
