"""A project that has one of everything that is committed, and what of it has to come back when a cluster was lost."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import kubothek


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def of(name: str, **further: Any) -> dict[str, Any]:
    return {"datasetRef": {"name": name}} | further


def append(name: str, dataset: str, file: str, after: str = "", **further: Any) -> dict[str, Any]:
    depends = {"dependsOn": [{"name": after}]} if after else {}
    source = {"paths": [f"in/{file}"], "format": "CSV"}
    return resource("Commit", name, **of(dataset, operation="Append", source=source), **depends, **further)


STORE = {"storeRef": {"name": "lake"}}
PUSH = {
    "kind": "AddPushSource",
    "sourceName": "default",
    "read": {"kind": "Csv", "header": True, "schema": ["event_time TIMESTAMP", "id BIGINT", "seats BIGINT"]},
    "merge": {"kind": "Snapshot", "primaryKey": ["id"]},
}
DERIVE = {
    "kind": "SetTransform",
    "inputs": [{"datasetRef": "planes"}],
    "transform": {"kind": "Sql", "engine": "duckdb", "query": "SELECT event_time, id FROM planes WHERE seats > 100"},
}
LESS = {"operation": "Delete", "where": "n = 1", "rowLevel": True}
FOUND = "SELECT n FROM letters WHERE n > 2"
GIT: list[dict[str, Any]] = [
    resource("Engine", "default", retry={"backoff": {"initial": "10ms", "max": "20ms"}}),
    resource(
        "Dataset",
        "letters",
        **STORE,
        table={
            "partitionOn": ["kind"],
            "indices": [{"column": "n"}],
            "skipping": {"indices": [{"type": "MinMax", "column": "n"}]},
        },
    ),
    append("one", "letters", "letters-1.csv"),
    append("two", "letters", "letters-2.csv", "one"),
    resource(
        "Commit", "less", **of("letters", operation="Delete", where="n = 1", rowLevel=True), dependsOn=[{"name": "two"}]
    ),
    resource("Dataset", "planes", **STORE, ledger={"metadata": [PUSH]}),
    append("planes-1", "planes", "planes-1.csv"),
    append("planes-2", "planes", "planes-2.csv", "planes-1"),
    resource("Dataset", "large", **STORE, ledger={"kind": "Derivative", "metadata": [DERIVE]}),
    resource("Dataset", "found", **STORE),
    resource(
        "Query",
        "found",
        **STORE,
        sql="SELECT n FROM letters WHERE n > 2",
        dependsOn=[{"name": "less"}],
        result=of("found"),
    ),
    resource(
        "Cube",
        "geo",
        **STORE,
        dimensionColumns=["x"],
        partitionColumns=["p"],
        datasets=[{"name": "seed"}, {"name": "names", "partitionOn": []}],
    ),
    resource(
        "Commit",
        "geo",
        cube={
            "cubeRef": {"name": "geo"},
            "operation": "Build",
            "datasets": [
                {"name": name, "source": {"paths": [f"in/{name}.csv"], "format": "CSV"}} for name in ("seed", "names")
            ],
        },
    ),
]
POLICY = resource(
    "GCPolicy",
    "nightly",
    selector={"all": True},
    schedule={"cron": "0 3 * * *"},
    retention={"versions": 1},
    gracePeriod="1m",
    mode="Enforce",
)
POLICY["metadata"]["annotations"] = {"kubothek.io/requestedAt": "now"}
FILES = {
    "letters-1.csv": "kind,n\na,1\nb,2\n",
    "letters-2.csv": "kind,n\na,3\nb,4\n",
    "planes-1.csv": "event_time,id,seats\n2026-11-22 10:00:00,1,180\n2026-11-22 10:00:00,2,90\n",
    "planes-2.csv": "event_time,id,seats\n2026-11-22 11:00:00,1,200\n2026-11-22 11:00:00,2,90\n",
    "seed.csv": "p,x\n1,1\n1,2\n",
    "names.csv": "x,name\n1,one\n2,two\n",
}
"""All but the ObjectStore, in an order in which they can be applied."""
COMMITS = [each["metadata"]["name"] for each in GIT if each["kind"] == "Commit"]


def put_sources(root: Path) -> None:
    """The files that the Commits take."""
    (root / "in").mkdir(parents=True)
    for name, text in FILES.items():
        (root / "in" / name).write_text(text)


def data(root: Path) -> dict[str, str]:
    """What is committed to the store in a directory, by its hash: all objects but what jobs, locks and inspections
    leave for themselves.
    """
    apart = {".kubothek-state", "jobs", "locks", "gc", "inventory.parquet"}
    files = (file for file in root.rglob("*") if file.is_file() and not apart & set(file.parts))
    return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def rows(root: Path) -> dict[str, list[Any]]:
    lake = kubothek.open(root.as_uri())
    names = ("letters", "planes", "large", "found")
    found = {name: lake.dataset(name).scan().read_all().to_pylist() for name in names}
    return found | {"geo": lake.cube("geo").query().to_pandas().to_dict("records")}
