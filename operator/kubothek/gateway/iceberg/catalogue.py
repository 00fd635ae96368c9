"""The catalogue's requests: configuration, namespaces, tables and views. Iceberg REST specification, "Catalog API".

A gateway has one namespace. Its tables are the datasets that the client may pull. Every write is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound, StoreUnavailable
from kubothek.gateway.access import Verb
from kubothek.gateway.catalogue import Place
from kubothek.gateway.gate import CLIENT, NOTE, STARTED, Gate, unauthorised
from kubothek.gateway.iceberg.errors import V1, not_found, refuse
from kubothek.gateway.iceberg.signing import (
    DELEGATION,
    REMOTE_SIGNING,
    SECONDS,
    SignRequest,
    sign,
    sign_endpoint,
    table_config,
)
from kubothek.gateway.iceberg.tables import Tables
from kubothek.storage.immutable_cache import Kept

_NAMESPACE: Final = "/namespaces/{namespace}"
_TABLE: Final = f"{_NAMESPACE}/tables/{{dataset}}"
_SEPARATOR: Final = "\x1f"
"""Between the levels of a namespace."""
_PAGE: Final = 1000
_PIECE: Final = 256 << 10
_KEPT_BYTES: Final = 16 << 20
"""Of metadata with the snapshots of refs only."""
_JSON: Final = "application/json"
_ALL, _REFS = "all", "refs"
_NOT_ACCEPTABLE: Final = ("/namespaces", "/properties", "/rename", "/register-view", "/plan", "/tasks")
"""Ends of the paths whose refusal is 406 by the specification; it is 403 for other writes."""


class IcebergCatalogue:
    """The handlers of the catalogue.

    ``namespace``  the name of its only namespace
    ``presigned``  lifetime in seconds of presigned URLs of the store, for remote signing; 0: no such URLs
    """

    def __init__(self, gate: Gate, tables: Tables, namespace: str, presigned: int) -> None:
        self._gate = gate
        self._tables = tables
        self._namespace = namespace
        self._presigned = presigned
        self._of_refs: Kept[tuple[Place, str], bytes] = Kept(_KEPT_BYTES)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes; the last one answers what no other one does."""
        return [
            web.get(f"{V1}/config", self.config),
            web.get(f"{V1}/namespaces", self.namespaces, allow_head=False),
            web.get(f"{V1}{_NAMESPACE}", self.namespace, allow_head=False),
            web.head(f"{V1}{_NAMESPACE}", self.has_namespace),
            web.get(f"{V1}{_NAMESPACE}/tables", self.tables, allow_head=False),
            web.get(f"{V1}{_TABLE}", self.table, allow_head=False),
            web.head(f"{V1}{_TABLE}", self.has_table),
            web.post(f"{V1}{_TABLE}/metrics", self.metrics),
            web.post(f"{V1}{_TABLE}/sign", self.sign),
            web.get(f"{V1}{_NAMESPACE}/views", self.views, allow_head=False),
            web.get(f"{V1}{_NAMESPACE}/views/{{view}}", self.view),
            web.route("*", f"{V1}/{{path:.*}}", self.other),
        ]

    async def config(self, request: web.Request) -> web.StreamResponse:
        """Return the configuration of clients, and the requests that the catalogue answers."""
        self._gate.principal(request)
        endpoints = [
            "GET /v1/{prefix}/namespaces",
            f"GET /v1/{{prefix}}{_NAMESPACE}",
            f"HEAD /v1/{{prefix}}{_NAMESPACE}",
            f"GET /v1/{{prefix}}{_NAMESPACE}/tables",
            *(f"{method} /v1/{{prefix}}{_NAMESPACE}/tables/{{table}}" for method in ("GET", "HEAD")),
            f"POST /v1/{{prefix}}{_NAMESPACE}/tables/{{table}}/metrics",
            f"GET /v1/{{prefix}}{_NAMESPACE}/views",
        ]
        if self._presigned:
            endpoints.append(f"POST /v1/{{prefix}}{_NAMESPACE}/tables/{{table}}/sign")
        return _json({"defaults": {}, "overrides": {}, "endpoints": endpoints})

    # --- namespaces ---

    async def namespaces(self, request: web.Request) -> web.StreamResponse:
        """List the namespace to a client that may load one of its tables; it contains no namespaces."""
        principal = self._gate.principal(request)
        found: list[list[str]] = []
        if parent := request.query.get("parent", ""):
            self._require(parent)
        elif await anext(self._visible(request, ""), None) is not None:
            found = [[self._namespace]]
        elif principal is None:
            raise unauthorised()
        return _json({"namespaces": found, "next-page-token": None})

    async def namespace(self, request: web.Request) -> web.StreamResponse:
        """Return the namespace, which has no properties."""
        self._gate.principal(request)
        self._require(request.match_info["namespace"])
        return _json({"namespace": [self._namespace], "properties": {}})

    async def has_namespace(self, request: web.Request) -> web.StreamResponse:
        """Answer 204 if there is this namespace."""
        self._gate.principal(request)
        self._require(request.match_info["namespace"])
        return web.Response(status=204)

    def _require(self, namespace: str) -> None:
        """Raise HTTPNotFound for another namespace."""
        if namespace != self._namespace:
            name = ".".join(namespace.split(_SEPARATOR))[:253]
            message = f"there is no namespace {name!r}; the only one is {self._namespace!r}"
            raise not_found(message, "NoSuchNamespaceException")

    # --- tables ---

    async def tables(self, request: web.Request) -> web.StreamResponse:
        """List the tables that the client may load; with ``pageToken``, at most ``pageSize`` of those after it."""
        self._require(request.match_info["namespace"])
        after = request.query.get("pageToken")
        text = request.query.get("pageSize", str(_PAGE))
        if not text.isascii() or not text.isdigit() or not (size := int(text[:9])):
            return refuse(400, f"pageSize={text[:20]!r}: write a number from 1 on")
        found: list[str] = []
        more = None
        async for name in self._visible(request, after or ""):
            if after is not None and len(found) == min(size, _PAGE):
                more = found[-1]
                break
            found.append(name)
        if not found and not after and self._gate.principal(request) is None:
            raise unauthorised()
        identifiers = [{"namespace": [self._namespace], "name": name} for name in found]
        return _json({"identifiers": identifiers, "next-page-token": more})

    async def _visible(self, request: web.Request, after: str) -> AsyncIterator[str]:
        principal = self._gate.principal(request)
        catalogue = self._gate.datasets.catalogue
        for name in await asyncio.to_thread(catalogue.names):
            if name <= after or not (
                catalogue.public(name)
                or (principal is not None and await self._gate.access.may(principal, Verb.PULL, name))
            ):
                continue
            try:
                place = catalogue.place(name)
            except (DatasetNotFound, StoreUnavailable):
                continue  # removed a moment ago, or without an ObjectStore
            if await asyncio.to_thread(self._tables.is_loadable, place):
                yield name

    async def table(self, request: web.Request) -> web.StreamResponse:
        """Return the metadata of a table, all of it or with the snapshots of refs only; 304 if the client has it."""
        if (snapshots := request.query.get("snapshots", _ALL)) not in (_ALL, _REFS):
            return refuse(400, f"snapshots={snapshots[:20]!r}: write {_ALL} or {_REFS}")
        name, place = await self._place(request)
        loaded = await self._tables.load(name, place, request[CLIENT])
        etag = f"{loaded.digest}-{snapshots}"
        headers = {"ETag": f'"{etag}"', "Cache-Control": "private, no-cache"}
        if any(each.value in (etag, "*") for each in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        metadata = loaded.data
        if snapshots == _REFS:
            async with self._gate.parsing:
                key = place, loaded.digest
                metadata = await asyncio.to_thread(self._of_refs.get, key, lambda: _of_refs(loaded.data), len)
        mechanisms = {each.strip() for each in request.headers.get(DELEGATION, "").split(",")}
        signer = sign_endpoint(self._namespace, name) if self._presigned and REMOTE_SIGNING in mechanisms else None
        head, tail = _around(loaded.location, table_config(place.store, signer))
        return await self._send(request, headers, (head, metadata, tail))

    async def _send(
        self, request: web.Request, headers: Mapping[str, str], parts: Sequence[bytes]
    ) -> web.StreamResponse:
        """Send a body in pieces: a slow client is detected, and costs no copy of the metadata."""
        response = web.StreamResponse(headers=headers)
        response.content_type = _JSON
        response.content_length = sum(map(len, parts))
        request[STARTED] = True
        await response.prepare(request)
        for part in parts:
            for start in range(0, len(part), _PIECE):
                async with asyncio.timeout(self._gate.limits.seconds_for(_PIECE)):
                    await response.write(memoryview(part)[start : start + _PIECE])
        await response.write_eof()
        return response

    async def has_table(self, request: web.Request) -> web.StreamResponse:
        """Answer 204 if there is this table."""
        name, place = await self._place(request)
        if not await asyncio.to_thread(self._tables.is_loadable, place):
            raise DatasetNotFound(f"there is no table {name!r}")
        return web.Response(status=204)

    async def sign(self, request: web.Request) -> web.StreamResponse:
        """Sign a request for a file of a table."""
        _, place = await self._place(request)
        if not self._presigned:
            raise web.HTTPForbidden(text="this gateway signs no requests for objects (presigned is 0)")
        asked = SignRequest.parse(await self._gate.small_body(request))
        request[NOTE]["signed"] = f"{asked.method[:20]} {asked.uri[:1100]}"
        signed = await asyncio.to_thread(sign, place.store, place.uuid, asked, min(self._presigned, SECONDS))
        return _json({"uri": signed.url, "headers": {key: [value] for key, value in signed.headers.items()}})

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Accept a report of a client's scan, without use of it."""
        await self._place(request)
        await self._gate.small_body(request)
        return web.Response(status=204)

    async def _place(self, request: web.Request) -> tuple[str, Place]:
        """Return the dataset of the path. Raises HTTPUnauthorized, DatasetNotFound also if the client may not pull it.

        It is not 403, as engines ask for tables that may not exist.
        """
        self._require(request.match_info["namespace"])
        try:
            name = await self._gate.name(request, Verb.PULL)
        except web.HTTPForbidden:
            name = request.match_info["dataset"]
            raise DatasetNotFound(f"there is no table {name!r} that you may pull") from None
        return name, self._gate.datasets.catalogue.place(name)

    # --- views, and all that a read-only catalogue lacks ---

    async def views(self, request: web.Request) -> web.StreamResponse:
        """List no views."""
        self._gate.principal(request)
        self._require(request.match_info["namespace"])
        return _json({"identifiers": [], "next-page-token": None})

    async def view(self, request: web.Request) -> web.StreamResponse:
        """Answer that there is no such view."""
        self._gate.principal(request)
        raise not_found("this catalogue has no views", "NoSuchViewException")

    async def other(self, request: web.Request) -> web.StreamResponse:
        """Refuse a write, or a request that the catalogue does not know."""
        self._gate.principal(request)
        request[NOTE]["error"] = "ReadOnly"
        if request.method in ("GET", "HEAD"):
            return refuse(404, "there is nothing at this path; GET /v1/config lists what there is")
        status = 406 if request.path.endswith(_NOT_ACCEPTABLE) else 403
        return refuse(status, "this catalogue is read-only: write the dataset with Kubothek, which exports it again")


def _json(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type=_JSON, headers={"Cache-Control": "no-store"})


def _around(location: str, config: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return what is before and after the metadata in a ``LoadTableResult``."""
    return b'{"metadata-location":%b,"metadata":' % orjson.dumps(location), b',"config":%b}' % orjson.dumps(config)


def _of_refs(metadata: bytes) -> bytes:
    """Return the metadata with only those snapshots that refs name."""
    table = orjson.loads(metadata)
    named = {ref["snapshot-id"] for ref in table["refs"].values()}
    snapshots: Sequence[dict[str, Any]] = table["snapshots"]
    table["snapshots"] = [each for each in snapshots if each["snapshot-id"] in named]
    return orjson.dumps(table)
