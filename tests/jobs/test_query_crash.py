"""A query's job dies before or after any single call that changes the store; then the next attempt runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.api.jobs import QueryJob, QueryOutcome
from kubothek.errors import StoreUnavailable
from kubothek.jobs import query
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store, StoreConfig, open_store
from tests.faultstore import Crash, Fault, FaultStore, every_crash

pytestmark = pytest.mark.slow

SQL = "SELECT carrier, count(*) AS n FROM flights GROUP BY 1"


def job(root: Path, attempt: int, **result: Any) -> QueryJob:
    store = {"name": "lake", "url": root.as_uri()}
    where: dict[str, Any] = {"location": {"store": store, "path": "out", "format": "CSV"}}
    if result:
        dataset = {"uuid": "top", "claim": {"owner": "c/ns/top", "incarnation": "i"}}
        where = {"becomes": {"store": store, "dataset": dataset, "commit_id": "query:ns/q"} | result}
    given = {"job": f"q-query-{attempt}", "uid": "uid-q", "attempt": attempt, "store": store, "sql": SQL}
    return QueryJob.model_validate(given | where)


def lake_in(root: Path) -> Path:
    root.mkdir()
    lake = kubothek.open(root.as_uri())
    lake.create_dataset("flights").append(pa.table({"carrier": ["AA", "UA", "AA"]}))
    return root


def attempt(monkeypatch: pytest.MonkeyPatch, target: Store, number: int, **result: Any) -> QueryOutcome:
    """One attempt whose results go to this very store object."""
    root = Path(target.config.url.removeprefix("file://"))
    monkeypatch.setattr(query, "open_store", lambda _config: target)
    found = query.run(job(root, number, **result), open_store(StoreConfig(root.as_uri())), Reporter())
    assert found.query is not None
    return found.query


def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **result: Any) -> list[Fault]:
    counting = FaultStore(open_store(StoreConfig(lake_in(tmp_path / "count").as_uri())))
    attempt(monkeypatch, counting, 1, **result)
    return list(every_crash(counting.calls))


def test_query_job_that_crashes_writes_one_file_on_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = crashes(tmp_path, monkeypatch)
    assert len(faults) >= 4
    for number, fault in enumerate(faults):
        store = open_store(StoreConfig(lake_in(tmp_path / str(number)).as_uri()))
        with suppress(Crash):
            attempt(monkeypatch, FaultStore(store, fault), 1)
        outcome = attempt(monkeypatch, store, 2)
        assert [info.key for info in store.list("out/")] == [outcome.location], fault
        assert sorted(store.get(outcome.location or "").split()) == [b'"AA",2', b'"UA",1', b'"carrier","n"'], fault
        assert attempt(monkeypatch, store, 3) == outcome


@pytest.mark.slow
def test_query_job_that_crashes_writes_dataset_once_on_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = crashes(tmp_path, monkeypatch, key=())
    assert len(faults) >= 10
    for number, fault in enumerate(faults):
        store = open_store(StoreConfig(lake_in(tmp_path / str(number)).as_uri()))
        with suppress(Crash):
            attempt(monkeypatch, FaultStore(store, fault), 1, key=())
        outcome = attempt(monkeypatch, store, 2, key=())
        top = kubothek.open(store.url).dataset("top")
        assert (outcome.version, outcome.rows, top.version, top.rows) == (1, 2, 1, 2), fault
        assert [record.version for record in top.history()] == [1], fault


@pytest.mark.slow
def test_query_job_that_crashes_merges_once_on_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits: an empty table, as there is none, and the merge of the rows into it."""
    faults = crashes(tmp_path, monkeypatch, key=("carrier",), run=1)
    assert len(faults) >= 20
    for number, fault in enumerate(faults):
        store = open_store(StoreConfig(lake_in(tmp_path / str(number)).as_uri()))
        with suppress(Crash):
            attempt(monkeypatch, FaultStore(store, fault), 1, key=("carrier",), run=1)
        outcome = attempt(monkeypatch, store, 2, key=("carrier",), run=1)
        top = kubothek.open(store.url).dataset("top")
        assert (outcome.version, outcome.rows, top.version, top.rows) == (2, 2, 2, 2), fault
        assert [record.version for record in top.history()] == [2, 1], fault


@pytest.mark.parametrize("call", ["upload", "put_if_absent"])
def test_query_job_with_lost_response_publishes_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = open_store(StoreConfig(lake_in(tmp_path / "lake").as_uri()))
    fault = Fault((call,), key="uid-q", after=True, error=StoreUnavailable("lost"))
    with pytest.raises(StoreUnavailable):
        attempt(monkeypatch, FaultStore(store, fault), 1)
    outcome = attempt(monkeypatch, store, 2)
    assert [info.key for info in store.list("out/")] == [outcome.location]
