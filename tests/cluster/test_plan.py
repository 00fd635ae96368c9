"""``kubectl kubothek plan``: what a real API server says to manifests, and what follows for the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.apiserver import ApiServer
from tests.cluster.test_plugin import APPEND, LAKE, Answer, Namespace, Run, kubectl, space

__all__ = ["kubectl", "space"]

Json = dict[str, Any]


def write(directory: Path, *resources: tuple[str, str, Json], **more: Json) -> Path:
    """A file of manifests without a namespace; JSON is YAML."""
    documents = [
        {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": {"name": name} | more, "spec": spec}
        for kind, name, spec in resources
    ]
    file = directory / "manifests.yaml"
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    return file


def read(answer: Answer) -> dict[str, Json]:
    """The plan by ``kind/name``."""
    return {f"{each['kind'].lower()}/{each['name']}": each for each in json.loads(answer.out)["resources"]}


def effects(resource: Json) -> list[str]:
    return [each["effect"] for each in resource["consequences"]]


def table(**changes: Any) -> Json:
    return LAKE | {"table": {"partitionOn": ["month"]} | changes}


POLICY = {"selector": {"all": True}, "schedule": {"cron": "@daily"}, "retention": {"versions": 2}, "mode": "Enforce"}


def test_plan_shows_all_changes_and_modifies_nothing(kubectl: Run, space: Namespace, tmp_path: Path) -> None:
    before = space.get("Dataset", "orders")
    manifests = write(
        tmp_path,
        ("ObjectStore", "lake", {"url": "s3://lake"}),
        ("Dataset", "orders", table(indices=[{"column": "carrier"}], sortBy=["day"])),
        ("Dataset", "new", LAKE),
        ("Commit", "january", APPEND),
        ("Commit", "forget", {"datasetRef": {"name": "orders"}, "operation": "Delete", "where": "month = 1"}),
        ("GCPolicy", "nightly", POLICY),
    )
    answer = kubectl("plan", manifests, "-o", "json")
    found = read(answer)
    assert answer.code == 3, "data is built anew and deleted"
    assert {name: each["action"] for name, each in found.items()} == {
        "objectstore/lake": "keep",
        "dataset/orders": "change",
        "dataset/new": "create",
        "commit/january": "create",
        "commit/forget": "create",
        "gcpolicy/nightly": "create",
    }
    changed = {each["path"]: each["effect"] for each in found["dataset/orders"]["changes"]}
    assert changed == {"spec.table.indices": "a job on edit", "spec.table.sortBy": "takes effect at the next write"}
    assert effects(found["dataset/orders"]) == ["rebuild", "note"]
    index = found["dataset/orders"]["consequences"][0]["message"]
    assert index == "the index on carrier is built from every file (12 files, 3.00 GiB)"
    assert effects(found["commit/january"]) == ["run"]
    assert effects(found["commit/forget"]) == ["delete"]
    told = [each["message"] for each in found["gcpolicy/nightly"]["consequences"]]
    assert "of Dataset 'orders': at most 42 files, 1.00 GiB, of 9 versions" in told
    assert space.get("Dataset", "orders") == before
    text = kubectl("plan", manifests).out
    assert "    rebuild: the index on carrier" in text
    assert text.splitlines()[-1] == "4 to create, 1 to change, 1 to keep"


def test_plan_reports_refusals_of_cluster_verbatim(kubectl: Run, space: Namespace, tmp_path: Path) -> None:
    manifests = write(
        tmp_path,
        ("Dataset", "orders", LAKE | {"table": {"partitionOn": ["day"]}}),
        ("Dataset", "again", LAKE | {"uuid": "orders"}),
        ("Dataset", "fine", {"storeRef": {"name": "sea"}}),
    )
    answer = kubectl("plan", manifests, "-o", "json")
    found = read(answer)
    assert answer.code == 1
    assert {name: each["action"] for name, each in found.items()} == {
        "dataset/orders": "refuse",
        "dataset/again": "refuse",
        "dataset/fine": "create",
    }
    assert "table.partitionOn cannot change" in found["dataset/orders"]["problems"][0]
    assert "OwnedByAnother" in found["dataset/again"]["problems"][0]
    assert found["dataset/fine"]["problems"][0].startswith("spec.storeRef: ObjectStoreNotFound: ")
    assert found["dataset/orders"]["manifest"] == f"{manifests}:1"


def test_plan_deletes_unlisted_resources_with_matching_labels(kubectl: Run, space: Namespace, tmp_path: Path) -> None:
    labels = {"app": "lake"}
    for name, policy in (("kept", "Retain"), ("gone", "Delete")):
        space.create("Dataset", name, LAKE | {"deletionPolicy": policy}, labels=labels)
        space.status("Dataset", name, "True", "Succeeded", files=2, bytes=2048)
    manifests = write(tmp_path, ("ObjectStore", "lake", {"url": "s3://lake"}))
    assert kubectl("plan", manifests).code == 0
    answer = kubectl("plan", manifests, "--prune=app=lake", "-o", "json")
    found = read(answer)
    assert answer.code == 3
    assert sorted(found) == ["dataset/gone", "dataset/kept", "objectstore/lake"]
    assert found["dataset/gone"]["consequences"][0]["message"].startswith("its data (2 files, 2.00 KiB); ")
    assert effects(found["dataset/gone"]) == ["delete"]
    assert effects(found["dataset/kept"]) == ["note"]


def test_plan_needs_same_rights_as_apply(
    server: ApiServer, space: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kubothek.kubectl.main import main
    from tests.cluster.apiserver import OPERATOR

    manifests = write(tmp_path, ("Dataset", "new", LAKE))
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"--kubeconfig={server.kubeconfig(OPERATOR)}", f"--namespace={space.name}", str(manifests)])
    assert ended.value.code == 1
    assert "is forbidden" in capsys.readouterr().err


def test_plan_with_invalid_manifest_names_line(kubectl: Run, tmp_path: Path) -> None:
    answer = kubectl("plan", write(tmp_path, ("Dataset", "d", LAKE | {"nonsense": 1})))
    assert answer.code == 1
    assert answer.err.startswith(f"error: {tmp_path}/manifests.yaml:1: Dataset d: spec.nonsense: is not a known field")
