"""lint and plan: what is wrong, and what would be done, without doing anything."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import kubothek as lake_door
from kubothek.local.state import State, locked
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def everything(directory: Path) -> dict[Path, tuple[int, bytes]]:
    """Time and content of each file, and each directory."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in directory.rglob("*")
    }


def test_lint_counts_valid_resources(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights"), commit("a", "flights"), commit("b", "flights"))
    assert kubothek("lint", "-f", "manifests") == (0, "valid: 1 ObjectStore, 1 Engine, 1 Dataset, 2 Commits\n", "")


def test_lint_prints_each_problem_on_own_line(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights", "nonsense: 1"), commit("a", "flights", spec="retryLimit: many"))
    answer = kubothek("lint", "-f", "manifests")
    assert answer.code == 1
    first, second = lines(answer.err)
    assert first.startswith("error: manifests/all.yaml:17: Dataset flights: spec.nonsense: is not a known field")
    assert second.startswith("error: manifests/all.yaml:26: Commit a: spec.retryLimit: ")


def test_plan_of_new_project_lists_creations_and_writes_nothing(kubothek: Kubothek, project: Path) -> None:
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


def test_plan_shows_source_size_and_engine_choice(kubothek: Kubothek, project: Path) -> None:
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


def test_plan_shows_effect_of_commit_without_source(kubothek: Kubothek, project: Path) -> None:
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
def test_plan_validates_filters_before_run(kubothek: Kubothek, project: Path) -> None:
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
        "! blocked   commit/three      FilterInvalid: no column 'b'; there are a",
        "! blocked   commit/two        FilterInvalid: filter, character 4: expected a literal, found the end",
        "! blocked   commit/four       DependencyFailed: Commit 'one' of spec.dependsOn failed; create it again under "
        "the same name to continue",
    ]


def test_changes_example_is_valid_with_its_dependencies(kubothek: Kubothek) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    paths = [argument for name in ("stores/local.yaml", "flights", "changes") for argument in ("-f", examples / name)]
    answer = kubothek("lint", *paths)
    assert answer.code == 0
    assert "8 Commits" in answer.out


def test_plan_shows_syncs_and_blocked_ones(kubothek: Kubothek, project: Path) -> None:
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
    assert "DatasetNotFound: there is no valid Dataset 'nowhere'" in by_name["sync/lost"]


def test_plan_names_references_missing_from_manifests(kubothek: Kubothek, project: Path) -> None:
    write(project, dataset("flights"), commit("a", "flights"), commit("b", "planes"))
    missing = "in namespace 'default': create it, or correct it if it is Stalled"
    assert lines(kubothek("plan", "-f", "manifests").out) == [
        f"! blocked   dataset/flights  ObjectStoreNotFound: there is no valid ObjectStore 'lake' {missing}",
        "! blocked   commit/a         DependencyNotReady: Dataset 'flights' is not ready (ObjectStoreNotFound): its "
        "status says what to do",
        f"! blocked   commit/b         DatasetNotFound: there is no valid Dataset 'planes' {missing}",
    ]


@pytest.mark.slow
def test_plan_after_run_shows_edit_effects_and_timing(kubothek: Kubothek, project: Path) -> None:
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
    told = [re.sub(r", \d{4}-[^)]+\)", ")", line) for line in lines(answer.out)]
    assert told == [
        "= as it is  objectstore/lake  file:store can be read",
        "= as it is  engine/default    runs jobs on this machine",
        "~ change    dataset/flights   spec.table.targetFileSize: 128Mi → 1Gi (takes effect at the next write)",
        "= as it is  dataset/flights   version 1, 1 row",
        "~ change    commit/a          spec.suspend: false → true (may be edited)",
        "= as it is  commit/a          is version 1 of dataset/flights",
        "= as it is  commit/b          is version 1 of dataset/flights",
        "! blocked   commit/c          IdReused: commit id 'default/a' of dataset 'flights' was used for another "
        "change (version 1); give this one an id of its own",
        "‖ suspended commit/d          spec.suspend is true",
    ]
    assert answer.code == 1
    assert everything(project) == before


QUERY = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {{name: q}}
spec:
  storeRef: {{name: lake}}
  sql: '{sql}'
  result: {{location: {{path: results/q, format: Parquet}}}}
"""


def test_lint_and_plan_refuse_invalid_sql_and_filters(kubothek: Kubothek, project: Path) -> None:
    deletion = commit("a", "flights").replace("operation: Append", "operation: Delete\n  where: month = ")
    deletion = "\n".join(line for line in deletion.splitlines() if "source:" not in line) + "\n"
    write(project, STORE, dataset("flights"), deletion, QUERY.format(sql="SELEC 1"))
    linted = kubothek("lint", "manifests")
    assert linted.code == 1
    filtered, query, *more = lines(linted.err)
    assert not more, linted.err
    assert filtered == (
        "error: manifests/all.yaml:25: Commit a: spec.where: FilterInvalid: filter, character 8: "
        "expected a literal, found the end"
    )
    assert query == (
        "error: manifests/all.yaml:33: Query q: spec.sql: QueryInvalid: Parser Error: "
        'syntax error at or near "SELEC" (line 1 of the statement)'
    )
    assert "! blocked   query/q           QueryInvalid: Parser Error: " in kubothek("plan", "-f", "manifests").out
    write(project, STORE, dataset("flights"), QUERY.format(sql="SELECT * FROM flights AS OF VERSION 1"))
    assert kubothek("lint", "manifests").code == 0


@pytest.mark.parametrize("text", ["", "# nothing\n", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"])
def test_lint_without_kubothek_manifests_fails(kubothek: Kubothek, project: Path, text: str) -> None:
    (project / "a.yaml").write_text(text)
    assert kubothek("lint", "a.yaml") == (1, "", "error: a.yaml: no Kubothek manifests found\n")


def test_plan_and_run_skip_other_groups_with_one_note(kubothek: Kubothek, project: Path) -> None:
    manifests = write(project, STORE)
    (manifests / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [all.yaml]\n"
    )
    for command in ("plan", "run"):
        answer = kubothek(command, "-f", "manifests")
        note = "note: 1 manifest of other API groups skipped: Kustomization (manifests/kustomization.yaml:1)\n"
        assert (answer.code, answer.err) == (0, note), answer


def test_plan_of_commit_alone_uses_state_of_earlier_runs(kubothek: Kubothek, project: Path) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a\n1\n")
    write(project, STORE, dataset("flights"), dataset("other"), commit("a", "flights"))
    assert kubothek("run", "-f", "manifests").code == 0
    write(project, STORE, commit("b", "flights", spec="dependsOn: [{name: a}]"))
    planned = kubothek("plan", "-f", "manifests")
    assert (planned.code, planned.err) == (0, "")
    told = lines(planned.out)
    assert "> commit    commit/b          append to dataset/flights: sources/ok.csv (4 B, without Spark)" in told
    assert told[-1] == "1 resource of earlier runs not in these manifests: --verbose lists them"
    verbose = kubothek("plan", "-f", "manifests", "--verbose")
    assert lines(verbose.out)[-1] == "  unchanged: dataset/other is not in these manifests"
    ran = kubothek("run", "-f", "manifests")
    assert (ran.code, ran.err) == (0, "note: not in these manifests; unchanged: dataset/other\n"), ran
    assert kubothek("get", "commits", "--store", "file:store").out.splitlines()[1].startswith("a      Done")


def test_plan_refuses_parquet_source_with_mismatched_columns(kubothek: Kubothek, project: Path) -> None:
    sources = project / "store" / "sources"
    sources.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1], "b": [2]}), sources / "new.parquet")
    lake_door.open((project / "store").as_uri()).create_dataset("flights").append(pa.table({"a": [1]}))
    bad = commit("bad", "flights", "sources/new.parquet").replace("format: CSV", "format: Parquet")
    write(project, STORE, dataset("flights", "adopt: true"), bad)
    planned = kubothek("plan", "-f", "manifests")
    assert planned.code == 1
    assert "SchemaMismatch: the columns of 'sources/new.parquet' do not match: not in the table: 'b'" in planned.out
    write(project, STORE, dataset("flights", "adopt: true\n  table: {schemaEvolution: Compatible}"), bad)
    assert kubothek("plan", "-f", "manifests").code == 0


def test_plan_of_a_frozen_dataset_says_so(kubothek: Kubothek, project: Path) -> None:
    frozen = dataset("flights").replace(
        "name: flights}", "name: flights, annotations: {kubothek.io/reconcile: disabled}}"
    )
    write(project, STORE, frozen)
    told = lines(kubothek("plan", "-f", "manifests").out)
    assert told[-1] == "‖ suspended dataset/flights   the annotation kubothek.io/reconcile is disabled"


def test_plan_as_json_has_action_for_each_resource(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("flights"))
    found = json.loads(kubothek("plan", "-f", "manifests", "-o", "json").out)
    assert [(each["kind"], each["action"]) for each in found] == [
        ("ObjectStore", "create"),
        ("Engine", "as it is"),
        ("Dataset", "create"),
    ]
    assert yaml.safe_load(kubothek("plan", "-f", "manifests", "-o", "yaml").out) == found


def test_get_after_killed_run_reports_interrupted(kubothek: Kubothek, project: Path) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a\n1\n")
    write(project, STORE, dataset("flights"), commit("a", "flights"))
    assert kubothek("run", "-f", "manifests").code == 0
    (saved,) = (project / "store/.kubothek-state/resources/Commit/default").glob("a.json")
    content = json.loads(saved.read_text())
    for condition in content["status"]["conditions"]:
        if condition["type"] in ("Ready", "Complete"):
            condition["status"] = "Unknown" if condition["type"] == "Ready" else "False"
    saved.write_text(json.dumps(content))
    here = ("--store", "file:store")
    assert "Interrupted" in kubothek("get", "commits", *here).out.split()
    assert json.loads(kubothek("get", "commits", *here, "-o", "json").out)[0]["state"] == "Interrupted"
    with locked([State((project / "store" / ".kubothek-state").absolute())]):
        assert json.loads(kubothek("get", "commits", *here, "-o", "json").out)[0]["state"] == "Running"
