"""The validating webhook: called by a real API server over TLS, with certificates of its own or of somebody else."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner

from kubothek.api.kinds import parse
from kubothek.cluster.__main__ import main as operator
from kubothek.cluster.api import Api, ApiError
from kubothek.cluster.config import WebhookConfig
from kubothek.cluster.webhook import certificates
from kubothek.cluster.webhook.certificates import Keeper
from kubothek.cluster.webhook.server import PATH, answer, webhook
from kubothek.controller.context import Lookup
from kubothek.controller.validation.resource_set import Gathered
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import manifest, resource_path

Json = dict[str, Any]

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LAKE = {"storeRef": {"name": "lake"}}
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PATIENCE = 300.0


def denied_engine(namespace: str, name: str = "e") -> Json:
    volumes = [{"name": "x", "hostPath": {"path": "/"}}]
    return manifest("Engine", namespace, name, {"podTemplate": {"driver": {"spec": {"volumes": volumes}}}})


# --- the answer ------------------------------------------------------------------------------------------------------


def review(new: Json, old: Json | None = None, operation: str | None = None) -> Json:
    made = operation or ("CREATE" if old is None else "UPDATE")
    request = {"uid": "u", "operation": made, "object": new, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def response(new: Json, old: Json | None = None, *known: Json, there: bool = True) -> Json:
    among = Gathered([parse(each) for each in known]) if there else None
    found: Json = answer(review(new, old), among)["response"]
    return found


def test_webhook_refusal_names_field() -> None:
    told = response(denied_engine("team"))
    assert (told["uid"], told["allowed"], told["status"]["code"]) == ("u", False, 422)
    assert told["status"]["details"]["causes"][0]["field"] == "spec.podTemplate.driver.spec.volumes[0]"
    assert "PodTemplateDenied" in told["status"]["message"]


def test_webhook_warns_of_missing_reference_only_with_synced_cache() -> None:
    dataset = manifest("Dataset", "team", "d", LAKE)
    told = response(dataset)
    assert told["allowed"]
    (warning,) = told["warnings"]
    assert warning.startswith("spec.storeRef: ObjectStoreNotFound: ")
    assert response(dataset, there=False) == {"uid": "u", "allowed": True}
    assert not response(denied_engine("team"), there=False)["allowed"]
    store = manifest("ObjectStore", "team", "lake", {"url": "s3://lake"})
    assert "warnings" not in response(dataset, None, store)


def test_webhook_refuses_edit_for_new_violations_only() -> None:
    old = denied_engine("team")
    suspended = denied_engine("team") | {"spec": old["spec"] | {"sparkFrom": "1Mi"}}
    assert response(suspended, old)["allowed"]
    labelled = denied_engine("team")
    labelled["metadata"]["labels"] = {"a": "b"}
    assert response(labelled, old) == {"uid": "u", "allowed": True}
    good = manifest("Engine", "team", "e", {})
    assert not response(old, good)["allowed"]
    going = denied_engine("team")
    going["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
    assert response(going, good)["allowed"]
    assert answer(review(old, operation="DELETE"), None)["response"]["allowed"]


def test_webhook_refuses_unknown_field_unless_already_present() -> None:
    bad = manifest("Dataset", "team", "d", LAKE | {"nonsense": 1})
    worse = manifest("Dataset", "team", "d", LAKE | {"nonsense": 1, "more": 2})
    assert not response(bad)["allowed"]
    told = response(worse, bad)
    assert not told["allowed"]
    assert [cause["field"] for cause in told["status"]["details"]["causes"]] == ["spec.more"]


# --- certificates ----------------------------------------------------------------------------------------------------


def test_webhook_certificate_is_renewed_in_time_and_old_one_stays_trusted() -> None:
    hosts = ("a.b.svc", "a.b.svc.cluster.local")
    first = certificates.make(hosts, NOW)
    assert not certificates.is_due(first, hosts, NOW)
    assert certificates.is_due(first, ("other.svc",), NOW)
    later = NOW + certificates.VALIDITY - certificates.RENEWAL + timedelta(seconds=1)
    assert certificates.is_due(first, hosts, later)
    second = certificates.make(hosts, later, first)
    assert second.authorities.endswith(first.authorities)
    assert not certificates.is_due(second, hosts, later)
    after = NOW + certificates.VALIDITY + timedelta(seconds=1)
    third = certificates.make(hosts, after, second)
    assert first.authorities not in third.authorities
    assert certificates.is_due(
        certificates.Certificate(second.certificate, first.key, second.authorities), hosts, later
    )
    assert certificates.is_due(certificates.Certificate("", "", ""), hosts, NOW)


def configuration(name: str, namespace: str, port: int, bundle: str | None = None) -> Json:
    hook = {
        "name": "validate.kubothek.io",
        "clientConfig": {"url": f"https://127.0.0.1:{port}{PATH}"} | ({"caBundle": bundle} if bundle else {}),
        "rules": [
            {
                "apiGroups": ["kubothek.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["*"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


class Local(WebhookConfig):
    """On the loopback interface, where there is no Service."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return ("localhost",)


@asynccontextmanager
async def registered(server: ApiServer, namespace: str, port: int, bundle: str | None = None) -> AsyncIterator[str]:
    name = f"webhook-{namespace}"
    wanted = configuration(name, namespace, port, bundle)
    wanted["webhooks"][0]["clientConfig"]["url"] = f"https://localhost:{port}{PATH}"
    await asyncio.to_thread(server.request, "POST", CONFIGURATIONS, wanted)
    try:
        yield name
    finally:
        await asyncio.to_thread(server.request, "DELETE", f"{CONFIGURATIONS}/{name}")


async def created(server: ApiServer, obj: Json) -> str:
    """What the API server says to a new object; an empty text if it takes it."""
    meta = obj["metadata"]
    try:
        await asyncio.to_thread(server.request, "POST", resource_path(obj["kind"], meta["namespace"]), obj)
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    return ""


async def until(ready: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await ready():
            await asyncio.sleep(0.1)


async def asked(server: ApiServer, namespace: str) -> bool:
    """Whether the API server has heard of the webhook, and is answered by it."""
    return "PodTemplateDenied" in await created(server, denied_engine(namespace, "probe"))


async def test_webhook_is_called_by_api_server_with_own_certificate(
    server: ApiServer, api: Api, namespace: str
) -> None:
    there: list[Lookup | None] = [Gathered([])]
    hooked = Local(0, f"webhook.{namespace}", secret="certificate", configuration=f"webhook-{namespace}")
    async with webhook(api, hooked, lambda: there[0]) as port, registered(server, namespace, port):
        await until(lambda: asked(server, namespace))
        refusal = await created(server, denied_engine(namespace))
        assert refusal.startswith("422 ")
        assert "spec.podTemplate.driver.spec.volumes[0]: PodTemplateDenied: volumes of type hostPath" in refusal
        orders = manifest("Dataset", namespace, "orders", LAKE)
        assert await created(server, orders) == ""
        there[0] = Gathered([parse(orders)])
        again = manifest("Dataset", namespace, "again", LAKE | {"uuid": "orders"})
        assert "OwnedByAnother" in await created(server, again)
        secret = server.request("GET", f"/api/v1/namespaces/{namespace}/secrets/certificate")
        assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key"}


async def test_webhook_refuses_secret_that_author_may_not_get(server: ApiServer, api: Api, namespace: str) -> None:
    groups = {"kubothek.io": ("*", ["*"], []), "": ("get", ["secrets"], ["theirs"])}
    rules = [
        {"apiGroups": [group], "resources": of, "resourceNames": only, "verbs": [verb]}
        for group, (verb, of, only) in groups.items()
    ]
    role = {"metadata": {"name": "ed"}, "rules": rules}
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    server.request("POST", f"{root}/roles", role)
    subject = {"kind": "User", "name": "ed", "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"kind": "Role", "name": "ed", "apiGroup": "rbac.authorization.k8s.io"}
    server.request("POST", f"{root}/rolebindings", {"metadata": {"name": "ed"}, "subjects": [subject], "roleRef": ref})
    config = Local(0, f"webhook.{namespace}", secret="certificate", configuration=f"webhook-{namespace}")

    async def by_ed(obj: Json) -> str:
        return await asyncio.to_thread(applied_as, server, obj, "ed", namespace)

    def ledger(name: str, secret: str) -> Json:
        return manifest(
            "Dataset", namespace, name, LAKE | {"ledger": {"metadata": [], "envSecretRef": {"name": secret}}}
        )

    async def granted() -> bool:
        """Whether the API server's authorisers know the role; on a busy machine they hear of it late."""
        said = await by_ed(ledger("mine", "theirs"))
        assert said == "" or "forbidden" in said or "may not get" in said, said
        return said == ""

    store = {"url": "s3://lake", "credentialsSecretRef": {"name": "other"}}
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "other", "key": "a"}}}]
    template = {"driver": {"spec": {"containers": [{"name": "driver", "env": env}]}}}
    async with webhook(api, config, lambda: Gathered([])) as port, registered(server, namespace, port):
        await until(lambda: asked(server, namespace))
        await until(granted)
        refused = await by_ed(ledger("others", "other"))
        assert "spec.ledger.envSecretRef.name: user 'ed' may not get Secret 'other'" in refused
        assert "may not get Secret 'other'" in await by_ed(ledger("mine", "other")), "an edit is asked as well"
        assert "may not get Secret 'other'" in await by_ed(manifest("ObjectStore", namespace, "lake", store))
        assert "may not get Secret 'other'" in await by_ed(
            manifest("Engine", namespace, "e", {"podTemplate": template})
        )
        assert await created(server, ledger("others", "other")) == "", "who may get it may name it"
        edited = ledger("others", "other") | {
            "metadata": {"name": "others", "namespace": namespace, "labels": {"a": "b"}}
        }
        assert await by_ed(edited) == "", "an edit is refused for what it brings only"


def applied_as(server: ApiServer, obj: Json, user: str, namespace: str) -> str:
    """What ``kubectl apply`` says to this user; nothing if all is well."""
    try:
        server.kubectl("apply", "--server-side", "--force-conflicts", f"--as={user}", "-f", "-", stdin=json.dumps(obj))
    except Exception as error:  # noqa: BLE001 - its text is what is looked at
        return str(error)
    return ""


async def test_webhook_replicas_share_one_certificate_and_renew_once(
    server: ApiServer, api: Api, namespace: str
) -> None:
    times = [NOW]
    config = WebhookConfig(0, f"webhook.{namespace}", secret="certificate", configuration=f"webhook-{namespace}")
    keepers = [Keeper(api, config, lambda: times[0]) for _ in range(4)]
    first = await asyncio.gather(*(keeper.certificate() for keeper in keepers))
    assert len(set(first)) == 1
    times[0] += certificates.VALIDITY - certificates.RENEWAL + timedelta(days=1)
    second = await asyncio.gather(*(keeper.certificate() for keeper in keepers))
    assert len(set(second)) == 1
    assert second[0] != first[0]
    broken = {name: base64.b64encode(b"\xff no certificate").decode() for name in ("tls.crt", "tls.key", "ca.crt")}
    path = f"/api/v1/namespaces/{namespace}/secrets/certificate"
    server.request("PATCH", path, {"data": broken}, "application/merge-patch+json")
    second = await asyncio.gather(*(keeper.certificate() for keeper in keepers))
    assert len(set(second)) == 1
    assert not certificates.is_due(second[0], config.hosts, times[0])
    with pytest.raises(ApiError, match="there is no ValidatingWebhookConfiguration"):
        await keepers[0].trust(second[0])
    async with registered(server, namespace, 1) as name:
        for _ in range(2):
            await keepers[0].trust(second[0])
        found = server.request("GET", f"{CONFIGURATIONS}/{name}")
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        assert bundle == second[0].authorities
        assert found["metadata"]["generation"] == 2, "written once"


async def test_webhook_uses_mounted_certificates(server: ApiServer, api: Api, namespace: str, tmp_path: Path) -> None:
    made = certificates.make(("localhost",), datetime.now(UTC))
    (tmp_path / "tls.crt").write_text(made.certificate)
    (tmp_path / "tls.key").write_text(made.key)
    bundle = base64.b64encode(made.authorities.encode()).decode()
    config = WebhookConfig(0, f"webhook.{namespace}", certificates=tmp_path)
    async with webhook(api, config, lambda: None) as port, registered(server, namespace, port, bundle):
        await until(lambda: asked(server, namespace))
        assert await created(server, manifest("Dataset", namespace, "d", LAKE)) == ""
        assert await garbage(port, made.authorities) == b"HTTP/1.1 400"
    assert "failed calling webhook" not in await created(server, manifest("Dataset", namespace, "e", LAKE))


async def garbage(port: int, authorities: str) -> bytes:
    """The beginning of the answer to what is no review."""
    context = ssl.create_default_context(cadata=authorities)
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.write(b"POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]")
    line = await reader.readline()
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    return line[:12]


async def test_operator_serves_webhook_from_its_cache(server: ApiServer, namespace: str, tmp_path: Path) -> None:
    made = certificates.make(("localhost",), datetime.now(UTC))
    (tmp_path / "tls.crt").write_text(made.certificate)
    (tmp_path / "tls.key").write_text(made.key)
    bundle = base64.b64encode(made.authorities.encode()).decode()
    with socket.create_server(("", 0)) as free:
        port = int(free.getsockname()[1])
    variables = {
        "KUBOTHEK_NAMESPACES": namespace,
        "KUBOTHEK_JOB_IMAGE": "image:1",
        "KUBOTHEK_PROBE_PORT": "0",
        "KUBOTHEK_WEBHOOK_PORT": str(port),
        "KUBOTHEK_WEBHOOK_SERVICE": f"webhook.{namespace}",
        "KUBOTHEK_WEBHOOK_CERTIFICATES": str(tmp_path),
        "KUBECONFIG": str(server.kubeconfig()),
    }
    command = [sys.executable, "-m", "kubothek.cluster"]
    process = subprocess.Popen(command, env={**os.environ, **variables})
    numbers = itertools.count()

    async def contradicted() -> bool:
        assert process.poll() is None
        again = manifest("Dataset", namespace, f"again-{next(numbers)}", LAKE | {"uuid": "orders"})
        return "OwnedByAnother" in await created(server, again)

    async def too_large() -> bool:
        engine = manifest("Engine", namespace, f"engine-{next(numbers)}", {"executor": {"instances": 9}})
        return "ResourceQuota 'team' has 4 of pods in all" in await created(server, engine)

    async def said() -> bool:
        engine = await asyncio.to_thread(server.request, "GET", resource_path("Engine", namespace, "before"))
        conditions = (engine.get("status") or {}).get("conditions") or ()
        return any(each["reason"] == "QuotaExceeded" for each in conditions)

    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "4"}}}
    try:
        assert await created(server, manifest("Dataset", namespace, "orders", LAKE)) == ""
        assert await created(server, manifest("Engine", namespace, "before", {"executor": {"instances": 9}})) == ""
        async with registered(server, namespace, port, bundle):
            await until(lambda: asked(server, namespace))
            await until(contradicted)
            await asyncio.to_thread(server.request, "POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
            await until(too_large)
            await until(said)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


def test_webhook_without_service_option_is_refused() -> None:
    answer = CliRunner().invoke(operator, ["--namespaces=a", "--job-image=i", "--webhook-port=9443"])
    assert (answer.exit_code, "--webhook-service NAME.NAMESPACE" in answer.output) == (2, True)
