"""Cubes on the cluster: a change of two datasets is there or is not, whatever becomes of its driver."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.workspace import Workspace
from tests.faultproxy import Hold

pytestmark = pytest.mark.cluster

Cells = list[tuple[int, int, str | None]]
OLD: Cells = [(1, 10, "one"), (2, 20, None)]
NEW: Cells = [(1, 11, "uno"), (2, 20, None), (3, 30, "three")]


def cells(cubes: Workspace) -> Cells:
    rows = cubes.lake.cube("geo").query().to_arrow().to_pylist()
    return sorted((row["x"], row["v"], row["name"]) for row in rows)


def change(name: str, operation: str, **cube: Any) -> dict[str, Any]:
    spec = {"cube": {"cubeRef": {"name": "geo"}, "operation": operation} | cube}
    return manifests.resource("Commit", name, spec)


def rows(**paths: str) -> list[dict[str, Any]]:
    return [{"name": name, "source": {"paths": [path], "format": "CSV"}} for name, path in paths.items()]


def test_cube_driver_killed_between_datasets_leaves_old_or_new_cube(cubes: Workspace) -> None:
    kubectl = cubes.kubectl
    cubes.put("in/seed.csv", b"p,x,v\n1,1,10\n1,2,20\n")
    cubes.put("in/names.csv", b"p,x,name\n1,1,one\n")
    cubes.put("in/seed-more.csv", b"p,x,v\n1,1,11\n1,3,30\n")
    cubes.put("in/names-more.csv", b"p,x,name\n1,1,uno\n1,3,three\n")
    with cubes.spoiled() as proxy:
        kubectl.apply(
            manifests.cube("geo", ["x"], ["p"], "seed", "names"),
            change("build", "Build", datasets=rows(seed="in/seed.csv", names="in/names.csv")),
        )
        kubectl.wait_for("Ready", "kcm/build")
        assert cells(cubes) == OLD

        for number, member in enumerate(("seed", "names")):
            # The one is held on its way to the store; the other may have arrived by then.
            held = proxy.inject(Hold(), method="PUT", path=f"{member}.by-dataset-metadata.json")
            name = f"append-{number}"
            kubectl.apply(change(name, "Append", datasets=rows(seed="in/seed-more.csv", names="in/names-more.csv")))
            assert held.arrived.wait(PATIENCE), kubectl.situation(f"kcm/{name}")
            before = OLD if number == 0 else NEW
            assert cells(cubes) == before
            kubectl.delete("pod", f"{name}-1", force=True)
            seen = [cells(cubes)]
            kubectl.wait_for_object("pod", f"{name}-2")
            held.release()

            def complete(name: str = name, seen: list[Cells] = seen) -> bool:
                seen.append(cells(cubes))
                return kubectl.condition("kcm", name, "Complete") is not None

            eventually(complete, f"kcm/{name} to be complete")
            assert all(found in (before, NEW) for found in seen), seen
            assert cells(cubes) == NEW

    assert [record.id for record in cubes.lake.cube("geo").history() if record.id.startswith("cubes/")] == [
        "cubes/append-1",
        "cubes/append-0",
        "cubes/build",
    ]


def test_cube_query_result_becomes_file(cubes: Workspace) -> None:
    kubectl = cubes.kubectl
    asked = {"uuidPrefix": "geo", "conditions": "name IS NOT NULL", "payloadColumns": ["v", "name"]}
    spec = {
        "storeRef": {"name": "lake"},
        "cube": asked,
        "result": {"location": {"path": "reports", "format": "CSV"}},
    }
    kubectl.apply(manifests.resource("Query", "named", spec))
    kubectl.wait_for("Ready", "kq/named")
    status = kubectl.get("kq", "named")["status"]
    found = list(csv.DictReader(io.StringIO(cubes.read(status["location"]).decode())))
    assert sorted((row["x"], row["v"], row["name"]) for row in found) == [("1", "11", "uno"), ("3", "30", "three")]
    assert {read["dataset"] for read in status["reads"]} == {"geo++seed", "geo++names"}


def test_cube_deletion_removes_datasets_and_keeps_data(cubes: Workspace) -> None:
    kubectl = cubes.kubectl
    (owner,) = kubectl.get("kds", "geo-seed")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Cube", "geo", True)
    assert kubectl.get("kds", "geo-seed")["metadata"]["labels"]["kubothek.io/cube"] == "geo"

    kubectl.apply(manifests.commit("plain", "geo-seed", "in/seed-more.csv"))
    kubectl.wait_for_reason("kcm", "plain", "MemberOfCube")
    kubectl.delete("kcm", "plain")

    kubectl.delete("kcube", "geo")
    eventually(lambda: kubectl.find("kds", "geo-seed") is None, "the Datasets to go with their Cube")
    eventually(lambda: kubectl.find("kds", "geo-names") is None, "the Datasets to go with their Cube")
    assert cells(cubes) == NEW
    kubectl.apply(manifests.cube("geo", ["x"], ["p"], "seed", "names"))
    kubectl.wait_for("Ready", "kcube/geo")
    status = kubectl.get("kcube", "geo")["status"]
    assert (status["version"], [member["name"] for member in status["members"]]) == (3, ["seed", "names"])
