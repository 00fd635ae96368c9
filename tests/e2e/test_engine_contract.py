"""The engine contract on the cluster: our engine's image, as if it were another party's, beside a driver of ours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import Manifest, eventually
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster

ENGINE_IMAGE = "docker.io/kubothek/engine:dev"
PUSHED = manifests.push_source("event_time TIMESTAMP", "id BIGINT", "amount BIGINT", snapshot_by="id")


def test_derivative_is_computed_by_engine_in_own_container(tables: Workspace) -> None:
    tables.prepare()
    _put(tables, "sources/parts.csv", [(1, 5), (2, 7), (3, 11)])
    _put(tables, "sources/more-parts.csv", [(1, 6), (3, 11), (4, 2)])
    kubectl = tables.kubectl
    kubectl.apply(
        manifests.engine("foreign", odf={"engine": "spark", "image": ENGINE_IMAGE, "memory": "1Gi"}),
        manifests.dataset("parts", ledger={"metadata": [PUSHED]}),
        _derivative("totals", "SELECT max(event_time) AS event_time, sum(amount) AS x FROM parts"),
        manifests.commit("make-parts", "parts", "sources/parts.csv"),
    )
    eventually(lambda: _totals(tables) == [23] or None, "the first sum")
    kubectl.apply(manifests.commit("correct-parts", "parts", "sources/more-parts.csv"))
    eventually(lambda: _totals(tables) == [19] or None, "the corrected sum")
    eventually(lambda: _settled(tables), "the last run is told")

    kubectl.apply(manifests.verification("totals-again", "totals"))
    kubectl.wait_for("Complete", "kver/totals-again")
    assert kubectl.get("kver", "totals-again")["status"]["verdict"] == "Sound"

    kubectl.apply(_derivative("wrong", "SELECT event_time, nothing AS x FROM parts"))
    eventually(
        lambda: "TransformInvalid" in str(kubectl.get("kds", "wrong")["status"]) or None,
        "the engine's word on the query",
    )


def _put(tables: Workspace, key: str, rows: list[tuple[int, int]]) -> None:
    lines = "".join(f"2026-11-22 10:00:00,{number},{amount}\n" for number, amount in rows)
    tables.put(key, f"event_time,id,amount\n{lines}".encode())


def _derivative(name: str, query: str) -> Manifest:
    return manifests.derivative(name, "parts", query, "spark", engineRef={"name": "foreign"})


def _totals(tables: Workspace) -> list[int] | None:
    if tables.head("totals") is None or not tables.lake.dataset("totals").rows:
        return None
    return tables.column("totals")


def _settled(tables: Workspace) -> dict[str, Any] | None:
    status: dict[str, Any] = tables.kubectl.get("kds", "totals")["status"]
    return status if status.get("transforming", {}).get("done") else None
