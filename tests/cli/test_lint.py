"""lint: what a webhook would refuse, found in files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write


def circle(project: Path) -> None:
    write(
        project,
        STORE,
        dataset("orders"),
        commit("a", "orders", spec="dependsOn: [{name: b}]"),
        commit("b", "orders", spec="dependsOn: [{name: a}]"),
        commit("c", "elsewhere"),
    )


def test_lint_errors_and_warnings_have_locations(kubothek: Kubothek, project: Path) -> None:
    circle(project)
    answer = kubothek("lint", "manifests")
    assert answer.code == 1
    assert answer.out == ""
    first, second, third = answer.err.splitlines()
    assert first.startswith(
        "error: manifests/all.yaml:26: Commit a: spec.dependsOn: DependencyCycle: spec.dependsOn leads"
    )
    assert second.startswith("error: manifests/all.yaml:35: Commit b: ")
    assert third.startswith(
        "warning: manifests/all.yaml:41: Commit c: spec.datasetRef: DatasetNotFound: there is no Dataset"
    )


def test_lint_with_warning_only_succeeds(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, commit("c", "elsewhere"))
    code, out, err = kubothek("lint", "-f", "manifests")
    assert (code, out) == (0, "valid: 1 ObjectStore, 1 Engine, 1 Commit\n")
    assert err.startswith("warning: manifests/all.yaml:16: Commit c: spec.datasetRef: ")


def test_lint_as_json_has_file_line_and_path(kubothek: Kubothek, project: Path) -> None:
    circle(project)
    answer = kubothek("lint", "manifests", "-o", "json")
    told = json.loads(answer.out)
    assert (answer.code, told["valid"], len(told["problems"])) == (1, False, 3)
    first = told["problems"][0]
    assert {name: first[name] for name in ("level", "file", "line", "path", "reason")} == {
        "level": "error",
        "file": "manifests/all.yaml",
        "line": 26,
        "path": "spec.dependsOn",
        "reason": "DependencyCycle",
    }
    annotations = kubothek("lint", "manifests", "-o", "github").out.splitlines()
    assert annotations[0].startswith("::error file=manifests/all.yaml,line=26,title=DependencyCycle::Commit a: ")
    assert annotations[2].startswith("::warning file=manifests/all.yaml,line=41,title=DatasetNotFound::")


def test_lint_skips_foreign_files_and_reports_broken_own_files(kubothek: Kubothek, project: Path) -> None:
    manifests = write(project, STORE, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: lake}\n")
    (manifests / "values.yaml").write_text("replicas: 1\n")
    assert kubothek("lint", "manifests") == (0, "valid: 1 ObjectStore, 1 Engine\n", "")
    quota = manifests / "quota.yaml"
    quota.write_text("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.cpu: 100m}}\n")
    assert "QuotaExceeded: ResourceQuota 'q' has 100m of requests.cpu in all" in kubothek("lint", "manifests").err
    quota.unlink()
    (manifests / "typo.yaml").write_text("apiVersion: kubothek.io/v1\nkind: Dataset\nmetadata: {name: d}\n---\na: [\n")
    answer = kubothek("lint", "manifests", "-o", "json")
    lines = [(each["line"], each["reason"]) for each in json.loads(answer.out)["problems"]]
    assert answer.code == 1
    assert lines == [(1, "InvalidSpec"), (6, "InvalidSpec")]
    assert kubothek("lint", "nowhere").err == "error: nowhere: no such file or directory\n"
    assert kubothek("lint").code == 2


DECLARED = "table: {schema: [{name: id, type: int64}, {name: price, type: float64}], partitionOn: [id]}"


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ("key: [id]\n  whenMatched: [{action: Delete, where: source.x >}]", "whenMatched[0].where", "no SQL"),
        (
            "key: [id]\n  whenMatched: [{action: Delete}, {action: Update, set: {price: price * 2}}]",
            "whenMatched[1].set.price",
            "unknown column price; write source.price or target.price",
        ),
        (
            "key: [id]\n  whenMatched: [{action: Delete, where: target.prize > 1}]",
            "whenMatched[0].where",
            "no column 'prize' in target; it has id, price",
        ),
        (
            "key: [id]\n  whenMatched: [{action: Update, set: {prize: source.prize}}]",
            "whenMatched[0].set.prize",
            "no column 'prize' in the table; it has id, price",
        ),
        (
            "key: [id]\n  whenNotMatched: [{action: Insert, where: target.price > 1}]",
            "whenNotMatched[0].where",
            "unknown column target.price; write source.price",
        ),
        (
            "key: [id]\n  whenNotMatchedBySource: [{action: Delete, where: source.price > 1}]",
            "whenNotMatchedBySource[0].where",
            "unknown column source.price; write target.price",
        ),
        (
            "key: [id]\n  whenMatched: [{action: Delete, where: \"getenv('HOME') = 'x'\"}]",
            "whenMatched[0].where",
            "getenv is no function",
        ),
        ("key: [it]\n  whenNotMatched: [{action: Insert}]", "key", "no column 'it' in the table; it has id, price"),
    ],
)
def test_lint_reports_wrong_expression_of_merge(
    kubothek: Kubothek, project: Path, spec: str, path: str, message: str
) -> None:
    merge = commit("m", "orders", spec=spec).replace("operation: Append", "operation: Merge")
    write(project, STORE, dataset("orders", DECLARED), merge)
    answer = kubothek("lint", "manifests")
    assert answer.code == 1
    (line,) = answer.err.splitlines()
    assert re.match(rf"error: manifests/all.yaml:\d+: Commit m: spec\.{re.escape(path)}: FilterInvalid: ", line), line
    assert message in line


def test_lint_accepts_merge_of_columns_that_no_manifest_declares(kubothek: Kubothek, project: Path) -> None:
    spec = "key: [id]\n  whenMatched: [{action: Update, set: {price: target.any + source.other}}]"
    merge = commit("m", "orders", spec=spec).replace("operation: Append", "operation: Merge")
    write(project, STORE, dataset("orders"), merge)
    assert kubothek("lint", "manifests").code == 0
    write(project, STORE, merge)
    assert kubothek("lint", "manifests").code == 0
