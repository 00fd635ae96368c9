"""The chart's webhook: off by default; on, the operator is told what it needs and may do no more than that."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubothek.cluster.api import Api
from kubothek.cluster.config import WebhookConfig
from kubothek.cluster.webhook.certificates import Keeper
from tests.chart.conftest import Objects, Render
from tests.chart.test_chart import deployment, environment, of_kind
from tests.cluster.apiserver import OPERATOR, ApiServer


def named(objects: Objects, kind: str, ending: str = "-webhook") -> dict[str, Any]:
    (found,) = (each for each in of_kind(objects, kind) if each["metadata"]["name"].endswith(ending))
    return found


def config(objects: Objects) -> WebhookConfig:
    """What the operator makes of its environment."""
    given = {name.removeprefix("KUBOTHEK_WEBHOOK_"): value for name, value in environment(objects).items()}
    secret = given.get("SECRET", "")
    return WebhookConfig(int(given["PORT"]), given["SERVICE"], None, secret, given["CONFIGURATION"])


def test_webhook_objects_are_absent_by_default(render: Render) -> None:
    objects = render()
    assert not of_kind(objects, "ValidatingWebhookConfiguration")
    assert not [name for name in environment(objects) if "WEBHOOK" in name]


def test_operator_role_of_webhook_allows_own_certificate_secret(
    render: Render, server: ApiServer, namespace: str
) -> None:
    objects = render(namespace, webhook={"enabled": True})
    for kind in (
        "ValidatingWebhookConfiguration",
        "Service",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ):
        for each in of_kind(objects, kind):
            if each["metadata"]["name"].endswith("-webhook") or kind == "ValidatingWebhookConfiguration":
                for subject in each.get("subjects", ()):
                    subject.update(namespace="kubothek", name="kubothek")  # who OPERATOR is
                server.kubectl("apply", "-f", "-", stdin=json.dumps(each))
    (hook,) = named(objects, "ValidatingWebhookConfiguration", namespace)["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["clientConfig"]["service"]["name"] == "kubothek-webhook"
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == [namespace]
    (container,) = deployment(objects)["spec"]["template"]["spec"]["containers"]
    assert {"name": "webhook", "containerPort": 9443} in container["ports"]

    async def keep() -> None:
        api = await Api.connect(str(server.kubeconfig(OPERATOR)))
        try:
            keeper = Keeper(api, config(objects))
            certificate = await keeper.certificate()
            assert await keeper.certificate() == certificate
            await keeper.trust(certificate)
        finally:
            await api.close()

    try:
        asyncio.run(keep())
    finally:
        name = named(objects, "ValidatingWebhookConfiguration", namespace)["metadata"]["name"]
        server.kubectl("delete", "validatingwebhookconfiguration", name)


@pytest.mark.parametrize("issuer", [{}, {"kind": "ClusterIssuer", "name": "company"}])
def test_cert_manager_certificate_is_created_when_enabled(render: Render, issuer: dict[str, str]) -> None:
    objects = render(
        webhook={"enabled": True, "certManager": {"enabled": True, "issuerRef": issuer}}, allNamespaces=True
    )
    certificate = named(objects, "Certificate")
    assert certificate["spec"]["issuerRef"] == (issuer or {"kind": "Issuer", "name": "kubothek-webhook"})
    assert bool(of_kind(objects, "Issuer")) is not bool(issuer)
    hook = named(objects, "ValidatingWebhookConfiguration", "lake")
    assert hook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "lake/kubothek-webhook"}
    assert "namespaceSelector" not in hook["webhooks"][0]
    assert set(certificate["spec"]["dnsNames"]) == set(config(objects).hosts)
    pod = deployment(objects)["spec"]["template"]["spec"]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "webhook")
    assert environment(objects)["KUBOTHEK_WEBHOOK_CERTIFICATES"] == mount["mountPath"]
    assert certificate["spec"]["secretName"] in [each.get("secret", {}).get("secretName") for each in pod["volumes"]]
    assert not [each for each in of_kind(objects, "Role") if each["metadata"]["name"].endswith("-webhook")]
