"""The storage of the webhook's own certificate in a Secret that all replicas share, and the trust in it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from kubothek.cluster.api import CONFLICT, Api, ApiError, Object
from kubothek.cluster.config import WebhookConfig
from kubothek.cluster.webhook.certificates import Certificate, is_due, make

_FIELDS: Final = {"tls.crt": "certificate", "tls.key": "key", "ca.crt": "authorities"}
_CONFIGURATION: Final = "ValidatingWebhookConfiguration"


class Keeper:
    """Issue and renewal of one certificate. Methods raise ApiError and ApiUnavailable."""

    def __init__(self, api: Api, config: WebhookConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._api = api
        self._config = config
        self._clock = clock

    async def certificate(self) -> Certificate:
        """Return the current certificate; issue or renew it if due. The first replica's write counts for all."""
        hosts, name, namespace = self._config.hosts, self._config.secret, self._config.namespace
        while True:
            there, now = await self._api.get("Secret", namespace, name), self._clock()
            present = _read(there) if there is not None else None
            if present is not None and not is_due(present, hosts, now):
                return present
            wanted = make(hosts, now, present)
            try:
                if there is None:
                    await self._api.create("Secret", namespace, _secret(namespace, name, wanted))
                else:
                    await self._api.json_patch("Secret", namespace, name, _replacement(there, wanted))
            except ApiError as error:
                if error.status not in (404, CONFLICT, 422):
                    raise
            else:
                return wanted

    async def trust(self, certificate: Certificate) -> None:
        """Let the API server trust the certificate's authorities. Write only if the bundle differs."""
        there = await self._api.get(_CONFIGURATION, None, self._config.configuration)
        if there is None:
            raise ApiError(404, "NotFound", f"there is no {_CONFIGURATION} {self._config.configuration!r}", "trust")
        bundle = _encoded(certificate.authorities)
        changes: list[Object] = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, hook in enumerate(there.get("webhooks") or ())
            if hook["clientConfig"].get("caBundle") != bundle
        ]
        if changes:
            guard = {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]}
            await self._api.json_patch(_CONFIGURATION, None, self._config.configuration, [guard, *changes])


def _read(secret: Object) -> Certificate:
    data = secret.get("data") or {}
    fields = {field: base64.b64decode(data.get(key) or "").decode(errors="replace") for key, field in _FIELDS.items()}
    return Certificate(**fields)


def _data(certificate: Certificate) -> dict[str, str]:
    return {key: _encoded(getattr(certificate, field)) for key, field in _FIELDS.items()}


def _secret(namespace: str, name: str, certificate: Certificate) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": _data(certificate),
    }


def _replacement(there: Object, certificate: Certificate) -> list[Object]:
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]}
    return [guard, {"op": "add", "path": "/data", "value": _data(certificate)}]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
