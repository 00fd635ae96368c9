"""The Datasets of a Cube, made and kept over a real API server."""

from __future__ import annotations

from typing import Any

from kubothek.api.meta import Resource
from kubothek.cluster.api import Api
from kubothek.controller.context import Context, Outcome
from kubothek.controller.kinds import cube
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import bench, manifest, ready_status, resource_path

MERGE = "application/merge-patch+json"
SPEC = {
    "storeRef": {"name": "lake"},
    "dimensionColumns": ["x"],
    "partitionColumns": ["p"],
    "datasets": [{"name": "seed"}, {"name": "names", "partitionOn": [], "table": {"compression": "SNAPPY"}}],
}


def ready(resource: Resource, context: Context) -> Outcome:
    return Outcome(status=ready_status(resource.metadata.generation))


RECONCILERS = {"Cube": cube.reconcile, "Dataset": ready, "ObjectStore": ready}


def create(server: ApiServer, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return dict(server.request("POST", resource_path(kind, namespace), manifest(kind, namespace, name, spec)))


def get(server: ApiServer, kind: str, namespace: str, name: str) -> dict[str, Any]:
    return dict(server.request("GET", resource_path(kind, namespace, name)))


def names(server: ApiServer, namespace: str) -> list[str]:
    found = server.request("GET", resource_path("Dataset", namespace))["items"]
    return sorted(item["metadata"]["name"] for item in found)


async def test_cube_datasets_are_created_with_owner_and_written_once(
    api: Api, server: ApiServer, namespace: str
) -> None:
    create(server, "ObjectStore", namespace, "lake", {"url": "s3://bucket/lake"})
    made = create(server, "Cube", namespace, "geo", SPEC)
    async with bench(api, namespace, RECONCILERS) as running:
        await running.until(lambda: names(server, namespace) == ["geo-names", "geo-seed"])
        seed = get(server, "Dataset", namespace, "geo-seed")
        (owner,) = seed["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (made["metadata"]["uid"], True, True)
        assert seed["spec"]["uuid"] == "geo++seed"
        assert seed["spec"]["table"]["partitionOn"] == ["p"]
        other = get(server, "Dataset", namespace, "geo-names")
        assert other["spec"]["table"]["compression"] == "SNAPPY"
        await running.settled()
        generation = get(server, "Dataset", namespace, "geo-seed")["metadata"]["generation"]
        assert generation == 1, "defaults that the API server fills in are no reason to write again"

        path = resource_path("Dataset", namespace, "geo-seed")
        theirs = {"metadata": {"labels": {"theirs": "yes"}}, "spec": {"suspend": True}}
        server.request("PATCH", path, theirs, MERGE)
        await running.until(lambda: not get(server, "Dataset", namespace, "geo-seed")["spec"]["suspend"])
        labels = get(server, "Dataset", namespace, "geo-seed")["metadata"]["labels"]
        assert labels == {"theirs": "yes", "kubothek.io/cube": "geo"}

        edit = {"spec": {"maintenance": {"compaction": {"minFiles": 4}}}}
        server.request("PATCH", resource_path("Cube", namespace, "geo"), edit, MERGE)
        await running.until(
            lambda: "compaction" in get(server, "Dataset", namespace, "geo-names")["spec"]["maintenance"]
        )

        server.request("DELETE", path)
        await running.until(lambda: names(server, namespace) == ["geo-names", "geo-seed"])


async def test_cube_keeps_foreign_dataset_of_same_name(api: Api, server: ApiServer, namespace: str) -> None:
    create(server, "ObjectStore", namespace, "lake", {"url": "s3://bucket/lake"})
    create(server, "Dataset", namespace, "geo-seed", {"storeRef": {"name": "lake"}})
    create(server, "Cube", namespace, "geo", SPEC)

    def reason() -> str:
        conditions = get(server, "Cube", namespace, "geo")["status"].get("conditions", [{}])
        return str(conditions[0].get("reason"))

    async with bench(api, namespace, RECONCILERS) as running:
        await running.until(lambda: reason() == "NameCollision")
        assert "uuid" not in get(server, "Dataset", namespace, "geo-seed")["spec"]
        assert names(server, namespace) == ["geo-seed"]
        server.request("DELETE", resource_path("Dataset", namespace, "geo-seed"))
        await running.until(lambda: names(server, namespace) == ["geo-names", "geo-seed"])
