"""Which namespaces are watched, and that people hear of those that are not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubothek.api.meta import Resource
from kubothek.cluster.api import Api, ApiError
from kubothek.cluster.namespaces import Scopes
from kubothek.controller.context import Context, JobPhase, JobView, Outcome
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, resource_path
from tests.cluster.podshapes import exited
from tests.cluster.test_controller import STORE, create, launching
from tests.cluster.test_operator import status


class Rights:
    """An API server that grants rights in some namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = set(namespaces)

    async def get(self, kind: str, namespace: str, name: str) -> None:
        if namespace not in self.namespaces:
            raise ApiError(403, "Forbidden", "no rights", f"get {kind} {name}")


class Datasets:
    """None are known."""

    def objects(self, namespace: str) -> Iterable[Any]:
        return ()


class NothingMissed:
    """A resync that finds all as it is known."""

    async def catch_up(self, namespace: str) -> None:
        pass


def scopes(rights: Rights, *namespaces: str) -> Scopes:
    controller = SimpleNamespace(state=SimpleNamespace(resources={"Dataset": Datasets()}))
    return Scopes(cast("Any", rights), namespaces, cast("Any", controller), cast("Any", NothingMissed()))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.levelno == logging.WARNING]


def test_namespaces_without_rights_at_start_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    found = scopes(Rights(), "a", "b")
    for _ in range(3):
        asyncio.run(found.check())
    assert found.insights.namespaces == set()
    assert warnings(caplog) == ["a, b"]


def test_namespaces_without_rights_are_reported_again_after_change(caplog: pytest.LogCaptureFixture) -> None:
    async def looks() -> None:
        rights = Rights("a", "b")
        found = scopes(rights, "a", "b")
        for granted in ({"a", "b"}, {"a"}, {"a"}, {"a", "b"}, {"a"}, set[str]()):
            rights.namespaces = granted
            await found.check()
            assert {str(name) for name in found.insights.namespaces} == granted

    asyncio.run(looks())
    assert warnings(caplog) == ["b", "b", "a, b"]


async def test_namespace_recreated_under_same_name_starts_without_old_state(
    api: Api, server: ApiServer, namespace: str
) -> None:
    """What went while there were no rights is forgotten before its successor is met: here a store and its job."""
    seen: list[tuple[str, JobView | None]] = []
    launch = launching()

    def reconcile(resource: Resource, context: Context) -> Outcome:
        seen.append((resource.metadata.uid, context.job(namespace, "s-1")))
        return launch(resource, context)

    kubelet, rights = Kubelet(server, namespace), Rights(namespace)
    async with bench(api, namespace, {"ObjectStore": reconcile}) as operator:
        found = Scopes(cast("Any", rights), [namespace], operator.controller, operator.resync)
        old = create(server, "ObjectStore", namespace, "s", STORE)["metadata"]["uid"]
        await operator.settled()
        kubelet.show("s-1", status("Failed", exited(1)))
        await operator.settled()
        uid, view = seen[-1]
        assert view is not None
        assert (uid, view.owner_uid, view.phase) == (old, old, JobPhase.FAILED)

        rights.namespaces.clear()
        await found.check()
        kubelet.remove("s-1")
        server.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/s-1")
        server.request("DELETE", resource_path("ObjectStore", namespace, "s"))
        new = create(server, "ObjectStore", namespace, "s", STORE)["metadata"]["uid"]
        rights.namespaces.add(namespace)
        await found.check()
        await operator.settled()
        assert {view and view.owner_uid for uid, view in seen if uid == new} == {None, new}
        assert found.insights.namespaces == {namespace}
