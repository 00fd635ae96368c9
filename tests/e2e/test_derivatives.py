"""Derivatives on the cluster: a push to a root settles in what is derived from it, and all of it can be made again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import eventually
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster


def test_push_updates_derivative_chain_and_verification_reproduces_chain(tables: Workspace) -> None:
    tables.prepare()
    _put(tables, "sources/made.csv", [(1, "a", 5), (2, "a", 7), (3, "b", 11)])
    _put(tables, "sources/corrected.csv", [(1, "a", 6), (3, "b", 11), (4, "b", 1)])
    kubectl = tables.kubectl
    columns = ("event_time TIMESTAMP", "id BIGINT", "kind STRING", "amount BIGINT")
    pushed = manifests.push_source(*columns, snapshot_by="id")
    kubectl.apply(  # the last first: they wait for each other
        manifests.derivative(
            "sums", "amounts", "SELECT min(event_time) AS event_time, kind, sum(amount) AS x FROM amounts GROUP BY kind"
        ),
        manifests.derivative("amounts", "made", "SELECT event_time, kind, amount FROM made WHERE amount > 1"),
        manifests.dataset("made", ledger={"metadata": [pushed]}),
        manifests.commit("make", "made", "sources/made.csv"),
    )
    eventually(lambda: _sums(tables) == [11, 12] or None, "the first figures")
    kubectl.apply(manifests.commit("correct", "made", "sources/corrected.csv"))
    eventually(lambda: _sums(tables) == [6, 11] or None, "the corrected figures")

    status: dict[str, Any] = eventually(lambda: _settled(tables, "sums"), "the last run is told")
    assert status["lineage"] == {"roots": ["made"], "depth": 2, "consumers": []}
    assert [each["name"] for each in status["ledger"]["inputs"]] == ["amounts"]
    runs = {name: kubectl.get("kds", name)["status"]["transforming"]["attempt"] for name in ("amounts", "sums")}
    assert runs == {"amounts": 2, "sums": 2}, "once for each change"

    kubectl.apply(manifests.verification("again", "sums", recursive=True))
    kubectl.wait_for("Ready", "kver/again")
    found = kubectl.get("kver", "again")["status"]
    assert (found["verdict"], found["datasets"]) == ("Sound", 3)


def _put(tables: Workspace, key: str, rows: list[tuple[int, str, int]]) -> None:
    lines = "".join(f"2026-11-22 10:00:00,{number},{kind},{amount}\n" for number, kind, amount in rows)
    tables.put(key, f"event_time,id,kind,amount\n{lines}".encode())


def _sums(tables: Workspace) -> list[int] | None:
    if tables.head("sums") is None or not tables.lake.dataset("sums").rows:
        return None
    return tables.column("sums")


def _settled(tables: Workspace, name: str) -> dict[str, Any] | None:
    """The status, once it has seen the end of the last run."""
    status: dict[str, Any] = tables.kubectl.get("kds", name)["status"]
    done = status.get("transforming", {}).get("done")
    return status if done and all(each.get("behind") == 0 for each in status["ledger"]["inputs"]) else None
