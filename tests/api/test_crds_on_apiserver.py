"""The CRDs on a real API server: it accepts them (types, CEL and its costs), and refuses what our validators refuse."""

from __future__ import annotations

import itertools
import json
import urllib.error
from typing import Any

import pytest

from kubothek.api.kinds import KINDS, parse
from tests import kstatus
from tests.api.manifests import (
    CASES,
    COMPACTION,
    COPY,
    EDITS,
    FILE_STORE,
    VERIFICATION,
    Case,
    Edit,
    commit,
    cube,
    dataset,
    maintenance,
    plain,
    policy,
    repository,
    store,
    sync,
    table,
)
from tests.cluster.apiserver import ApiServer

PLURALS = {
    "ObjectStore": "objectstores",
    "Engine": "engines",
    "Cube": "cubes",
    "Dataset": "datasets",
    "Commit": "commits",
    "Query": "queries",
    "Compaction": "compactions",
    "Verification": "verifications",
    "GCPolicy": "gcpolicies",
    "SkippingIndex": "skippingindices",
    "Repository": "repositories",
    "Sync": "syncs",
}
_numbers = itertools.count(1)


@pytest.fixture
def namespace(server: ApiServer) -> str:
    name = f"resources-{next(_numbers)}"
    server.apply(f"/api/v1/namespaces/{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def create(server: ApiServer, manifest: dict[str, Any], namespace: str = "default", **query: str) -> dict[str, Any]:
    path = f"/apis/kubothek.io/v1alpha1/namespaces/{namespace}/{PLURALS[manifest['kind']]}"
    options = "&".join(f"{key}={value}" for key, value in ({"fieldValidation": "Strict"} | query).items())
    created: dict[str, Any] = server.request("POST", f"{path}?{options}", manifest)
    return created


def refusal(error: urllib.error.HTTPError) -> str:
    message: str = json.load(error)["message"]
    return message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_api_server_refuses_invalid_manifest_with_path_and_remedy(server: ApiServer, case: Case) -> None:
    if case.refusal is None:
        assert create(server, case.manifest(), dryRun="All")["kind"] == case.kind
        return
    with pytest.raises(urllib.error.HTTPError) as refused:
        create(server, case.manifest(), dryRun="All")
    assert refused.value.code in (400, 422)  # 400 is strict field validation's
    assert case.refusal in refusal(refused.value)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_api_server_refuses_edit_of_immutable_field(server: ApiServer, edit: Edit, namespace: str) -> None:
    created = create(server, edit.manifest(edit.old), namespace)
    path = f"/apis/kubothek.io/v1alpha1/namespaces/{namespace}/{PLURALS[edit.kind]}/a-name"
    changed = created | {"spec": edit.new}
    if edit.refusal is None:
        assert server.request("PUT", path, changed)["kind"] == edit.kind
        return
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.request("PUT", path, changed)
    assert edit.refusal in refusal(refused.value)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("ObjectStore", store()),
        ("Engine", {}),
        ("Dataset", dataset()),
        ("Dataset", table(partitionOn=["a"])),
        ("Dataset", maintenance(compaction={"schedule": {"cron": "@daily"}})),
        ("Commit", commit()),
        ("Compaction", COMPACTION),
        ("Verification", VERIFICATION | {"until": {"block": 3}}),
        ("GCPolicy", policy()),
        ("Dataset", COPY),
        ("Repository", repository()),
        ("Sync", sync()),
    ],
)
def test_api_server_fills_defaults_of_models(
    server: ApiServer, namespace: str, kind: str, spec: dict[str, Any]
) -> None:
    manifest = Case("", kind, spec).manifest()
    created = create(server, manifest, namespace)
    assert parse(created).spec == parse(manifest).spec


@pytest.mark.parametrize(
    ("kind", "spec"), [("ObjectStore", FILE_STORE), ("Engine", {}), ("Dataset", dataset()), ("Commit", commit())]
)
def test_new_resource_is_in_progress_before_first_reconcile(
    server: ApiServer, namespace: str, kind: str, spec: dict[str, Any]
) -> None:
    created = create(server, Case("", kind, spec).manifest(), namespace)
    assert created["status"] == {"observedGeneration": -1}
    assert kstatus.compute(created) == "InProgress"


def test_status_fields_survive_pruning_by_api_server(server: ApiServer, namespace: str) -> None:
    """Every field that a reconciler writes is in the schema: the API server prunes what is not."""
    moment = "2026-11-21T12:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "m", "observedGeneration": 1}
    attempts = {
        "attempt": 2,
        "observedAttempt": 1,
        "failures": 1,
        "disruptions": 1,
        "nextAttemptTime": moment,
        "engineDigest": "d",
        "setback": "OutOfMemory: m",
    }
    common = {"observedGeneration": 1, "conditions": [condition | {"lastTransitionTime": moment}]}
    kept_index = {"type": "BloomFilter", "columns": ["x"], "params": {"ndv": "5"}, "key": "k1"}
    numbers = {
        "version": 3,
        "rows": 2**40,
        "files": 2,
        "bytes": 2**50,
        "partitions": 1,
        "lastCommitTime": moment,
        "etag": "e",
        "indices": [{"column": "x", "kind": "Kartothek", "state": "Partial", "rows": 2**40}],
        "dialect": "Plateau",
        "partitionOn": ["p"],
        "tags": [{"name": "audit", "version": 3}],
        "writers": ["etl"],
        "skipping": {
            "indices": [kept_index],
            "footerKey": "k0",
            "plaintextFooter": True,
            "files": 2,
            "coverage": "100%",
            "bytes": 2**40,
        },
        "health": {
            "version": 3,
            "smallFiles": 1,
            "smallPercent": 50,
            "worstPartitionSmallFiles": 1,
            "sizes": [{"below": 2**40, "files": 1}, {"files": 1}],
            "versions": 3,
            "historyFiles": 1,
            "historyBytes": 2**40,
        },
    }
    deed = attempts | {"done": True, "problem": "P: x"}
    errand = deed | {"cause": "c"}
    chain = {"id": "did:odf:fed01", "head": "f16", "blocks": 3, "records": 2**40, "watermark": moment}
    read = [{"name": "default", "kind": "odf/etag", "value": "x"}]
    taken = [{"name": "a", "id": "did:odf:fed02", "block": "f16", "offset": 2**40, "behind": 2**40}]
    chain |= {"systemTime": moment, "lastSlice": "f16", "sources": read, "inputs": taken}
    look = deed | {"cause": "c", "slot": moment}
    use = {"query": "q", "time": moment, "considered": 2, "skipped": 1, "filters": ["x:Equal"]}
    collection = attempts | {
        "slot": moment,
        "mode": "Enforce",
        "after": "lake/a",
        "until": "lake/b",
        "startedTime": moment,
        "datasets": 3,
        "failed": 1,
        "problems": ["a: P: x"],
        "collected": [{"kind": "data", "objects": 2**40, "bytes": 2**50}],
    }
    source = {
        "name": "landing",
        "lag": {"files": 1, "bytes": 2**40, "oldest": moment},
        "currentUntil": moment,
        "files": 3,
        "lastFile": "landing/a.csv",
        "lastCommitTime": moment,
        "quarantined": 1,
        "problem": "P: x",
        "transient": True,
        "stalled": {"key": "landing/b.csv", "etag": "e", "version": 3, "reading": "r"},
        "failures": 1,
        "lookTime": moment,
        "nextLookTime": moment,
    }
    sizes = {"rows": 2**40, "files": 3, "bytes": 2**50}
    shape = {"seed": "seed", "dimensionColumns": ["x"], "partitionColumns": ["p"], "indexColumns": ["i"]}
    state = {"version": 3, "lastCommitTime": moment, "shape": shape | {"datasets": ["seed"]}}
    statuses: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "ObjectStore": (
            store(),
            {
                "capabilities": {"conditionalWrites": False},
                "lastHandledReconcileAt": "now",
                "lastInspection": attempts
                | {"started": moment, "previousStarted": moment, "finished": moment, "connection": "c", "datasets": "d"}
                | {"after": "a", "reached": "b", "problem": "P: x", "transient": True},
            },
        ),
        "Engine": ({}, {"warm": {"ready": 1, "starting": 2, "failed": 3, "last": 6}}),
        "Dataset": (
            dataset(),
            numbers
            | {"uuid": "u", "size": "1 B", "deleted": True, "problem": "P: x"}
            | {"inspectedTime": moment, "inspectedDigest": "d"}
            | {
                "deletion": deed,
                "restoration": deed,
                "indexing": errand,
                "tagging": errand,
                "healing": errand,
                "describing": errand,
            }
            | {
                "compaction": errand
                | {"time": moment, "version": 3, "filesBefore": 9, "filesAfter": 1, "bytesSaved": 9}
            }
            | {"ailments": ["index x is missing"], "corrupt": "a.parquet is lost", "sources": [source]}
            | {"iceberg": {"version": 2, "lag": 1, "metadataLocation": "s3://lake/v2.metadata.json", "problem": "P: x"}}
            | {"intake": attempts | {"source": "landing", "reading": "r"}}
            | {"defining": errand, "polling": errand | {"slot": moment, "time": moment, "records": 2**40, "commits": 2}}
            | {
                "transforming": errand
                | {"slot": moment, "waitingSince": moment, "time": moment, "version": 2, "records": 9}
            }
            | {"ledger": chain, "lineage": {"roots": ["a"], "depth": 2, "consumers": ["z"]}}
            | {"skippingAchieved": {"queries": 1, "considered": 2, "skipped": 1, "share": "50%", "recent": [use]}},
        ),
        "Compaction": (
            COMPACTION,
            attempts
            | {"progress": {"stage": "Rewriting", "tasksDone": 1, "tasksTotal": 2}, "table": numbers}
            | {
                "startTime": moment,
                "logs": "https://logs",
                "completionTime": moment,
                "version": 3,
                "partitions": 1,
                "givenWay": 1,
            }
            | {"filesBefore": 9, "filesAfter": 1, "bytesBefore": 2**50, "bytesAfter": 2**40},
        ),
        "Verification": (
            VERIFICATION,
            attempts
            | {"progress": {"stage": "Verifying", "tasksDone": 1, "tasksTotal": 2}, "verdict": "Corrupt"}
            | {
                "startTime": moment,
                "logs": "https://logs",
                "completionTime": moment,
                "version": 3,
                "blocks": 4,
                "slices": 2,
                "files": 9,
            }
            | {"unproven": 1, "rows": 2**40, "bytes": 2**50, "wrong": 2, "datasets": 3, "dataset": "planes"}
            | {"first": {"code": "FileHash", "message": "m", "block": "f16", "blockNumber": 3, "object": "o"}},
        ),
        "SkippingIndex": (
            plain(),
            {"files": 2, "described": 1, "added": 1, "removed": 1, "bytes": 2**40, "size": "1 TiB", "location": "x/"}
            | {"indices": [kept_index], "leftOut": ["a: no Parquet"], "refreshedTime": moment, "nextTime": moment}
            | {"handledRequest": "now", "refresh": look, "removal": look},
        ),
        "Repository": (repository(), {}),
        "Sync": (
            sync(),
            {"url": "https://example.org/flights", "head": "f16", "relation": "Ahead", "blocks": 3, "objects": 2}
            | {"bytes": 2**40, "size": "1 TiB", "lastSyncTime": moment, "nextTime": moment, "handledRequest": "now"}
            | {"progress": {"stage": "Transferring", "blocks": 1, "objects": 2, "objectsToGo": 3, "bytes": 2**40}}
            | {"table": numbers, "run": look},
        ),
        "GCPolicy": (
            policy(),
            {"datasets": 3, "nextTime": moment, "handledRequest": "now", "lastTime": moment}
            | {"round": collection, "last": collection},
        ),
        "Commit": (
            commit(),
            attempts
            | {
                "id": "i",
                "startTime": moment,
                "logs": "https://logs",
                "completionTime": moment,
                "version": 1,
                "rows": 1,
                "files": 1,
                "bytes": 1,
            }
            | {"progress": {"stage": "Reading", "tasksDone": 1, "tasksTotal": 2, "rows": 3}, "table": numbers}
            | {"cube": state, "members": [{"name": "seed", "version": 1, "table": numbers} | sizes]},
        ),
        "Cube": (
            cube(),
            state
            | {"uuidPrefix": "geo", "rows": 2**40, "bytes": 2**50, "size": "1 B", "problem": "P: x"}
            | {
                "inspectedTime": moment,
                "inspectedDigest": "d",
                "members": [{"name": "seed", "dataset": "geo-seed", "version": 1} | sizes],
            },
        ),
    }
    for kind, (spec, status) in statuses.items():
        create(server, Case("", kind, spec).manifest(), namespace)
        path = f"/apis/kubothek.io/v1alpha1/namespaces/{namespace}/{PLURALS[kind]}/a-name/status"
        applied = Case("", kind, spec).manifest() | {"status": common | status}
        del applied["spec"]
        written = server.apply(path, applied)
        assert written["status"] == common | status
        fields = set(KINDS[kind].model_fields["status"].annotation.model_fields)  # type: ignore[union-attr]
        assert {_snake(name) for name in written["status"]} == fields


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def test_kubectl_get_shows_printer_columns(server: ApiServer, namespace: str) -> None:
    create(server, Case("", "Dataset", dataset()).manifest("flights"), namespace)
    create(server, Case("", "Commit", commit()).manifest("january"), namespace)
    assert server.kubectl("get", "kds", "-n", namespace).split("\n")[0].split() == [
        *("NAME", "READY", "REASON", "VERSION", "ROWS", "FILES", "SIZE", "LAST-COMMIT", "AGE")
    ]
    everything = server.kubectl("get", "kubothek", "-n", namespace, "-o", "name").split()
    assert sorted(everything) == ["commit.kubothek.io/january", "dataset.kubothek.io/flights"]


def test_commits_are_selectable_by_dataset(server: ApiServer, namespace: str) -> None:
    create(server, Case("", "Commit", commit()).manifest("one"), namespace)
    create(server, Case("", "Commit", commit(datasetRef={"name": "other"})).manifest("two"), namespace)
    names = server.kubectl("get", "kcm", "-n", namespace, "--field-selector=spec.datasetRef.name=other", "-o", "name")
    assert names.split() == ["commit.kubothek.io/two"]
