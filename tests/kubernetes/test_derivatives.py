"""Who is woken when a ledger moves: what it is derived from, and all that is derived from it."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.runtime.kubernetes.state import ClusterState
from tests.kubernetes.test_dependants import obj, woken


def ledger(name: str, *inputs: str, head: str = "f1", **more: Any) -> Any:
    transform = {"kind": "setTransform", "inputs": [{"datasetRef": each} for each in inputs]}
    found = obj(
        "Dataset", name, {"storeRef": {"name": "s"}, "ledger": {"metadata": [transform] if inputs else []}}, **more
    )
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


def test_what_moves_wakes_all_that_is_derived_from_it_and_its_inputs(state: ClusterState) -> None:
    assert names(woken(state, "Dataset", ledger("a"), ledger("a", head="f2"))) == {"b", "c", "d"}
    assert names(woken(state, "Dataset", ledger("b", "a"), ledger("b", "a", head="f2"))) == {"a", "c", "d"}
    assert names(woken(state, "Dataset", ledger("c", "did:odf:b", "z"), None)) == {"b", "z", "d"}


def test_what_does_not_move_wakes_nobody(state: ClusterState) -> None:
    assert names(woken(state, "Dataset", ledger("a"), ledger("a", version=2))) == set()


def test_the_end_of_a_run_that_found_nothing_is_told_as_well(state: ClusterState) -> None:
    before, after = ledger("b", "a"), ledger("b", "a")
    after["status"]["transforming"] = {"cause": "x", "done": True}
    assert names(woken(state, "Dataset", before, after)) == {"a", "c", "d"}
