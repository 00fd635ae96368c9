"""What the operator tells of itself, its jobs and the data: read over HTTP and parsed as Prometheus does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kubothek.cluster.api import Api
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.controller import Controller
from kubothek.cluster.process import exposition
from kubothek.cluster.queue import Key, WorkQueue
from kubothek.cluster.telemetry import probes
from kubothek.cluster.telemetry.logs import JsonLines, round_of
from kubothek.cluster.telemetry.metrics import VERBS, Metrics
from kubothek.cluster.telemetry.metrics_state import state_metrics
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.gateway.app import make_app
from kubothek.gateway.kubernetes.process import GatewayMetrics
from tests.cluster import podshapes
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import bench
from tests.cluster.test_operator import Tenant, jobs_that_work

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Sample = tuple[str, frozenset[tuple[str, str]]]


class Scrape:
    """All samples of one scrape, by name and labels."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, metric: str, /, **labels: str) -> float:
        """The sum of the samples that have these labels; fails if there are none."""
        found = [
            value
            for (known, all_labels), value in self.samples.items()
            if known == metric and labels.items() <= all_labels
        ]
        assert found, f"no {metric} with {labels}"
        return sum(found)


async def scraped(controller: Controller, accept: str = OPENMETRICS, limit: int = 1000) -> Scrape:
    async with (
        probes.metrics(0, partial(exposition, controller, limit)) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept}) as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"].split(";")[0] == accept.split(";")[0]
        text = await response.text()
    return Scrape((parse_openmetrics if accept == OPENMETRICS else parse_text)(text))


async def test_commit_metrics_cover_manifest_to_rows_and_survive_restart(
    server: ApiServer, namespace: str, api: Api
) -> None:
    """And a restarted operator, which has seen none of it, knows all that is, and counts nothing twice."""
    tenant = Tenant(server, namespace)
    async with bench(api, namespace, RECONCILERS) as operator:
        async with jobs_that_work(tenant.kubelet):
            tenant.apply()
            await operator.until(tenant.is_complete)
        await operator.settled()  # from here on nothing moves
        seen = await scraped(operator.controller)
        plain = await scraped(operator.controller, accept="text/plain; version=0.0.4")
    here = {"namespace": namespace}
    assert seen("kubothek_resources", kind="Commit", state="Ready", **here) == 1
    assert seen("kubothek_resource_info", kind="Dataset", name="orders", state="Ready", **here) == 1
    assert seen("kubothek_dataset_rows", name="orders", **here) == 3
    assert seen("kubothek_store_rows", store="lake", **here) == 3
    assert seen("kubothek_store_inspected_timestamp_seconds", store="lake", **here) > 0
    assert seen("kubothek_job_ends_total", verb="commit", result="Succeeded", reason="") == 1
    assert seen("kubothek_job_duration_seconds_count", verb="commit", result="Succeeded") == 1
    assert seen("kubothek_job_stage_seconds_count", verb="commit", stage="running") == 1
    assert seen("kubothek_run_ends_total", kind="Commit", result="Complete") == 1
    assert seen("kubothek_commit_rows_total") == 3
    assert seen("kubothek_reconcile_total", kind="Dataset", result="success") > 0
    assert seen("kubothek_reconcile_duration_seconds_count", kind="Dataset") > 0
    assert seen("kubothek_workqueue_failing") == 0
    assert {name for name, _ in plain.samples} == {name for name, _ in seen.samples}

    async with bench(api, namespace, RECONCILERS, workers=0) as restarted:
        again = await scraped(restarted.controller)
    for (name, labels), value in seen.samples.items():
        if name.startswith(("kubothek_dataset_", "kubothek_store_", "kubothek_resource")) and "resync" not in name:
            assert again.samples[name, labels] == value
    assert not any(name.startswith(("kubothek_job_ends", "kubothek_run_ends")) for name, _ in again.samples)
    assert again("kubothek_commit_rows_total") == 0


async def test_api_request_metrics_are_labelled_by_resource(server: ApiServer, namespace: str) -> None:
    counted = Metrics()
    api = await Api.connect(str(server.kubeconfig()), answered=counted.request)
    unreachable = await Api.connect(str(server.kubeconfig(server="http://127.0.0.1:1")), answered=counted.request)
    try:
        async for _ in api.pages("Dataset", namespace):
            pass
        async for _ in api.pages("Dataset", None):
            pass
        await api.get("Pod", namespace, "nobody")
        await api.cluster_uid()
        with pytest.raises(Exception, match=r"/pods/nobody"):
            await unreachable.get("Pod", namespace, "nobody")
    finally:
        await api.close()
        await unreachable.close()
    body, _ = await counted.exposition("", list)
    counts = {
        tuple(s.labels[name] for name in ("verb", "resource", "code")): s.value
        for family in parse_text(body.decode())
        for s in family.samples
        if s.name == "kubothek_api_requests_total"
    }
    assert counts == {
        ("GET", "datasets", "200"): 2,
        ("GET", "pods", "404"): 1,
        ("GET", "namespaces", "200"): 1,
        ("GET", "pods", "unreachable"): 1,
    }


def dataset(number: int, sources: int = 0) -> dict[str, Any]:
    """A Dataset with everything in its status that metrics read, one of ten with data lost."""
    health = {"smallFiles": 4, "historyBytes": 5, "garbageBytes": 6}
    lag = {"files": 7, "bytes": 8}
    status = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Current", "observedGeneration": 1}],
        "version": 2,
        "rows": 10,
        "files": 3,
        "bytes": 1000,
        "partitions": 1,
        "lastCommitTime": "2026-11-22T11:00:00Z",
        "inspectedTime": "2026-11-22T11:30:00Z",
        "health": health,
        "iceberg": {"version": 1, "lag": 1},
        "sources": [{"name": f"s{i}", "lag": lag, "currentUntil": "2026-11-22T11:30:00Z"} for i in range(sources)],
        **({"corrupt": "two files of version 2"} if number % 10 == 0 else {}),
    }
    meta = {"namespace": "lake", "name": f"d{number}", "uid": f"u{number}", "resourceVersion": "1", "generation": 1}
    return {"metadata": meta, "spec": {"storeRef": {"name": "s"}}, "status": status}


def known(datasets: int, sources: int = 0) -> ClusterState:
    state = ClusterState()
    meta = {"namespace": "lake", "name": "s", "uid": "s", "resourceVersion": "1"}
    state.resources["ObjectStore"].put({"metadata": meta, "spec": {}})
    for number in range(datasets):
        state.resources["Dataset"].put(dataset(number, sources))
    return state


def told(state: ClusterState, limit: int) -> Scrape:
    return Scrape(state_metrics(state, WorkQueue(), limit, NOW))


def test_metric_series_count_is_bounded_beyond_dataset_limit() -> None:
    few, many = told(known(51), limit=50), told(known(1000), limit=50)
    assert set(few.samples) == set(many.samples)
    assert many("kubothek_objects_withheld", kind="Dataset") == 1000
    assert many("kubothek_store_rows", store="s") == 10_000
    assert many("kubothek_store_corrupt_datasets", store="s") == 100
    assert many("kubothek_resource_info", kind="ObjectStore") == 1, "of which there are few"
    assert not any(name.startswith(("kubothek_dataset_", "kubothek_source_")) for name, _ in many.samples)


def test_metric_series_per_dataset_are_complete_up_to_limit() -> None:
    one, two, three = (len(told(known(count, sources=2), limit=3).samples) for count in (1, 2, 3))
    assert three - two == two - one > 20
    seen = told(known(3, sources=2), limit=3)
    assert seen("kubothek_objects_withheld", kind="Dataset") == 0
    assert seen("kubothek_source_lag_files", dataset="d1", source="s0") == 7
    assert seen("kubothek_dataset_last_commit_timestamp_seconds", name="d1") == NOW.timestamp() - 3600
    assert seen("kubothek_dataset_iceberg_lag_versions", name="d1") == 1
    assert seen("kubothek_dataset_corrupt", name="d0") == 1
    assert seen("kubothek_dataset_corrupt", name="d1") == 0


def test_datasets_of_missing_stores_share_one_metric_series() -> None:
    state = known(1)
    for number in range(100, 120):
        obj = dataset(number)
        obj["spec"]["storeRef"]["name"] = f"made-up-{number}"
        state.resources["Dataset"].put(obj)
    assert told(state, limit=0)("kubothek_store_datasets", store="") == 20
    assert {dict(labels)["store"] for name, labels in told(state, 0).samples if name == "kubothek_store_datasets"} == {
        "",
        "s",
    }


def ended(code: int, verb: str, message: str = "") -> dict[str, Any]:
    pod = podshapes.pod(phase="Succeeded" if code == 0 else "Failed", state=podshapes.exited(code, message))
    pod["metadata"]["labels"]["kubothek.io/verb"] = verb
    return pod


async def test_metric_label_values_form_closed_set_for_any_pod() -> None:
    counted = Metrics()
    before = podshapes.pod(phase="Running", state=podshapes.running())
    for number in range(1000):
        result = {"v": 1, "outcome": "Failed", "reason": f"MadeUp{number}", "message": "", "retryable": False}
        counted.pod(before, ended(3, f"verb-{number}", json.dumps(result)))
    counted.pod(before, ended(137, "commit"))
    counted.pod_deleted(before, before, cancelled=True)
    counted.pod_deleted(before, before, cancelled=False)
    counted.pod(None, ended(0, "commit"))
    counted.pod(ended(0, "commit"), ended(0, "commit"))
    body, _ = await counted.exposition("", list)
    ends = Scrape(parse_text(body.decode()))
    labels = [dict(found) for name, found in ends.samples if name == "kubothek_job_ends_total"]
    assert {found["verb"] for found in labels} == {"other", "commit"}
    assert len({found["reason"] for found in labels}) <= 203
    assert ends("kubothek_job_ends_total", result="Cancelled") == 1
    assert ends("kubothek_job_ends_total", result="Infrastructure", reason="PodDeleted") == 1
    assert ends("kubothek_job_ends_total", verb="commit") == 1, "what ended before it was seen is not counted"
    assert ends("kubothek_job_ends_total") == 1003
    assert {"commit", "inspect", "compact", "collect"} <= VERBS


async def test_gateway_metrics_are_labelled_by_route_only() -> None:
    nothing: Any = None  # that its health has to ask
    counted = GatewayMetrics(lambda: 7)
    app = make_app(nothing, nothing, answered=counted.answered)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session, probes.metrics(0, counted.exposition) as port:
            for asked in ("GET /healthz", "GET /a/b/c/d", "GET /e/f/g/h", "PROPFIND /healthz"):
                method, path = asked.split()
                async with session.request(method, url + path):
                    pass
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                seen = Scrape(parse_text(await response.text()))
    finally:
        await runner.cleanup()
    assert seen("kubothek_gateway_datasets") == 7
    assert seen("kubothek_gateway_requests_total", method="GET", route="/healthz", code="200") == 1
    assert seen("kubothek_gateway_requests_total", method="GET", route="other", code="404") == 2
    assert seen("kubothek_gateway_requests_total", method="other") == 1
    assert seen("kubothek_gateway_request_duration_seconds_count", route="/healthz") == 1


async def test_queue_metrics_show_age_length_and_failures() -> None:
    queue = WorkQueue()

    def gauge(name: str) -> float:
        return Scrape(state_metrics(ClusterState(), queue, 0, NOW))(f"kubothek_workqueue_{name}")

    def leading() -> float:
        return Scrape(state_metrics(ClusterState(), queue, 0, NOW))("kubothek_leading")

    queue.add(Key("Dataset", "lake", "a"))
    queue.add(Key("Dataset", "other", "b"))
    await asyncio.sleep(0.01)
    assert leading() == gauge("depth") == gauge("oldest_seconds") == gauge("failing") == 0, "nobody works here"
    key = await queue.get()
    assert (leading(), gauge("depth"), gauge("busy")) == (1, 1, 1)
    assert gauge("oldest_seconds") >= 0.01
    await queue.get()
    queue.done(key, failed=True)
    assert (gauge("busy"), gauge("failing")) == (1, 1)
    queue.forget(key)
    assert gauge("failing") == 0


def test_json_log_line_names_reconcile_key() -> None:
    def line(**extra: str) -> dict[str, str]:
        record = logging.makeLogRecord(
            {"name": "kubothek", "levelname": "INFO", "msg": "%s\nlaunched", "args": ("x",), **extra}
        )
        found: dict[str, str] = json.loads(JsonLines().format(record))
        return found

    with round_of(Key("Commit", "lake", "january")):
        first, second = line(job="january-1", verb="commit"), line()
    with round_of(Key("Commit", "lake", "january")):
        third = line()
    assert first.items() >= {"kind": "Commit", "namespace": "lake", "name": "january", "job": "january-1"}.items()
    assert first["message"] == "x\nlaunched"
    assert first["reconcile_id"] == second["reconcile_id"] != third["reconcile_id"]
    assert "reconcile_id" not in line()
