"""Which namespaces are watched, and that people hear of those that are not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubothek.runtime.kubernetes.api import ApiError
from kubothek.runtime.kubernetes.scopes import Scopes


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


def scopes(rights: Rights, *namespaces: str) -> Scopes:
    controller = SimpleNamespace(state=SimpleNamespace(resources={"Dataset": Datasets()}))
    return Scopes(cast("Any", rights), namespaces, cast("Any", controller), cast("Any", None))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.levelno == logging.WARNING]


def test_without_rights_anywhere_from_the_start_people_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    found = scopes(Rights(), "a", "b")
    for _ in range(3):
        asyncio.run(found.look())
    assert found.insights.namespaces == set()
    assert warnings(caplog) == ["a, b"]


def test_people_are_told_anew_when_others_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def looks() -> None:
        rights = Rights("a", "b")
        found = scopes(rights, "a", "b")
        for granted in ({"a", "b"}, {"a"}, {"a"}, {"a", "b"}, {"a"}, set[str]()):
            rights.namespaces = granted
            await found.look()
            assert {str(name) for name in found.insights.namespaces} == granted

    asyncio.run(looks())
    assert warnings(caplog) == ["b", "b", "a, b"]
