"""The gateway's chart: what it renders, that an API server takes it, and that a gateway with its rights serves."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from kubothek.odf.dataset import create
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Claim, DatasetLog
from tests.chart.conftest import CHART, Objects
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import manifest, resource_path
from tests.cluster.test_gateway import People
from tests.odf.dataset.planes import LEDGER, OWNER, begun, source
from tests.testcluster.gotools import KUBERNETES
from tests.testcluster.steps import CommandError, run

GATEWAY = CHART.parent / "kubothek-gateway"
AUDIENCE = "gw-kubothek-gateway.lake.svc"

Render = Callable[..., Objects]


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """``render(namespace="lake", **values)``: the chart's objects, in order."""

    def rendered(namespace: str = "lake", **values: object) -> Objects:
        sets = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
        version = f"--kube-version={KUBERNETES.version}"
        text = run([helm, "template", "gw", GATEWAY, f"--namespace={namespace}", version, *sets])
        return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]

    return rendered


def of_kind(objects: Objects, kind: str) -> Objects:
    return [obj for obj in objects if obj["kind"] == kind]


def pod_of(objects: Objects) -> dict[str, Any]:
    (found,) = of_kind(objects, "Deployment")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def arguments(objects: Objects) -> list[str]:
    (container,) = pod_of(objects)["containers"]
    return list(container["args"])


STORES = [
    {"name": "lake", "credentialsSecret": "lake-credentials", "keysSecret": "lake-keys"},
    {"name": "files", "volumeClaim": "lake-files", "path": "/data/lake"},
]


def test_gateway_chart_passes_lint(helm: Path) -> None:
    assert "0 chart(s) failed" in run([helm, "lint", "--strict", GATEWAY])


def test_gateway_role_grants_dataset_watch_and_access_reviews_only(render: Render) -> None:
    (own, *_) = of_kind(render(), "Role")
    assert own["rules"] == [
        {"apiGroups": ["kubothek.io"], "resources": ["datasets", "objectstores"], "verbs": ["list", "watch"]}
    ]
    reviews = [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]
    identity = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
    assert [role["rules"] for role in of_kind(render(), "ClusterRole")] == [[*reviews, identity]]
    assert [role["rules"] for role in of_kind(render(clusterId="prod"), "ClusterRole")] == [reviews]
    (bound,) = of_kind(render(), "RoleBinding")
    assert bound["roleRef"]["name"] == own["metadata"]["name"]


def test_gateway_client_roles_are_created_without_bindings(render: Render) -> None:
    rules = {role["metadata"]["name"]: role["rules"] for role in of_kind(render(), "Role")[1:]}
    assert rules == {
        f"gw-kubothek-gateway-{right}": [{"apiGroups": ["kubothek.io"], "resources": ["datasets"], "verbs": [verb]}]
        for right, verb in (("pull", "get"), ("push", "push"), ("ingest", "ingest"), ("force", "force"))
    }
    assert len(of_kind(render(roles=False), "Role")) == 1


def test_gateway_token_audience_is_unique_per_gateway(render: Render) -> None:
    assert f"--audience={AUDIENCE}" in arguments(render("lake"))
    assert "--audience=gw-kubothek-gateway.other.svc" in arguments(render("other"))
    assert "--audience=https://data.example.com" in arguments(render(audience="https://data.example.com"))


def test_gateway_mounts_secrets_and_volumes_like_jobs(render: Render) -> None:
    pod = pod_of(render(stores=STORES, tls={"secretName": "cert"}))
    (container,) = pod["containers"]
    mounts = {each["name"]: (each["mountPath"], each.get("readOnly", False)) for each in container["volumeMounts"]}
    assert mounts == {
        "tmp": ("/tmp", False),
        "tls": ("/var/run/kubothek/tls", True),
        "credentials-0": ("/var/run/kubothek/credentials/lake", True),
        "keys-0": ("/var/run/kubothek/keys/lake", True),
        "files-1": ("/data/lake", False),
    }
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert secrets == {"tls": "cert", "credentials-0": "lake-credentials", "keys-0": "lake-keys"}
    assert {each["name"] for each in pod["volumes"]} == set(mounts)


def test_gateway_disruption_budget_exists_with_several_replicas_only(render: Render) -> None:
    assert len(of_kind(render(), "PodDisruptionBudget")) == 1
    assert not of_kind(render(replicas=1), "PodDisruptionBudget")


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_gateway_monitor_selects_metrics_and_network_policy_admits_scraper(render: Render, kind: str) -> None:
    scraper = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    objects = render(metrics={"monitor": kind, "interval": "1m", "from": scraper})
    (monitor,) = of_kind(objects, kind)
    (template,) = [each["spec"]["template"] for each in of_kind(objects, "Deployment")]
    (container,) = template["spec"]["containers"]
    known = {each["name"]: each["containerPort"] for each in container["ports"]}
    given = dict(each.removeprefix("--").split("=") for each in container["args"] if "port=" in each)
    assert known == {"gateway": 8080, "probes": 8081, "metrics": 8082}
    assert [int(given[name]) for name in ("port", "probe-port", "metrics-port")] == [*known.values()]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for each in of_kind(objects, "Service") if wanted <= each["metadata"]["labels"].items()]
    assert [port["name"] for each in services for port in each["spec"]["ports"]] == (
        ["metrics"] if kind == "ServiceMonitor" else []
    )
    assert all(each["spec"]["selector"].items() <= template["metadata"]["labels"].items() for each in services)
    assert kind == "ServiceMonitor" or wanted <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "interval": "1m", "honorLabels": True}
    (policy,) = of_kind(objects, "NetworkPolicy")
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert rules == {"gateway": None, "probes": None, "metrics": scraper}
    assert not of_kind(render(), kind)


def test_gateway_trusts_only_named_proxies(render: Render) -> None:
    assert not [each for each in arguments(render()) if "proxy" in each]
    made = [each for each in arguments(render(trustedProxies=["10.0.0.0/8", "fd00::/8"])) if "proxy" in each]
    assert made == ["--trusted-proxy=10.0.0.0/8", "--trusted-proxy=fd00::/8"]


def test_gateway_limits_in_schema_are_all_command_line_options(render: Render) -> None:
    """And large numbers stay whole numbers."""
    known = json.loads((GATEWAY / "values.schema.json").read_text())["properties"]["limits"]["properties"]
    given = {name: "1GB" if name.endswith("Memory") else 8 << 30 for name in known}
    made = [each for each in arguments(render(limits=given)) if each.startswith("--limit-")]
    assert len(made) == len(known)
    from kubothek.gateway.__main__ import main

    main.make_context("gateway", ["--namespace=a", "--audience=b", *made])


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 2}, "replica"),
        ({"limits": {"perMinute": 1}}, "perMinute"),
        ({"limits": {"burst": 0}}, "burst"),
        ({"stores": [{"name": "lake", "secret": "x"}]}, "secret"),
        ({"stores": [{"name": "lake", "volumeClaim": "x"}]}, "path"),
        ({"audience": "a b"}, "audience"),
        ({"trustedProxies": ["proxy.lake.svc"]}, "trustedProxies"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"networkPolicy": {"egressPorts": []}}, "egressPorts"),
        ({"metrics": {"monitor": "VMServiceScrape"}}, "monitor"),
    ],
)
def test_gateway_invalid_value_is_refused_by_name(render: Render, values: dict[str, object], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        render(**values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "stores": STORES,
            "tls": {"secretName": "cert"},
            "networkPolicy": {"from": [{"namespaceSelector": {}}], "egressPorts": [443, 7070]},
        },
    ],
)
def test_gateway_objects_pass_api_server_under_restricted_pod_security(
    server: ApiServer, namespace: str, render: Render, values: dict[str, object]
) -> None:
    documents = yaml.dump_all(objects := render(namespace, **values), Dumper=yaml.CSafeDumper)
    shown = server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=documents)
    for kind in ("deployment", "service", "networkpolicy", "poddisruptionbudget"):
        assert re.search(rf"^{kind}[.\w]*/gw-kubothek-gateway created", shown, re.MULTILINE), shown
    meta = {"name": "probe", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_of(objects)}
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(of_kind(objects, "ServiceAccount")))
    assert "created" in server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


class Process:
    """A gateway as the chart starts it, but as a process of this machine. ``said`` is its standard error."""

    def __init__(self, command: list[str]) -> None:
        self.said: list[str] = []
        self.audit: list[dict[str, Any]] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._readers = [Thread(target=self._hear), Thread(target=self._read_audit)]
        for reader in self._readers:
            reader.start()
        self.port = 0

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line)

    def _read_audit(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.audit.append(json.loads(line))

    def wait_until_it_listens(self) -> None:
        self.port = int(self.until(lambda: re.search(r"on port (\d+)", "".join(self.said))).group(1))

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 300
        while not (found := condition()):
            assert self._process.poll() is None, "".join(self.said)
            assert time.monotonic() < deadline, "".join(self.said)
            time.sleep(0.02)
        return found

    def stop(self) -> int:
        self._process.terminate()
        code = self._process.wait(120)
        for reader in self._readers:
            reader.join()
        return code

    def ask(
        self, path: str, token: str | None = None, method: str = "GET", body: bytes | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            if method == "POST":
                headers |= {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def gateway_process(server: ApiServer, objects: Objects, token: str) -> Iterator[Process]:
    given = [each for each in arguments(objects)[1:] if not re.match(r"--(probe-|metrics-)?port=", each)]
    free = [f"--{name}port=0" for name in ("", "probe-", "metrics-")]
    command = [sys.executable, *given, *free, f"--kubeconfig={server.kubeconfig(token)}"]
    process = Process(command)
    try:
        process.wait_until_it_listens()
        yield process
    finally:
        process.stop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


def test_gateway_with_chart_roles_serves_exposed_datasets_to_authorized(
    server: ApiServer, namespace: str, render: Render, store: Store
) -> None:
    """Expose, pull, ingest into what the operator has claimed, hide; and not one call that is forbidden."""
    objects = render(namespace)
    audience = f"gw-kubothek-gateway.{namespace}.svc"
    wanted = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([o for o in objects if o["kind"] in wanted]))
    people = People(server, namespace)

    def put(kind: str, name: str, spec: dict[str, Any]) -> Any:
        return server.apply(resource_path(kind, namespace, name), manifest(kind, namespace, name, spec))

    def dataset(sharing: dict[str, bool] | None) -> Any:
        spec: dict[str, Any] = {"storeRef": {"name": "lake"}, "uuid": "planes"}
        return put("Dataset", "jets", {**spec, "sharing": sharing} if sharing else spec)

    put("ObjectStore", "lake", {"url": store.url, "volume": {"claimName": "files"}})
    made = dataset(None)
    cluster = server.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    claim = Claim(f"{cluster}/{namespace}/jets", made["metadata"]["uid"])
    create(store, DatasetLog(store, "planes", claim=claim), begun(source(LEDGER)), OWNER)

    people.allow("reader", ["get"], "jets")
    people.allow("writer", ["ingest"])
    reader, writer = people.token("reader", audience), people.token("writer", audience)
    row = b'{"id": 1, "model": "A"}\n'
    with gateway_process(server, objects, people.token("gw-kubothek-gateway")) as gateway:
        gateway.until(lambda: gateway.ask("/jets/refs/head", reader)[0] == 404)
        dataset({"exposed": True})
        gateway.until(lambda: gateway.ask("/jets/refs/head", reader)[0] == 200)
        assert gateway.ask("/jets/refs/head")[0] == 401
        assert gateway.ask("/jets/refs/head", people.token("reader"))[0] == 401, "its audience is the API server"
        assert gateway.ask("/jets/refs/head", writer)[0] == 403
        assert gateway.ask("/planes/refs/head", reader)[0] == 403
        assert gateway.ask("/jets/ingest", reader, "POST", row)[0] == 403
        status, said = gateway.ask("/jets/ingest", writer, "POST", row)
        assert (status, json.loads(said)["records"]) == (200, 1)
        status, said = gateway.ask("/query?query=SELECT%20model%20FROM%20jets", reader)
        assert (status, json.loads(said)) == (200, {"data": [{"model": "A"}]})
        status, said = gateway.ask("/search", reader)
        assert [each["name"] for each in json.loads(said)["datasets"]] == ["jets"]
        dataset({"exposed": True, "public": True})
        gateway.until(lambda: gateway.ask("/jets/refs/head")[0] == 200)
        assert gateway.ask("/jets/ingest", None, "POST", row)[0] == 401
        dataset(None)
        gateway.until(lambda: gateway.ask("/jets/refs/head")[0] == 401)
        assert gateway.ask("/jets/refs/head", reader)[0] == 404
        assert gateway.stop() == 0
    said = "".join(gateway.said)
    assert "forbidden" not in said.lower()
    assert "Dataset jets is served" in said
    pulled = [each for each in gateway.audit if each.get("principal", "").endswith(":reader") and each["status"] == 200]
    assert {"time", "peer", "method", "path", "seconds", "dataset", "verb"} <= pulled[0].keys()
    assert reader not in json.dumps(gateway.audit) + said
