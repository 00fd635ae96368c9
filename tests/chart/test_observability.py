"""The chart's alerts and dashboards, judged by Prometheus itself: on series of a test file, and on a real scrape."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.queue import Key, WorkQueue
from kubothek.cluster.telemetry.metrics import Metrics
from kubothek.cluster.telemetry.metrics_state import state_metrics
from kubothek.cluster.telemetry.probes import metrics
from kubothek.gateway.kubernetes.process import GatewayMetrics
from tests.chart.conftest import CHART, Render
from tests.cluster import podshapes
from tests.cluster.test_metrics import ended, known
from tests.testcluster.debian import PROMETHEUS
from tests.testcluster.steps import run

CASES = Path(__file__).with_name("alerts_test.yaml")
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
RUNBOOKS = CHART.parents[1] / "docs" / "runbooks.md"


@pytest.fixture(scope="session")
def prometheus() -> Path:
    return PROMETHEUS.ensure()


@pytest.fixture
def rules(render: Render) -> list[dict[str, Any]]:
    """The groups of the rendered PrometheusRule."""
    (found,) = (
        obj
        for obj in render("lake", alerts={"enabled": True, "staleSeconds": 86400})
        if obj["kind"] == "PrometheusRule"
    )
    groups: list[dict[str, Any]] = found["spec"]["groups"]
    return groups


def test_alerts_fire_exactly_in_expected_cases(prometheus: Path, rules: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": rules}))
    (tmp_path / "alerts_test.yaml").write_text(CASES.read_text())
    run([prometheus / "promtool", "check", "rules", "--lint-fatal", tmp_path / "rules.yaml"])
    run([prometheus / "promtool", "test", "rules", tmp_path / "alerts_test.yaml"])
    (_, wrong) = yaml.safe_load(CASES.read_text())["tests"]
    tested = {re.findall(r'"(\w+)"', sample["labels"])[0] for sample in wrong["promql_expr_test"][0]["exp_samples"]}
    assert tested == {rule["alert"] for group in rules for rule in group["rules"]}


def test_alerts_and_runbooks_match_one_to_one(rules: list[dict[str, Any]]) -> None:
    alerts = {rule["alert"]: rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"]}
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.M)) == set(alerts)
    assert all(url.endswith(f"docs/runbooks.md#{alert.lower()}") for alert, url in alerts.items())


def test_stale_dataset_alert_is_absent_by_default(render: Render) -> None:
    (found,) = (obj for obj in render(alerts={"enabled": True}) if obj["kind"] == "PrometheusRule")
    assert "KubothekDatasetStale" not in json.dumps(found)


def panels(dashboard: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return found


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_is_valid_for_grafana(dashboard: Path) -> None:
    document = json.loads(dashboard.read_text())
    assert document["uid"] == f"kubothek-{dashboard.stem}"
    shown = panels(dashboard)
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["description"].endswith("."), panel["title"]
        assert panel["type"] == "row" or panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    named = {variable["name"] for variable in document["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(shown))) - {"__rate_interval"} <= named


def eventful() -> tuple[Metrics, ClusterState, WorkQueue]:
    """An operator's metrics that have something of everything."""
    state, queue, counted = known(3, sources=1), WorkQueue(), Metrics()
    past = "2026-11-22T10:00:00Z"
    meta = {"namespace": "lake", "resourceVersion": "1", "generation": 1, "creationTimestamp": past}
    policy = {"lastTime": past, "nextTime": past, "last": {"failed": 1}}
    inspected = {"lastInspection": {"finished": past}}
    for kind, name, status in (
        ("GCPolicy", "nightly", policy),
        ("Sync", "partner", {"lastSyncTime": past}),
        ("Commit", "january", {}),
        ("ObjectStore", "looked-at", inspected),
    ):
        state.resources[kind].put({"metadata": {**meta, "name": name, "uid": name}, "spec": {}, "status": status})
    running = podshapes.pod(phase="Running", state=podshapes.running())
    state.pods.put(running)
    queue.add(Key("Dataset", "lake", "a"))
    for code in (0, 137):
        counted.pod(running, ended(code, "commit"))
    complete = {"conditions": [{"type": "Complete", "status": "True"}], "rows": 3, "files": 1, "bytes": 10}
    counted.resource("Commit", {}, {"status": complete})
    with counted.round_of("Commit"):
        pass
    with pytest.raises(TimeoutError), counted.round_of("Dataset"):
        raise TimeoutError
    counted.request("GET", "datasets", "200")
    counted.request("GET", "datasets", "500")
    counted.resynced({})
    return counted, state, queue


@asynccontextmanager
async def scraping(program: Path, directory: Path, ports: dict[str, int]) -> AsyncIterator[str]:
    """A Prometheus that scrapes these ports of this machine every 2 s, as docs/metrics.md has it; its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    jobs = [
        {
            "job_name": job,
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{target}"], "labels": {"namespace": "lake"}}],
        }
        for job, target in ports.items()
    ]
    config = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        str(program / "prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def queries() -> Iterator[tuple[str, str]]:
    """Every query of every dashboard and alert, as (where, PromQL without Grafana's variables)."""
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            for target in panel.get("targets", ()):
                yield (
                    f"{dashboard.stem}: {panel['title']}",
                    re.sub(r"\$(namespace|store)", ".*", target["expr"].replace("$__rate_interval", "1m")),
                )
    for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            for name in set(re.findall(r"kubothek_\w+", rule["expr"])):
                yield rule["alert"], name


@pytest.mark.slow
async def test_dashboard_and_alert_queries_match_real_scrape(prometheus: Path, tmp_path: Path) -> None:
    counted, state, queue = eventful()
    gateway = GatewayMetrics(lambda: 1)
    gateway.answered("GET", "/{dataset}/refs/{ref}", 200, 0.1)
    gateway.answered("GET", "/{dataset}/refs/{ref}", 503, 0.1)

    async def operator(accept: str) -> tuple[bytes, str]:
        return await counted.exposition(accept, partial(state_metrics, state, queue, 1000, datetime.now(UTC)))

    async with (
        metrics(0, operator) as operator_port,
        metrics(0, gateway.exposition) as gateway_port,
        scraping(prometheus, tmp_path, {"operator": operator_port, "gateway": gateway_port}) as url,
        aiohttp.ClientSession() as session,
    ):

        async def ask(query: str) -> list[Any]:
            async with session.get(f"{url}/api/v1/query", params={"query": query}) as response:
                answer = await response.json()
            assert answer["status"] == "success", answer
            return list(answer["data"]["result"])

        async def scraped() -> bool:
            try:
                return bool(await ask("count(count_over_time(kubothek_build_info[5m]) > 2) == 2"))
            except aiohttp.ClientError:
                return False  # it starts

        async with asyncio.timeout(100):
            while not await scraped():
                await asyncio.sleep(0.2)
        empty = [*queries()]
        with suppress(TimeoutError):  # a scrape that a busy machine does not answer in time makes all of them stale
            async with asyncio.timeout(60):
                while empty := [(where, query) for where, query in empty if not await ask(query)]:
                    await asyncio.sleep(1)
    assert empty == []
