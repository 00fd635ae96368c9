"""The gateway as a web application: the datasets of a catalogue, under the paths of Open Data Fabric."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from kubothek.gateway.access import Access
from kubothek.gateway.catalogue import Catalogue
from kubothek.gateway.datasets import Datasets
from kubothek.gateway.gate import Answered, Gate
from kubothek.gateway.ingest import Ingests
from kubothek.gateway.limits import Limits
from kubothek.gateway.objects import Objects
from kubothek.gateway.peers import Peers
from kubothek.gateway.platform import Platform
from kubothek.gateway.query import Queries
from kubothek.gateway.smart import Smart
from kubothek.gateway.workers import Workers


def make_app(
    catalogue: Catalogue,
    access: Access,
    *,
    limits: Limits | None = None,
    presigned: int = 3600,
    url: str | None = None,
    answered: Answered | None = None,
    proxies: Sequence[str] = (),
) -> web.Application:
    """Return the application, with one gate for all handlers.

    ``presigned``  lifetime in seconds of presigned URLs of the store, where it has such; 0: no such URLs
    ``url``        URL at which clients reach the gateway, if a proxy changes the URL of requests
    ``proxies``    addresses or networks of proxies; ``X-Forwarded-For`` is trusted only from these
    ``answered``   called after every request

    Raises InputError for an invalid proxy.
    """
    limits = limits or Limits()
    gate = Gate(Datasets(catalogue), access, limits, Peers(proxies), answered)
    app = web.Application(middlewares=[gate.stand], client_max_size=limits.ingest_bytes)
    workers = Workers(limits)
    for handlers in (
        Platform(gate),
        Objects(gate),
        Smart(gate, presigned, url),
        Ingests(gate, workers),
        Queries(gate, workers),
    ):
        app.add_routes(handlers.routes())
    return app
