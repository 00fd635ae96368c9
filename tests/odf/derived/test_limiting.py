"""Runs in worker processes: their result is that of a run in process, and a greedy run ends alone."""

from __future__ import annotations

import psutil
import pytest

from kubothek.errors import TransformTooLarge
from kubothek.odf.derived import running
from kubothek.sandbox import limited
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.verify import verify_dataset
from tests.odf.derived.world import LATE, PER_CARRIER, derived, pull, push, root, transform

pytestmark = pytest.mark.slow

HUNGRY = "SELECT event_time, id, damerau_levenshtein(repeat(carrier, 4000), repeat('y', 8000)) AS delay FROM flights"
"""256 MB in one call of a function."""
ENDLESS = "SELECT event_time, id, levenshtein(repeat(carrier, 5000), repeat('y', 10000)) AS delay FROM flights"
"""A tenth of a second in one call of a function."""


@pytest.fixture(autouse=True)
def _outside_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def made(store: Store, *queries: str) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    for number, query in enumerate(queries):
        derived(store, f"d{number}", transform(query))
        pull(store, f"d{number}")


def verified(store: Store, name: str) -> str:
    return str(verify_dataset(store, DatasetLog(store, name)))


def test_runs_in_worker_processes_match_runs_in_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(limited, "available", lambda: False)
        patch.delattr(running, "_in_worker")
        made(store, LATE, PER_CARRIER)
        push(store, {1: ("AA", 30), 3: ("CC", 11)})
        before = [verified(store, name) for name in ("d0", "d1")]
    with monkeypatch.context() as patch:
        patch.delattr(running, "execute")  # the workers have their own
        assert [verified(store, name) for name in ("d0", "d1")] == before
        assert [pull(store, name).done.records for name in ("d0", "d1")]
    assert all("sound" in verified(store, name) for name in ("d0", "d1"))


@pytest.mark.parametrize(
    ("query", "memory", "seconds", "why"),
    [(HUNGRY, 160 << 20, 30.0, "memory|longer"), (ENDLESS, 1 << 30, 0.05, "took longer than 0.05 s")],
)
def test_verification_of_greedy_sql_is_stopped(
    store: Store, query: str, memory: int, seconds: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(store, query)
    before = psutil.Process().memory_info().rss
    monkeypatch.setattr(running, "MEMORY", memory)
    monkeypatch.setattr(running, "SECONDS", seconds)
    told = verified(store, "d0")
    assert "TransformFailed" in told
    assert any(each in told.lower() for each in why.split("|")), told  # a library without memory may wait for ever
    assert psutil.Process().memory_info().rss < before + (32 << 20)


def test_pull_of_greedy_sql_is_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made(store)
    derived(store, "d0", transform(ENDLESS))
    monkeypatch.setattr(running, "SECONDS", 0.05)
    with pytest.raises(TransformTooLarge, match=r"took longer than 0\.05 s"):
        pull(store, "d0")


def test_transformation_in_pod_runs_in_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cgroup and its deadline are the limits there, whatever the pod's size."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.delattr(running, "_in_worker")
    made(store, PER_CARRIER)
    assert "sound" in verified(store, "d0")
