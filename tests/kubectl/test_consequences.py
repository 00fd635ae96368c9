"""What follows for the data from a change of a manifest: one case for each effect."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.api.kinds import parse
from kubothek.api.meta import Resource
from kubothek.controller.validation.resource_set import Gathered
from kubothek.kubectl.consequences import of_change, of_deletion

Json = dict[str, Any]

LAKE = {"storeRef": {"name": "lake"}}
STATUS = {"version": 3, "files": 12, "bytes": 2048, "indices": [{"column": "old", "kind": "Native"}]}
SIZE = " (12 files, 2.00 KiB)"
HEALTH = {"historyFiles": 40, "historyBytes": 1024, "garbageFiles": 2, "garbageBytes": 1024, "versions": 9}


def resource(kind: str, spec: Json, name: str = "d", status: Json | None = None) -> Resource:
    found = {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return parse(found | ({"status": status} if status else {}))


def dataset(table: Json | None = None, **spec: Any) -> Resource:
    return resource("Dataset", LAKE | {"table": table or {}} | spec, status=STATUS)


def policy(**spec: Any) -> Resource:
    return resource("GCPolicy", {"selector": {"all": True}, "schedule": {"cron": "@daily"}} | spec, "p")


def commit(**spec: Any) -> Resource:
    return resource("Commit", {"datasetRef": {"name": "d"}} | spec, "c")


def derivative(on_change: str, query: str) -> Resource:
    transform = {"kind": "Sql", "engine": "datafusion", "queries": [{"query": query}]}
    event = {"kind": "SetTransform", "inputs": [{"datasetRef": "i", "alias": "i"}], "transform": transform}
    return dataset(ledger={"kind": "Derivative", "metadata": [event], "transform": {"onChange": on_change}})


ROWS = {"source": {"paths": ["a.csv"], "format": "CSV"}}

CHANGES: dict[str, tuple[Resource | None, Resource, list[tuple[str, str]]]] = {
    "nothing": (dataset(), dataset(), []),
    "a new index": (
        dataset(),
        dataset({"indices": [{"column": "old"}, {"column": "new"}]}),
        [("rebuild", f"the index on new is built from every file{SIZE}")],
    ),
    "an index of another kind": (
        dataset({"indices": [{"column": "a"}]}),
        dataset({"indices": [{"column": "a", "kind": "Kartothek"}]}),
        [("rebuild", f"the index on a is built from every file{SIZE}")],
    ),
    "no index any more": (dataset(), dataset({"indices": []}), [("delete", "the index on old; no rows")]),
    "indices left as they are": (dataset({"indices": [{"column": "a"}]}), dataset(), []),
    "skipping": (
        dataset(),
        dataset({"skipping": {"auto": True}}),
        [("rebuild", f"the skipping metadata is rebuilt from every file{SIZE}")],
    ),
    "a dialect": (
        dataset(),
        dataset({"dialect": "Plateau"}),
        [("rebuild", "the Kartothek indices are written in the dialect of Plateau")],
    ),
    "another layout": (
        dataset(),
        dataset({"sortBy": ["a"], "compression": "SNAPPY"}),
        [("note", f"files that are there{SIZE} do not change until a compaction rewrites them")],
    ),
    "compaction": (
        dataset(),
        dataset(maintenance={"compaction": {"minFiles": 4}}),
        [("rewrite", f"partitions with enough small files{SIZE}")],
    ),
    "compaction in order": (
        dataset(maintenance={"compaction": {"minFiles": 4}}),
        dataset(maintenance={"compaction": {"minFiles": 4, "sortBy": ["a"]}}),
        [("rewrite", f"all files are put in order{SIZE}")],
    ),
    "a tag less": (
        dataset(tags=[{"name": "a", "version": 1}, {"name": "b", "version": 2}]),
        dataset(tags=[{"name": "b", "version": 2}]),
        [("delete", "the tags a: a GCPolicy may expire their versions")],
    ),
    "a policy of deletion": (
        dataset(),
        dataset(deletionPolicy="Delete"),
        [("note", f"from now on, deleting this Dataset deletes its data{SIZE}")],
    ),
    "other SQL, made anew": (
        derivative("Reset", "SELECT 1"),
        derivative("Reset", "SELECT 2"),
        [("rewrite", "another transformation: all its data is rebuilt under the same identity")],
    ),
    "other SQL, stopped": (
        derivative("Stop", "SELECT 1"),
        derivative("Stop", "SELECT 2"),
        [
            (
                "note",
                "another transformation: it stops, with TransformChanged, until ledger.transform.onChange says more",
            )
        ],
    ),
    "other SQL, from here on": (
        derivative("Stop", "SELECT 1"),
        derivative("Continue", "SELECT 2"),
        [("run", "another transformation, from now on; existing data does not change")],
    ),
    "the same SQL, at other times": (derivative("Stop", "SELECT 1"), derivative("Continue", "SELECT 1"), []),
    "another event": (
        dataset(ledger={"metadata": []}),
        dataset(ledger={"metadata": [{"kind": "SetInfo", "description": "d"}]}),
        [("run", "events are added to its chain")],
    ),
    "a policy that says": (
        None,
        policy(retention={"versions": 3}),
        [("note", "DryRun; of Dataset 'd': at most 42 files, 2.00 KiB, of 9 versions")],
    ),
    "a policy that deletes garbage": (
        policy(),
        policy(mode="Enforce"),
        [("delete", "of Dataset 'd': at most 2 files, 1.00 KiB")],
    ),
    "a policy that is suspended": (None, policy(mode="Enforce", suspend=True), []),
    "a policy at another hour": (policy(mode="Enforce"), policy(mode="Enforce", maxDeletes=5), []),
    "rows": (None, commit(operation="Append", **ROWS), [("run", "Append of Dataset 'd' (12 files, 2.00 KiB)")]),
    "other rows": (
        None,
        commit(operation="Overwrite", **ROWS),
        [("rewrite", "Overwrite of Dataset 'd' (12 files, 2.00 KiB)")],
    ),
    "rows that go for ever": (
        None,
        commit(operation="Delete", where="a = 1", purge=True),
        [("delete", f"Delete of Dataset 'd' where a = 1{SIZE}; all versions before it expire")],
    ),
    "a Commit that is there": (commit(operation="Append", **ROWS), commit(operation="Append", **ROWS), []),
}


@pytest.mark.parametrize("case", CHANGES)
def test_manifest_change_has_expected_effect(case: str) -> None:
    old, new, expected = CHANGES[case]
    there = Gathered([resource("Dataset", LAKE, status=STATUS | {"health": HEALTH})])
    assert [(str(each.effect), each.told) for each in of_change(old, new, there)] == expected


def test_manifest_deletion_deletes_data_with_delete_policy_only() -> None:
    def effects(each: Resource) -> list[str]:
        return [str(told.effect) for told in of_deletion(each, Gathered([dataset()]))]

    assert effects(dataset(deletionPolicy="Delete")) == ["delete"]
    assert effects(dataset(deletionPolicy="Delete", suspend=True)) == ["note"]
    assert effects(dataset()) == ["note"]
    assert effects(policy()) == ["note"]
    assert effects(commit(operation="Append", **ROWS)) == []
    store = resource("ObjectStore", {"url": "s3://lake"}, "lake")
    (users,) = of_deletion(store, Gathered([dataset()]))
    assert users.told == "1 Dataset can be written no more: d"
