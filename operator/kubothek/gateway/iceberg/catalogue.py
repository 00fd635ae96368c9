"""The catalogue's requests: configuration, namespaces, tables and views. Iceberg REST specification, "Catalog API".

A gateway has one namespace. Its tables are the datasets that the client may pull. It contains a namespace for each
cube, without tables, whose properties are the snapshots that belong together. Every write is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound, StoreUnavailable
from kubothek.gateway.access import Verb
from kubothek.gateway.catalogue import CubeVersion, Place
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
_CUBE_VERSION: Final = "cube-version"
_SNAPSHOT_ID: Final = "snapshot-id."
"""Before the name of a table, in the properties of the namespace of a cube."""
_PAGE: Final = 1000
_CHECKS_AT_ONCE: Final = 8
"""Tables whose rights and heads are read together for a listing."""
_PIECE: Final = 256 << 10
_KEPT_BYTES: Final = 16 << 20
"""Of metadata with the snapshots of refs only."""
_JSON: Final = "application/json"
_ALL, _REFS = "all", "refs"
_NOT_ACCEPTABLE: Final = ("/namespaces", "/properties", "/rename", "/register-view", "/plan", "/tasks")
"""Ends of the paths whose refusal is 406 by the specification; it is 403 for other writes."""


class IcebergCatalogue:
    """The handlers of the catalogue.

    ``namespace``  the name of its only namespace with tables
    ``presigned``  lifetime in seconds of presigned URLs of the store, for remote signing; 0: no such URLs
    """

    def __init__(self, gate: Gate, tables: Tables, namespace: str, presigned: int) -> None:
        self._gate = gate
        self._tables = tables
        self._namespace = namespace
        self._presigned = presigned
        self._of_refs: Kept[tuple[Place, str], bytes] = Kept(_KEPT_BYTES)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes; the last one matches every other path below :data:`V1`."""
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
        """List the namespace to a client that may load one of its tables; below it, those of cubes."""
        principal = self._gate.principal(request)
        found: list[list[str]] = []
        if (parent := request.query.get("parent", "")) == self._namespace:
            cubes = await asyncio.to_thread(self._gate.datasets.catalogue.cubes)
            found = [[parent, cube] for cube in cubes if await self._cube(request, cube) is not None]
        elif parent:
            await self._require(request, parent)
        elif await anext(self._visible(request, ""), None) is not None:
            found = [[self._namespace]]
        elif principal is None:
            raise unauthorised()
        return _json({"namespaces": found, "next-page-token": None})

    async def namespace(self, request: web.Request) -> web.StreamResponse:
        """Return a namespace and its properties."""
        self._gate.principal(request)
        namespace = request.match_info["namespace"]
        properties = await self._require(request, namespace)
        return _json({"namespace": namespace.split(_SEPARATOR), "properties": properties})

    async def has_namespace(self, request: web.Request) -> web.StreamResponse:
        """Answer 204 if there is this namespace."""
        self._gate.principal(request)
        await self._require(request, request.match_info["namespace"])
        return web.Response(status=204)

    async def _require(self, request: web.Request, namespace: str) -> dict[str, str]:
        """Return the properties of the namespace, or of that of a cube. Raises HTTPNotFound for any other one."""
        first, *cube = namespace.split(_SEPARATOR)
        if first == self._namespace and not cube:
            return {}
        if first == self._namespace and len(cube) == 1 and (found := await self._cube(request, cube[0])) is not None:
            snapshots = {f"{_SNAPSHOT_ID}{name}": str(version) for name, version in found.datasets.items()}
            return {_CUBE_VERSION: str(found.version), **snapshots}
        name = ".".join((first, *cube))[:253]
        message = f"there is no namespace {name!r}; the only one with tables is {self._namespace!r}"
        raise not_found(message, "NoSuchNamespaceException")

    async def _cube(self, request: web.Request, name: str) -> CubeVersion | None:
        """Return the current version of a cube; None unless the client may pull each of its datasets."""
        found = await asyncio.to_thread(self._gate.datasets.catalogue.cube, name)
        for dataset in found.datasets if found is not None else ():
            if not await self._may_pull(request, dataset):
                return None
        return found

    async def _may_pull(self, request: web.Request, name: str) -> bool:
        principal = self._gate.principal(request)
        return self._gate.datasets.catalogue.public(name) or (
            principal is not None and await self._gate.access.may(principal, Verb.PULL, name)
        )

    # --- tables ---

    async def tables(self, request: web.Request) -> web.StreamResponse:
        """List the tables that the client may load; with ``pageToken``, at most ``pageSize`` of those after it."""
        namespace = request.match_info["namespace"]
        await self._require(request, namespace)
        if namespace != self._namespace:
            return _json({"identifiers": [], "next-page-token": None})
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
        names = [name for name in await asyncio.to_thread(self._gate.datasets.catalogue.names) if name > after]
        for start in range(0, len(names), _CHECKS_AT_ONCE):
            batch = names[start : start + _CHECKS_AT_ONCE]
            checks = await asyncio.gather(*(self._is_visible(request, name) for name in batch))
            for name, is_visible in zip(batch, checks, strict=True):
                if is_visible:
                    yield name

    async def _is_visible(self, request: web.Request, name: str) -> bool:
        """Return whether a client may load a table, and there is one."""
        catalogue = self._gate.datasets.catalogue
        if not await self._may_pull(request, name):
            return False
        try:
            place = catalogue.place(name)
        except (DatasetNotFound, StoreUnavailable):
            return False  # removed since the names were read, or without an ObjectStore
        return await asyncio.to_thread(self._tables.is_loadable, place)

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
        """Accept the report of a client's scan, and ignore it."""
        await self._place(request)
        await self._gate.small_body(request)
        return web.Response(status=204)

    async def _place(self, request: web.Request) -> tuple[str, Place]:
        """Return the dataset of the path. Raises HTTPUnauthorized; DatasetNotFound also if the client may not pull it,
        because engines request tables that may not exist, and stop at 403.
        """
        namespace = request.match_info["namespace"]
        await self._require(request, namespace)
        if namespace != self._namespace:
            raise DatasetNotFound(f"the namespace of a cube has no tables: load its datasets from {self._namespace!r}")
        try:
            name = await self._gate.name(request, Verb.PULL)
        except web.HTTPForbidden:
            name = request.match_info["dataset"]
            raise DatasetNotFound(f"there is no table {name!r} that you may pull") from None
        place = self._gate.datasets.catalogue.place(name)
        if place.iceberg == "Off":
            raise DatasetNotFound(
                f"{name!r} is not exported as an Iceberg table: set spec.export.iceberg.enabled of the Dataset to true"
            )
        return name, place

    # --- views, and other requests ---

    async def views(self, request: web.Request) -> web.StreamResponse:
        """List no views."""
        self._gate.principal(request)
        await self._require(request, request.match_info["namespace"])
        return _json({"identifiers": [], "next-page-token": None})

    async def view(self, request: web.Request) -> web.StreamResponse:
        """Refuse a request for a view with 404."""
        self._gate.principal(request)
        raise not_found("this catalogue has no views", "NoSuchViewException")

    async def other(self, request: web.Request) -> web.StreamResponse:
        """Refuse a write, or an unknown request."""
        self._gate.principal(request)
        request[NOTE]["error"] = "ReadOnly"
        if request.method in ("GET", "HEAD"):
            return refuse(404, "unknown path; GET /v1/config lists the requests that this catalogue answers")
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
