"""The Helm chart: what it renders, that an API server takes it, and that its roles are enough and not more."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kubothek.api import pod_sizes
from kubothek.api.meta import FINALIZER
from kubothek.api.profiles import said
from kubothek.api.sizes import Sizes
from kubothek.cluster.__main__ import main
from kubothek.cluster.api import RESOURCES
from kubothek.cluster.pods import job_pod as pods
from kubothek.cluster.selftest import NEEDED
from tests.chart.conftest import CHART, Objects, Render, grant
from tests.chart.plain import CONFIG, SCHEMA, plain, values_schema
from tests.cluster.apiserver import OPERATOR, ApiServer
from tests.cluster.harness import manifest, resource_path
from tests.cluster.test_pods import CONFIG as OPERATOR_CONFIG
from tests.cluster.test_pods import launch
from tests.testcluster.steps import CommandError, run

CRDS = CHART.parents[1] / "crds"


VALUES: list[dict[str, object]] = [
    {},
    {"allNamespaces": True, "metrics": {"monitor": "PodMonitor"}, "networkPolicy": {"enabled": False, "jobs": False}},
    {
        "clusterId": "c",
        "allowedSourceHosts": ["a.example"],
        "namespaces": ["one", "two"],
        "metrics": {"monitor": "ServiceMonitor", "monitorLabels": {"release": "prometheus"}, "objects": 0},
        "alerts": {"enabled": True, "staleSeconds": 86400, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
        "priorityClass": {"create": True},
        "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
        "logFormat": "json",
        "crds": {"install": False},
    },
]
"""Sets of values between which every template renders something, and not."""


def of_kind(objects: Objects, kind: str) -> Objects:
    return [obj for obj in objects if obj["kind"] == kind]


def deployment(objects: Objects) -> dict[str, Any]:
    (found,) = of_kind(objects, "Deployment")
    return found


def environment(objects: Objects) -> dict[str, str]:
    (container,) = deployment(objects)["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_operator_chart_passes_lint(helm: Path) -> None:
    assert "0 chart(s) failed" in run([helm, "lint", "--strict", CHART])


def test_chart_crds_match_project_crds() -> None:
    """If this fails, run `make crds`."""
    packaged = {file.name: file.read_text() for file in (CHART / "files" / "crds").glob("*.yaml")}
    assert packaged == {file.name: file.read_text() for file in CRDS.glob("*.yaml")}


def test_plain_manifests_match_chart(monitored: ApiServer) -> None:
    """If this fails, run `make config`."""
    wanted = plain()
    assert {file.name: file.read_text() for file in CONFIG.iterdir()} == wanted
    for text in wanted.values():
        (namespace, *objects) = yaml.safe_load_all(text)
        monitored.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
        rest = yaml.safe_dump_all(objects)
        monitored.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rest)


def test_chart_crds_are_kept_on_uninstall_and_otherwise_unchanged(render: Render) -> None:
    rendered = {crd["metadata"]["name"]: crd for crd in of_kind(render(), "CustomResourceDefinition")}
    for file in CRDS.glob("*.yaml"):
        original = yaml.load(file.read_text(), yaml.CSafeLoader)
        crd = rendered[original["metadata"]["name"]]
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert crd["spec"] == original["spec"]
    assert not of_kind(render(crds={"install": False}), "CustomResourceDefinition")


def test_release_serves_own_namespace_by_default(render: Render) -> None:
    objects = render("lake")
    assert environment(objects)["KUBOTHEK_NAMESPACES"] == "lake"
    assert {role["metadata"]["namespace"] for role in of_kind(objects, "Role")} == {"lake"}


def test_chart_limits_reach_operator(render: Render) -> None:
    given = environment(render(limits={"jobs": 8, "jobsPerNamespace": 4}))
    assert {name: value for name, value in given.items() if "KUBOTHEK_LIMIT" in name} == {
        "KUBOTHEK_LIMIT_JOBS": "8",
        "KUBOTHEK_LIMIT_JOBS_PER_NAMESPACE": "4",
        "KUBOTHEK_LIMIT_JOBS_PER_STORE": "0",
    }


def test_chart_profiles_reach_operator_and_are_accepted(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"retry": {"limit": 5}, "sparkConf": {"spark.sql.shuffle.partitions": "8"}, "queueName": "a"}
    limits = {"driver": {"memory": "8Gi"}, "executor": {"instances": 20}}
    logs = "https://grafana/explore?a=<{pod}>&b={start}"
    given = environment(render(engineDefaults=defaults, engineLimits=limits, jobLogs=logs))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    parsed = main.make_context("operator", []).params
    assert said(parsed["engine_defaults"]) == defaults
    assert parsed["engine_limits"] == Sizes.model_validate(limits)
    assert parsed["logs"] == logs
    for wrong in ({"driver": {"memory": "1Mi"}}, {"driver": {"core": 1}}):
        monkeypatch.setenv("KUBOTHEK_ENGINE_DEFAULTS", json.dumps(wrong))
        with pytest.raises(click.BadParameter, match="driver"):
            main.make_context("operator", [])


def test_job_role_covers_volume_claims_only_when_enabled(render: Render) -> None:
    def touched(**values: Any) -> set[str]:
        roles = of_kind(render("lake", **values), "Role")
        (role,) = (role for role in roles if role["metadata"]["name"] == "kubothek-job")
        return {resource for rule in role["rules"] for resource in rule["resources"]}

    assert touched() == {"pods"}
    assert touched(jobServiceAccount={"persistentVolumeClaims": True}) == {"pods", "persistentvolumeclaims"}


def test_allowed_source_images_reach_operator(render: Render) -> None:
    assert environment(render())["KUBOTHEK_ALLOWED_SOURCE_IMAGES"] == ""
    given = environment(render(allowedSourceImages=["ghcr.io/acme/*", "python:3"]))
    assert given["KUBOTHEK_ALLOWED_SOURCE_IMAGES"] == "ghcr.io/acme/*,python:3"


def test_tracing_values_reach_operator_as_opentelemetry_variables(render: Render) -> None:
    given = environment(render(tracing={"endpoint": "http://otel.tracing:4318", "sampleRatio": 0.25}))
    assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel.tracing:4318"
    assert given["OTEL_TRACES_SAMPLER_ARG"] == "0.25"
    assert not [name for name in environment(render()) if name.startswith("OTEL")]
    for url, port in (("http://otel.tracing:4318", 4318), ("https://otlp.example.org/x", 443), ("http://otel", 80)):
        (policy, *_) = of_kind(render(tracing={"endpoint": url}), "NetworkPolicy")
        assert policy["spec"]["egress"][-1]["ports"][-1] == {"protocol": "TCP", "port": port}


def test_named_namespaces_get_role_and_job_account_each(render: Render) -> None:
    objects = render("ops", namespaces=["one", "two"])
    assert environment(objects)["KUBOTHEK_NAMESPACES"] == "one,two"
    accounts = {(a["metadata"]["namespace"], a["metadata"]["name"]) for a in of_kind(objects, "ServiceAccount")}
    assert accounts == {("ops", "kubothek"), ("one", "kubothek-job"), ("two", "kubothek-job")}
    bindings = of_kind(objects, "RoleBinding")
    operator = [b for b in bindings if b["metadata"]["name"] == "kubothek"]
    assert {b["metadata"]["namespace"] for b in operator} == {"one", "two"}
    assert all(b["subjects"][0]["namespace"] == "ops" for b in operator)


def test_cluster_role_grants_only_cluster_id_and_dataset_finalizers(render: Render) -> None:
    rules = {role["metadata"]["name"]: role["rules"] for role in of_kind(render(aggregateRoles=False), "ClusterRole")}
    assert rules == {
        "kubothek-lake-cluster-id": [
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
        ],
        "kubothek-lake-finalizers": [
            {"apiGroups": ["kubothek.io"], "resources": ["datasets"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": ["kubothek.io"], "resources": ["datasets/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["lake"], "verbs": ["get"]},
        ],
    }
    named = [
        role["metadata"]["name"] for role in of_kind(render(clusterId="prod-eu", aggregateRoles=False), "ClusterRole")
    ]
    assert named == ["kubothek-lake-finalizers"]


def test_all_namespaces_are_served_only_when_enabled(render: Render) -> None:
    objects = render(allNamespaces=True)
    assert environment(objects)["KUBOTHEK_ALL_NAMESPACES"] == "true"
    assert "KUBOTHEK_NAMESPACES" not in environment(objects)
    assert "kubothek" in [role["metadata"]["name"] for role in of_kind(objects, "ClusterRole")]


def test_operator_of_all_namespaces_creates_job_network_policies(render: Render) -> None:
    objects = render(allNamespaces=True)
    assert environment(objects)["KUBOTHEK_JOB_NETWORK_POLICY"] == "true"
    (role,) = (each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"].endswith("-policies"))
    assert role["rules"] == [
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create"]}
    ]
    assert all(
        environment(each).get("KUBOTHEK_JOB_NETWORK_POLICY", "false") == "false"
        and not [role for role in of_kind(each, "ClusterRole") if role["metadata"]["name"].endswith("-policies")]
        for each in (render(), render(allNamespaces=True, networkPolicy={"jobs": False}))
    )


def test_roles_grant_no_secret_reads_and_no_pod_exec(render: Render) -> None:
    for objects in (render(), render(allNamespaces=True)):
        rules = [rule for role in of_kind(objects, "Role") + of_kind(objects, "ClusterRole") for rule in role["rules"]]
        assert rules
        for rule in rules:
            assert not {"pods/exec", "*"} & set(rule["resources"])
            assert "secrets" not in rule["resources"] or rule["verbs"] == ["create"], "the key of a new ledger"
            assert "*" not in rule["verbs"] + rule["apiGroups"]


def needed() -> list[tuple[str, str, str]]:
    """Every call of kubothek.cluster on what it serves, as (API group, resource, verb)."""
    found = []
    for kind, subresource, verb in NEEDED:
        root, plural = RESOURCES[kind]
        group = root.split("/")[2] if root.startswith("/apis/") else ""
        found.append((group, "/".join(filter(None, (plural, subresource))), verb))
    return found


def test_operator_role_grants_required_verbs_only(render: Render) -> None:
    (role,) = (role for role in of_kind(render(), "Role") if role["metadata"]["name"] == "kubothek")
    everywhere = next(
        role for role in of_kind(render(allNamespaces=True), "ClusterRole") if role["metadata"]["name"] == "kubothek"
    )
    for rules in (role["rules"], everywhere["rules"]):
        granted = [
            (group, resource, verb)
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        ]
        assert sorted(granted) == sorted(needed())


def test_job_role_grants_pods_only(render: Render) -> None:
    (role,) = (role for role in of_kind(render(), "Role") if role["metadata"]["name"] == "kubothek-job")
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])


def test_image_with_digest_is_pinned(render: Render) -> None:
    digest = "sha256:" + "0" * 64
    objects = render(image={"digest": digest}, jobImage={"digest": digest})
    (container,) = deployment(objects)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"docker.io/kubothek/operator@{digest}"
    assert environment(objects)["KUBOTHEK_JOB_IMAGE"] == f"docker.io/kubothek/kubothek@{digest}"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replicas": -1}, "replicas"),
        ({"namespaces": ["Not_A_Name"]}, "namespaces"),
        ({"concurrency": 0}, "concurrency"),
        ({"logLevel": "chatty"}, "logLevel"),
        ({"logFormat": "xml"}, "logFormat"),
        ({"metrics": {"monitor": "VMServiceScrape"}}, "monitor"),
        ({"alerts": {"staleSeconds": -1}}, "staleSeconds"),
        ({"networkPolicy": {"egressPorts": [0]}}, "egressPorts"),
        ({"tracing": {"endpoint": "collector:4317"}}, "endpoint"),
        ({"tracing": {"sampleRatio": 2}}, "sampleRatio"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"engineDefaults": {"foo": 1}}, "engineDefaults"),
        ({"engineDefaults": {"executor": {"instance": 2}}}, "instance"),
        ({"engineDefaults": {"retry": {"limit": "many"}}}, "limit"),
    ],
)
def test_invalid_value_is_refused_by_name(render: Render, values: dict[str, object], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        render(**values)


def test_values_schema_contains_engine_schema_of_crd(render: Render) -> None:
    """If this fails, run `make config`."""
    assert SCHEMA.read_text() == values_schema()
    render(engineDefaults={"executor": {"memory": "4Gi", "spot": "Prefer"}, "podTemplate": {"driver": {"spec": {}}}})


@pytest.mark.parametrize("chart", ["kubothek", "kubothek-gateway"])
def test_chart_values_all_have_descriptions(chart: str) -> None:
    lines = (CHART.parent / chart / "values.yaml").read_text().splitlines()
    bare = [
        line
        for above, line in pairwise(["", *lines])
        if (key := re.match(r"( *)\w+:", line)) and not re.search(r"\s#\s", line) and not above.startswith(f"{key[1]}#")
    ]
    assert bare == []


def test_security_context_default_can_be_removed(render: Render) -> None:
    (pod,) = (each["spec"]["template"]["spec"] for each in of_kind(render(), "Deployment"))
    assert (pod["securityContext"]["runAsUser"], pod["containers"][0]["securityContext"]["capabilities"]) == (
        185,
        {"drop": ["ALL"]},
    )
    objects = render(
        podSecurityContext={"runAsUser": None, "fsGroup": 7}, securityContext={"readOnlyRootFilesystem": False}
    )
    (pod,) = (each["spec"]["template"]["spec"] for each in of_kind(objects, "Deployment"))
    assert "runAsUser" not in pod["securityContext"]
    assert (pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsNonRoot"]) == (7, True)
    assert not pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_rendering_twice_gives_equal_output(render: Render) -> None:
    assert render() == render()


def test_log_format_and_metrics_values_reach_operator(render: Render) -> None:
    given = environment(render(logFormat="json", metrics={"objects": 5}))
    assert (given["KUBOTHEK_LOG_FORMAT"], given["KUBOTHEK_METRICS_OBJECTS"]) == ("json", "5")


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_monitor_selects_operator_and_keeps_its_labels(render: Render, kind: str) -> None:
    objects = render(metrics={"monitor": kind, "interval": "1m"})
    (monitor,) = of_kind(objects, kind)
    (service,) = of_kind(objects, "Service")
    template = deployment(objects)["spec"]["template"]
    found, ports = (
        (service, service["spec"]["ports"])
        if kind == "ServiceMonitor"
        else (template, template["spec"]["containers"][0]["ports"])
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "interval": "1m", "honorLabels": True}
    assert "metrics" in {port["name"] for port in ports}
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()


def selects(policy: dict[str, Any], pod: dict[str, Any]) -> bool:
    return bool(policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items())


def test_network_policies_select_existing_pods_and_ports(render: Render) -> None:
    objects = render("ops", namespaces=["one", "two"])
    operator, *jobs = of_kind(objects, "NetworkPolicy")
    template = deployment(objects)["spec"]["template"]
    assert selects(operator, template)
    (container,) = template["spec"]["containers"]
    opened = [port["port"] for rule in operator["spec"]["ingress"] for port in rule["ports"]]
    assert opened == [port["name"] for port in container["ports"]] == ["probes", "metrics"]
    assert operator["spec"]["policyTypes"] == ["Ingress", "Egress"]

    assert [policy["metadata"]["namespace"] for policy in jobs] == ["one", "two"]
    driver, executor = pods.driver_pod(launch(), OPERATOR_CONFIG), pods.executor_template(launch())
    for policy in jobs:
        (rule,) = policy["spec"]["ingress"]
        (allowed,) = rule["from"]
        assert allowed == {"podSelector": policy["spec"]["podSelector"]}
        assert {port["port"] for port in rule["ports"]} == {pod_sizes.DRIVER_PORT, pod_sizes.BLOCK_MANAGER_PORT}
        assert selects(policy, driver)
        assert selects(policy, executor)
        assert not selects(policy, template)
    assert not of_kind(render(networkPolicy={"enabled": False, "jobs": False}), "NetworkPolicy")


@pytest.mark.parametrize("values", VALUES)
def test_chart_objects_pass_api_server_under_restricted_pod_security(
    monitored: ApiServer, make_namespace: Callable[[], str], render: Render, values: dict[str, object]
) -> None:
    server, namespace = monitored, make_namespace()
    if "namespaces" in values:
        values = {**values, "namespaces": [make_namespace(), make_namespace()]}
    objects = render(namespace, **values)
    first = yaml.safe_dump_all(of_kind(objects, "ServiceAccount") + of_kind(objects, "PriorityClass"))
    server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=first)
    documents = yaml.dump_all(objects, Dumper=yaml.CSafeDumper)
    shown = server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=documents)
    assert "deployment.apps/kubothek created" in shown
    (pod,) = (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "namespace": namespace},
            "spec": d["spec"]["template"]["spec"],
        }
        for d in of_kind(objects, "Deployment")
    )
    assert "created" in server.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@contextmanager
def operator_process(server: ApiServer, objects: Objects) -> Iterator[subprocess.Popen[bytes]]:
    """The operator as the chart starts it, but as a process of this machine, as the chart's service account."""
    ports = {"KUBOTHEK_PROBE_PORT": "0", "KUBOTHEK_METRICS_PORT": "0"}
    variables = {**environment(objects), **ports, "KUBECONFIG": str(server.kubeconfig(OPERATOR))}
    command = [sys.executable, "-m", "kubothek.cluster"]
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


async def until(process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    """Wait until it holds, while the operator runs."""
    while not condition():
        assert process.poll() is None
        await asyncio.sleep(0.1)


async def test_operator_runs_with_chart_roles_without_forbidden_call(
    server: ApiServer, namespace: str, render: Render
) -> None:
    """From manifests to a pod and an event, with the watches that kopf opens, and not one call that is forbidden."""
    objects = render("kubothek", namespaces=[namespace])
    grant(server, objects)

    def state(kind: str, name: str) -> str:
        conditions = server.request("GET", resource_path(kind, namespace, name))["status"].get("conditions", [])
        return next((c["status"] + c["reason"] for c in conditions if c["type"] == "Ready"), "")

    def pods() -> list[str]:
        return [
            pod["metadata"]["name"] for pod in server.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        ]

    def events() -> list[Any]:
        return list(server.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"])

    with operator_process(server, objects) as process:
        async with asyncio.timeout(300):
            server.request("POST", resource_path("Engine", namespace), manifest("Engine", namespace, "default", {}))
            store = manifest("ObjectStore", namespace, "lake", {"url": "s3://lake"})
            server.request("POST", resource_path("ObjectStore", namespace), store)
            delete = {"storeRef": {"name": "lake"}, "deletionPolicy": "Delete"}
            server.request("POST", resource_path("Dataset", namespace), manifest("Dataset", namespace, "d", delete))
            while not (
                state("Engine", "default").startswith("True")
                and state("Dataset", "d")
                and pods()
                and events()
                and server.request("GET", resource_path("Dataset", namespace, "d"))["metadata"].get("finalizers")
            ):
                assert process.poll() is None
                await asyncio.sleep(0.1)
            server.request("DELETE", resource_path("Dataset", namespace, "d"))
            while server.request("GET", resource_path("Dataset", namespace))["items"]:
                await asyncio.sleep(0.1)
                if any(pod.startswith("d-delete") for pod in pods()):
                    break
        process.terminate()
        _, complaints = process.communicate(timeout=120)
    log = complaints.decode()
    assert "forbidden" not in log.lower()
    assert process.returncode == 0, log


class Tenants:
    """Two namespaces that one operator serves, one of which will be deleted."""

    def __init__(self, server: ApiServer, make_namespace: Callable[[], str], render: Render) -> None:
        self._server = server
        self.doomed, self.other = make_namespace(), make_namespace()
        self.objects = render("kubothek", namespaces=[self.doomed, self.other])
        self.grant()

    def grant(self) -> None:
        grant(self._server, self.objects)

    def create(
        self, kind: str, namespace: str, name: str, spec: dict[str, Any], finalizers: Sequence[str] = ()
    ) -> None:
        resource = manifest(kind, namespace, name, spec)
        resource["metadata"]["finalizers"] = list(finalizers)
        self._server.request("POST", resource_path(kind, namespace), resource)

    def take_rights(self) -> None:
        bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.doomed}/rolebindings"
        self._server.request("DELETE", f"{bindings}/kubothek")

    def delete(self) -> None:
        """As the namespace controller happens to do it: the RoleBindings first, then the Datasets."""
        self._server.request("DELETE", f"/api/v1/namespaces/{self.doomed}")
        self.take_rights()
        self._server.request("DELETE", resource_path("Dataset", self.doomed, "d"))

    def datasets(self) -> list[Any]:
        """Those of the doomed namespace."""
        return list(self._server.request("GET", resource_path("Dataset", self.doomed))["items"])

    def served(self, namespace: str) -> bool:
        """Whether the namespace's Engine has been told how it is."""
        engine = self._server.request("GET", resource_path("Engine", namespace, "default"))
        return bool(engine["status"].get("conditions"))


@pytest.fixture
def tenants(server: ApiServer, make_namespace: Callable[[], str], render: Render) -> Tenants:
    return Tenants(server, make_namespace, render)


DELETES = {"storeRef": {"name": "lake"}, "deletionPolicy": "Delete"}


async def test_namespace_deleted_together_with_operator_roles_loses_datasets(
    server: ApiServer, tenants: Tenants
) -> None:
    tenants.create("Engine", tenants.doomed, "default", {})
    tenants.create("ObjectStore", tenants.doomed, "lake", {"url": "s3://lake"})
    tenants.create("Dataset", tenants.doomed, "d", DELETES)
    with operator_process(server, tenants.objects) as process:
        async with asyncio.timeout(300):
            await until(process, lambda: tenants.datasets()[0]["metadata"].get("finalizers"))
            tenants.delete()
            await until(process, lambda: not tenants.datasets())
            tenants.create("Engine", tenants.other, "default", {})
            await until(process, lambda: tenants.served(tenants.other))


async def test_operator_started_without_rights_releases_datasets_of_namespace(
    server: ApiServer, tenants: Tenants
) -> None:
    """It was away when the namespace was deleted, and may list nothing there but Datasets any more."""
    tenants.create("Dataset", tenants.doomed, "d", DELETES, finalizers=[FINALIZER])
    tenants.create("Engine", tenants.other, "default", {})
    tenants.delete()
    with operator_process(server, tenants.objects) as process:
        async with asyncio.timeout(300):
            await until(process, lambda: tenants.served(tenants.other) and not tenants.datasets())
            # Longer than kopf would have gone on trying to watch there.
            await asyncio.sleep(10)
            assert process.poll() is None


async def test_namespace_is_served_again_after_rights_return(server: ApiServer, tenants: Tenants) -> None:
    tenants.take_rights()
    tenants.create("Engine", tenants.doomed, "default", {})
    tenants.create("Engine", tenants.other, "default", {})
    with operator_process(server, tenants.objects) as process:
        async with asyncio.timeout(300):
            await until(process, lambda: tenants.served(tenants.other))
            assert not tenants.served(tenants.doomed)
            tenants.grant()
            await until(process, lambda: tenants.served(tenants.doomed))


def test_second_replica_gets_disruption_budget(render: Render) -> None:
    assert not of_kind(render(), "PodDisruptionBudget")
    objects = render(replicas=2)
    (budget,) = of_kind(objects, "PodDisruptionBudget")
    assert deployment(objects)["spec"]["replicas"] == 2
    assert (
        budget["spec"]["selector"]["matchLabels"].items()
        <= deployment(objects)["spec"]["template"]["metadata"]["labels"].items()
    )
    assert environment(objects)["KUBOTHEK_LEASE"] == "lake/kubothek"
