"""Who is woken when a ledger moves: what it is derived from, and all that is derived from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubothek.cluster.cache.derivatives import neighbours
from kubothek.cluster.cache.objects import Cache
from kubothek.cluster.cache.state import ClusterContext, ClusterState
from kubothek.controller.context import Settings
from kubothek.controller.derivation import Ledgers
from tests.cluster.test_dependants import obj, woken


def ledger(name: str, *inputs: str, head: str = "f1", **more: Any) -> Any:
    sql = {"kind": "Sql", "engine": "duckdb", "query": "SELECT 1"}
    transform = {"kind": "setTransform", "inputs": [{"datasetRef": each} for each in inputs], "transform": sql}
    chain = {"kind": "Derivative", "metadata": [transform]} if inputs else {"kind": "Root", "metadata": []}
    found = obj("Dataset", name, {"storeRef": {"name": "s"}, "ledger": chain}, **more)
    found["status"]["ledger"] = {"id": f"did:odf:{name}", "head": head}
    return found


@pytest.fixture
def state() -> ClusterState:
    known = ClusterState()
    for one in (
        ledger("a"),
        ledger("b", "a"),
        ledger("c", "did:odf:b", "z"),
        ledger("d", "c"),
        ledger("z"),
        obj("Dataset", "table", {"storeRef": {"name": "s"}}),
    ):
        known.resources["Dataset"].put(one)
    return known


def names(found: set[str]) -> set[str]:
    return {name.partition("/")[2] for name in found if name.startswith("Dataset")}


def test_ledger_head_change_wakes_all_downstream_derivatives(state: ClusterState) -> None:
    assert names(woken(state, "Dataset", ledger("a"), ledger("a", head="f2"))) == {"b", "c", "d"}
    assert names(woken(state, "Dataset", ledger("b", "a"), ledger("b", "a", head="f2"))) == {"c", "d"}


def test_derivative_creation_edit_or_deletion_also_wakes_inputs(state: ClusterState) -> None:
    gone = ledger("c", "did:odf:b", "z")
    assert names(woken(state, "Dataset", gone, None)) == {"b", "z", "d"}
    state.resources["Dataset"].remove("ns", "c", gone["metadata"]["uid"])
    assert names(woken(state, "Dataset", ledger("b", "a"), ledger("b", "a", head="f2"))) == set()
    assert names(woken(state, "Dataset", gone, None)) == {"b", "z", "d"}
    state.resources["Dataset"].put(ledger("d", "z", version=2))
    assert names(woken(state, "Dataset", ledger("z"), ledger("z", head="f2"))) == {"d"}


def test_derivative_change_costs_nothing_for_unrelated_ledgers(
    state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who is woken nor what a reconciler works out of the graph looks at all Datasets."""

    def refused(*_: object) -> Any:
        raise AssertionError("all Datasets of the namespace were looked at")

    monkeypatch.setattr(Cache, "objects", refused)
    monkeypatch.setattr(Cache, "models", refused)
    neighbouring = neighbours(state.dependency_graph, state.resources["Dataset"], ledger("b", "a"), appeared=True)
    found = [each.name for each in neighbouring]
    assert found == ["a", "c", "d"]
    context = ClusterContext(state, Settings(cluster_id="c"), datetime(2026, 11, 22, tzinfo=UTC))
    here = Ledgers(context, "ns")
    last = here.find("did:odf:c")
    assert last is not None
    assert here.cycle(last) is None
    told = here.lineage(last)
    assert told is not None
    assert (told.roots, told.depth, told.consumers) == (("a", "z"), 2, ("d",))


def test_derivative_with_invalid_manifest_has_no_relations(state: ClusterState) -> None:
    for number, metadata in enumerate(("text", [3], [{"kind": "SetTransform", "inputs": 3}], [{"kind": None}])):
        wrong = obj("Dataset", "wrong", {"ledger": {"metadata": metadata}}, version=number + 1)
        assert state.resources["Dataset"].put(wrong)
    wrong = obj("Dataset", "wrong", {}, version=9)
    assert state.resources["Dataset"].put(wrong | {"spec": None})
    assert names(woken(state, "Dataset", ledger("a"), ledger("a", head="f2"))) == {"b", "c", "d"}


def test_dataset_change_without_new_head_wakes_nothing(state: ClusterState) -> None:
    assert names(woken(state, "Dataset", ledger("a"), ledger("a", version=2))) == set()


def test_derivative_run_without_new_data_wakes_downstream(state: ClusterState) -> None:
    before, after = ledger("b", "a"), ledger("b", "a")
    after["status"]["transforming"] = {"cause": "x", "done": True}
    assert names(woken(state, "Dataset", before, after)) == {"c", "d"}
