"""Ingestions in worker processes: SQL of a dataset's owner that wants too much, and a worker that is killed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from kubothek.gateway import ingest
from kubothek.gateway.limits import Limits
from kubothek.odf.dataset import create
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from kubothek.sandbox import limited
from kubothek.sandbox.limited import Ask
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import IcebergSetting
from tests.gateway.running import WRITER, Running, running
from tests.gateway.test_objects import Answered, ask
from tests.odf.dataset.planes import LEDGER, OWNER, UUID, begun, push, source, table

pytestmark = pytest.mark.slow

HUNGRY = "CASE model WHEN 'big' THEN damerau_levenshtein(repeat('x', n), repeat('y', n)) ELSE 0 END"
"""For one model 576 MB in one call of a function, which nothing interrupts; for others nothing."""
ENDLESS = "CASE model WHEN 'long' THEN levenshtein(repeat('x', n * 40), repeat('y', n * 40)) ELSE 0 END"
GREEDY = f"SELECT id, model || CAST({HUNGRY} + {ENDLESS} AS TEXT) AS model FROM (SELECT *, 12000 + id AS n FROM input)"
LIMITS = Limits(query_memory="64MB", query_seconds=300, ingest_memory="256MB", ingest_seconds=1.5)


@pytest.fixture
def gateway(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    preprocess = TransformSql(engine="duckdb", queries=(SqlQueryStep(query=GREEDY),))
    create(store, DatasetLog(store, UUID), begun(replace(source(LEDGER), preprocess=preprocess)), OWNER)
    with running(store, limits=LIMITS) as gateway:
        yield gateway


def post(gateway: Running, number: int, model: str) -> Answered:
    headers = {"Authorization": f"Bearer {WRITER}", "Idempotency-Key": "k", "Accept": "application/json"}
    return ask(gateway, f"/{UUID}/ingest", "POST", orjson.dumps({"id": number, "model": model}), **headers)


@pytest.mark.parametrize(
    ("model", "answer", "why"),
    [("big", (400, "QueryInvalid"), "64MB of memory"), ("long", (422, "IngestStopped"), "longer than 1.5 s")],
)
def test_ingest_with_greedy_preprocess_is_stopped(
    store: Store, gateway: Running, tmp_path: Path, model: str, answer: tuple[int, str], why: str
) -> None:
    before = psutil.Process().memory_info().rss
    found = post(gateway, 1, model)
    told = orjson.loads(found.body)
    assert ((found.status, told["reason"]), why in told["message"]) == (answer, True), told
    assert psutil.Process().memory_info().rss < before + (32 << 20)
    assert not [*tmp_path.glob("kubothek-*")]
    again = [orjson.loads(post(gateway, 2, "A").body)["repeated"] for _ in range(2)]
    assert (again, table(store)) == ([False, True], {2: "A0"})


def test_ingest_exports_what_it_commits(store: Store) -> None:
    log = DatasetLog(store, UUID)
    create(store, log, begun(source(LEDGER)), OWNER)
    log.set_iceberg(IcebergSetting("Omit"))
    with running(store) as gateway:
        found = post(gateway, 1, "A")
    assert found.status == 200, found.body
    assert int(store.get(f"{keys.iceberg_metadata(UUID)}version-hint.text")) == orjson.loads(found.body)["version"]
    assert "kubothek.table.iceberg.export" in limited._PRELOADED, "by the process from which workers are forked"


def killed_before(ask: Ask, *arguments: Any) -> Iterator[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""


def killed_after(ask: Ask, *arguments: Any) -> Iterator[bytes]:
    yield from ingest._ingested(ask, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("killed", "repeated"), [(killed_before, False), (killed_after, True)])
def test_ingest_whose_worker_is_killed_is_retried_exactly_once(
    store: Store, gateway: Running, monkeypatch: pytest.MonkeyPatch, killed: Any, repeated: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "_ingested", killed)
        assert (found := post(gateway, 1, "A")).status == 422, found.body
    found = post(gateway, 1, "A")
    assert (found.status, orjson.loads(found.body)["repeated"]) == (200, repeated), found.body
    assert table(store) == {1: "A0"}
    push(store, {3: "C"})
    assert post(gateway, 2, "A").status == 409
