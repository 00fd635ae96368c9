"""The informer, on kopf: it keeps the watches open and authenticated, and passes their events to the controller.

It has only ``on.event`` handlers, for which kopf writes nothing to the cluster: no annotation, no finalizer, no
progress record. The controller keeps the state and retries.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import kopf

from kubothek.api.meta import GROUP
from kubothek.cluster import names
from kubothek.cluster.api import RESOURCES
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.controller import Controller
from kubothek.cluster.namespaces import Scopes
from kubothek.cluster.resync import WATCHED, Resync


class Watch:
    """The watches of one operator process."""

    def __init__(self, config: OperatorConfig, controller: Controller, resync: Resync, scopes: Scopes | None) -> None:
        self._config = config
        self._scopes = scopes
        self._controller = controller
        self._resync = resync
        self._listed: set[str] = set()
        self._heard: set[str] = set()

    async def run(self) -> None:
        """Watch the namespaces of ``scopes``, or all, until SIGTERM or SIGINT."""
        await kopf.operator(
            registry=self._registry(),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=self._scopes is None,
            namespaces=("*",) if self._scopes else (),  # a pattern: kopf takes the namespaces from the insights
            insights=self._scopes.insights if self._scopes else None,
        )

    @property
    def ready(self) -> bool:
        """Whether the watches deliver: each kind with cached objects has had an event."""
        served = self._scopes is None or bool(self._scopes.insights.namespaces)
        return served and all(kind in self._heard or not self._controller.state.count(kind) for kind in WATCHED)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in WATCHED:
            root, plural = RESOURCES[kind]
            group, _, version = root.removeprefix("/apis/").removeprefix("/api/").rpartition("/")

            async def seen(event: Any, kind: str = kind, **_: Any) -> None:
                self._seen(kind, event["type"], dict(event["object"]))

            kopf.on.event(group=group, version=version, plural=plural, registry=registry, id=f"see-{plural}")(seen)
        return registry

    def _login(self, **kwargs: Any) -> kopf.ConnectionInfo | None:
        account = kopf.login_with_service_account(**kwargs) if self._config.kubeconfig is None else None
        if account is None:
            return kopf.login_with_kubeconfig(**kwargs)
        # The address from the pod's environment, as in all official clients: a host name would need a DNS server.
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return replace(account, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")

    def _seen(self, kind: str, change: str | None, obj: dict[str, Any]) -> None:
        self._heard.add(kind)
        self._controller.metrics.watched(kind)
        if change == "DELETED":
            self._controller.observer.deleted(kind, obj)
            return
        if change is None:
            self._note_listing(obj["metadata"]["uid"])
        self._controller.observer.observe(kind, obj)

    def _note_listing(self, uid: str) -> None:
        """Request a resync if an object is listed again: its watch restarted and may have missed deletions."""
        if uid in self._listed:
            self._listed.clear()
            self._resync.request()
        self._listed.add(uid)


class _NoDiffs(kopf.DiffBaseStorage):
    """A storage that keeps no previous states, as no handler compares them."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty state."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return None."""
        return None

    def store(self, **_: Any) -> None:
        """Do nothing: kopf never calls it, as there are no handlers of changes."""


def kopf_settings() -> kopf.OperatorSettings:
    """Return settings that reduce kopf to watching, as measured with kopf 1.45."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True  # no cluster-wide watch of CRDs and namespaces, hence no ClusterRole for it
    settings.posting.enabled = False
    settings.watching.label_selectors["", "v1", "pods"] = names.JOB
    settings.watching.chunk_size = 500
    settings.watching.connect_timeout = 5
    settings.watching.inactivity_timeout = 70  # bookmarks arrive every 60 s
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (0.5, 1, 2, 5)
    settings.networking.enforce_retry_after = True
    settings.queueing.worker_limit = None  # a limit starves or deadlocks
    settings.queueing.idle_timeout = 1
    settings.persistence.finalizer = f"{GROUP}/never-used"
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.consistency_timeout = 0  # nothing is ever patched through kopf
    settings.process.ultimate_exiting_timeout = 60
    settings.execution.max_workers = 4
    return settings
