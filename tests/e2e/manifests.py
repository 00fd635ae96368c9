"""The smallest manifests that say what a test needs; the full ones are in examples/."""

from __future__ import annotations

from typing import Any

from tests.e2e.kubectl import Manifest

API_VERSION = "kubothek.io/v1alpha1"


def resource(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    """One of ours."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def object_store(url: str, endpoint: str, name: str = "lake", secret: str = "lake-credentials") -> Manifest:
    """An S3 store whose keys are in ``secret``."""
    return resource(
        "ObjectStore",
        name,
        {"url": url, "endpoint": endpoint, "region": "us-east-1", "credentialsSecretRef": {"name": secret}},
    )


def engine(name: str = "default", **spec: Any) -> Manifest:
    """Jobs that fit a small node, and do all their work without a JVM unless ``sparkFrom`` says otherwise."""
    return resource(
        "Engine",
        name,
        {
            "driver": {"cores": 1, "memory": "1Gi"},
            "executor": {"instances": 1, "cores": 1, "memory": "1Gi"},
            "sparkFrom": "1Gi",
            **spec,
        },
    )


def dataset(name: str, partition_on: list[str] | None = None, **spec: Any) -> Manifest:
    """A dataset in the store ``lake``."""
    table = {"partitionOn": partition_on} if partition_on else {}
    return resource("Dataset", name, {"storeRef": {"name": "lake"}, "table": table, **spec})


def push_source(*columns: str, snapshot_by: str | None = None) -> Manifest:
    """The event that lets CSV with these columns be pushed to a ledger: rows to append, or a snapshot by a key."""
    read = {"kind": "Csv", "header": True, "schema": [*columns]}
    merge = {"kind": "Append"} if snapshot_by is None else {"kind": "Snapshot", "primaryKey": [snapshot_by]}
    return {"kind": "AddPushSource", "sourceName": "default", "read": read, "merge": merge}


def derivative(name: str, source: str, query: str, engine: str = "duckdb", **spec: Any) -> Manifest:
    """A dataset in the store ``lake`` that a query makes of another one."""
    transform = {"kind": "Sql", "engine": engine, "query": query}
    event = {"kind": "SetTransform", "inputs": [{"datasetRef": source}], "transform": transform}
    return dataset(name, ledger={"kind": "Derivative", "metadata": [event]}, **spec)


def cube(name: str, dimensions: list[str], partitions: list[str], *datasets: str) -> Manifest:
    """A cube in the store ``lake``; the first of the datasets is the seed."""
    spec = {"dimensionColumns": dimensions, "partitionColumns": partitions, "seedDataset": datasets[0]}
    members = [{"name": dataset} for dataset in datasets]
    return resource("Cube", name, {"storeRef": {"name": "lake"}, **spec, "datasets": members})


def query(name: str, sql: str, **result: Any) -> Manifest:
    """A SELECT over the datasets in the store ``lake``."""
    return resource("Query", name, {"storeRef": {"name": "lake"}, "sql": sql, "result": result})


def commit(name: str, dataset: str, *paths: str, **spec: Any) -> Manifest:
    """An append of CSV files that lie in the dataset's store."""
    source = {"paths": list(paths), "format": "CSV", **spec.pop("source", {})}
    return resource("Commit", name, {"datasetRef": {"name": dataset}, "operation": "Append", "source": source, **spec})


def verification(name: str, dataset: str, **spec: Any) -> Manifest:
    """A look at whether all of the dataset is as it was committed."""
    return resource("Verification", name, {"datasetRef": {"name": dataset}, **spec})


def secret(access_key: str, secret_key: str, name: str = "lake-credentials") -> Manifest:
    """Keys of an S3 user, as jobs get them mounted."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key},
    }
