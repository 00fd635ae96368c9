"""What clients ask of a gateway before they ask for data: is a token good, and which datasets are there."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound
from kubothek.gateway.access import Verb
from kubothek.gateway.answers import refusal
from kubothek.gateway.gate import Gate
from kubothek.odf.sync.found import find

_MOST: Final = 100


class Platform:
    """The handlers."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get("/platform/token/validate", self.validate),
            web.get("/search", self.search),
            web.get("/healthz", self.health),
        ]

    async def validate(self, request: web.Request) -> web.StreamResponse:
        """200, or 401 for a token that is nobody's; 400 without one."""
        if self._gate.principal(request) is None:
            return refusal(400, "NoToken", "there is no bearer token to validate")
        return web.Response(status=200)

    async def health(self, request: web.Request) -> web.StreamResponse:
        """That this process answers."""
        return web.Response(text="ok\n")

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Ledgers whose name, keywords or description have the words of ``query``, as far as they may be pulled."""
        principal = self._gate.principal(request)
        words = request.query.get("query", "").split()
        names = await asyncio.to_thread(self._gate.datasets.names)
        found: list[dict[str, Any]] = []
        for name in names:
            shown = self._gate.datasets.catalogue.public(name)
            if not shown and (principal is None or not await self._gate.access.may(principal, Verb.PULL, name)):
                continue
            try:
                place = self._gate.datasets.catalogue.place(name)
            except DatasetNotFound:
                continue  # since a moment
            about = await asyncio.to_thread(find, place.store, place.uuid, words)
            if about is not None:
                found.append({**about, "name": name})
            if len(found) == _MOST:
                break
        return web.Response(body=orjson.dumps({"datasets": found}), content_type="application/json")
