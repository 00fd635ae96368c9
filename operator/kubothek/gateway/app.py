"""The gateway as a web application: the datasets of a catalogue, under the paths of Open Data Fabric."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound
from kubothek.gateway.access import Access, Verb
from kubothek.gateway.answers import refusal
from kubothek.gateway.catalogue import Catalogue
from kubothek.gateway.datasets import Datasets
from kubothek.gateway.gate import Answered, Gate
from kubothek.gateway.iceberg.catalogue import IcebergCatalogue
from kubothek.gateway.iceberg.errors import translate
from kubothek.gateway.iceberg.oauth import OAuth2
from kubothek.gateway.iceberg.tables import Tables
from kubothek.gateway.ingest import Ingests
from kubothek.gateway.limits import Limits
from kubothek.gateway.objects import Objects
from kubothek.gateway.peers import Peers
from kubothek.gateway.query import Queries
from kubothek.gateway.smart import Smart
from kubothek.gateway.workers import Workers
from kubothek.odf.sync.found import find


def make_app(
    catalogue: Catalogue,
    access: Access,
    *,
    limits: Limits | None = None,
    namespace: str = "default",
    presigned: int = 3600,
    url: str | None = None,
    answered: Answered | None = None,
    proxies: Sequence[str] = (),
) -> web.Application:
    """Return the application, with one gate for all handlers.

    ``namespace``  name of the namespace of the Iceberg catalogue
    ``presigned``  lifetime in seconds of presigned URLs of the store, where it has such; 0: no such URLs
    ``url``        URL at which clients reach the gateway, if a proxy changes the URL of requests
    ``proxies``    addresses or networks of proxies; ``X-Forwarded-For`` is trusted only from these
    ``answered``   called after every request

    Raises InputError for an invalid proxy.
    """
    limits = limits or Limits()
    gate = Gate(Datasets(catalogue), access, limits, Peers(proxies), answered)
    app = web.Application(middlewares=[translate, gate.stand], client_max_size=limits.ingest_bytes)
    workers = Workers(limits)
    for handlers in (
        Platform(gate),
        Objects(gate),
        Smart(gate, presigned, url),
        Ingests(gate, workers),
        Queries(gate, workers),
        OAuth2(gate),
        IcebergCatalogue(gate, Tables(limits, workers), namespace, presigned),
    ):
        app.add_routes(handlers.routes())
    return app


# Requests that are not for data: validation of a token, search for datasets, health.


_MOST: Final = 100


class Platform:
    """The handlers of these requests."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/platform/token/validate", self.validate),
            web.get("/search", self.search),
            web.get("/healthz", self.health),
        ]

    async def validate(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 for a valid token, 401 for an unknown one, 400 without a token."""
        if self._gate.principal(request) is None:
            return refusal(400, "NoToken", "there is no bearer token to validate")
        return web.Response(status=200)

    async def health(self, request: web.Request) -> web.StreamResponse:
        """Answer that this process is alive."""
        return web.Response(text="ok\n")

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Return ledgers that the client may pull, with the words of ``query`` in name, keywords or description."""
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
                continue  # removed a moment ago
            about = await asyncio.to_thread(find, place.store, place.uuid, words)
            if about is not None:
                found.append({**about, "name": name})
            if len(found) == _MOST:
                break
        return web.Response(body=orjson.dumps({"datasets": found}), content_type="application/json")
