"""Runs in worker processes: what comes of them is the same, and a greedy one ends alone."""

from __future__ import annotations

import psutil
import pytest

from kubothek.lake import limited
from kubothek.lake.commits import DatasetLog
from kubothek.lake.ledger.derivative import running
from kubothek.lake.ledger.derivative.limiting import limited_runs
from kubothek.lake.store import Store
from kubothek.lake.verification import verify_dataset
from tests.derivative.world import LATE, PER_CARRIER, derived, pull, push, root, transform

HUNGRY = "SELECT event_time, id, damerau_levenshtein(repeat(carrier, 4000), repeat('y', 8000)) AS delay FROM flights"
"""256 MB in one call of a function."""
ENDLESS = "SELECT event_time, id, levenshtein(repeat(carrier, 5000), repeat('y', 10000)) AS delay FROM flights"
"""A tenth of a second in one call of a function."""


def made(store: Store, *queries: str) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    for number, query in enumerate(queries):
        derived(store, f"d{number}", transform(query))
        pull(store, f"d{number}")


def verified(store: Store, name: str) -> str:
    return str(verify_dataset(store, DatasetLog(store, name)))


def test_runs_in_workers_give_what_runs_in_process_give(store: Store) -> None:
    made(store, LATE, PER_CARRIER)
    push(store, {1: ("AA", 30), 3: ("CC", 11)})
    before = [verified(store, name) for name in ("d0", "d1")]
    with limited_runs():
        assert [verified(store, name) for name in ("d0", "d1")] == before
        assert [pull(store, name).done.records for name in ("d0", "d1")]
    assert running._EXECUTE is running._in_process
    assert all("sound" in verified(store, name) for name in ("d0", "d1"))


@pytest.mark.parametrize(
    ("query", "memory", "seconds", "why"),
    [(HUNGRY, 160 << 20, 30.0, "memory|longer"), (ENDLESS, 1 << 30, 0.05, "took longer than 0.05 s")],
)
def test_verification_stops_greedy_sql_of_a_chain(
    store: Store, query: str, memory: int, seconds: float, why: str
) -> None:
    with limited_runs():
        made(store, query)
    before = psutil.Process().memory_info().rss
    with limited_runs(memory, seconds):
        told = verified(store, "d0")
    assert "TransformFailed" in told
    assert any(each in told.lower() for each in why.split("|")), told  # a library without memory may wait for ever
    assert psutil.Process().memory_info().rss < before + (32 << 20)


def test_runs_stay_in_process_where_there_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "available", lambda: False)
    with limited_runs():
        assert running._EXECUTE is running._in_process
