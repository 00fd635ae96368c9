"""Ingestion for push sources over HTTP: a body is one commit, or none (TP-13, ODF 0.34.1, RFC-008).

A worker process (:mod:`kubothek.sandbox.limited`) handles a body, from reading to the commit: neither the body nor the
SQL of ``preprocess``, which the owner of a dataset wrote, is trusted.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import orjson
from aiohttp import web

from kubothek.errors import FormatInvalid, IngestStopped, InputError, LakeError
from kubothek.gateway.access import Verb
from kubothek.gateway.answers import refusal
from kubothek.gateway.datasets import Writable
from kubothek.gateway.gate import CLIENT, NOTE, Gate
from kubothek.gateway.limits import Limits
from kubothek.gateway.workers import Workers, to_its_end
from kubothek.odf.dataset import DEFAULT_SOURCE, Root
from kubothek.odf.ingest import InputFormat, push_files
from kubothek.odf.sources.readers import FileContent
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.sandbox import limited
from kubothek.sandbox.limited import Ask, Cause
from kubothek.sandboxed_sql import expect
from kubothek.sql import Limits as SqlLimits
from kubothek.sql.query import memory_bytes

_FORMATS: Final = {
    "text/csv": InputFormat.CSV,
    "application/json": InputFormat.JSON,
    "application/x-ndjson": InputFormat.ND_JSON,
    "application/geo+json": InputFormat.GEO_JSON,
    "application/x-ndgeojson": InputFormat.ND_GEO_JSON,
    "application/vnd.apache.parquet": InputFormat.PARQUET,
    "application/vnd.esri.shapefile": InputFormat.SHAPEFILE,
}
_LONGEST_KEY: Final = 255
_BY: Final = "gateway"

limited.preload(__name__)
if find_spec("pyiceberg") is not None:
    limited.preload("kubothek.table.iceberg.export")  # for commits of datasets that export


class Ingests:
    """The handler of ingestion."""

    def __init__(self, gate: Gate, workers: Workers) -> None:
        self._gate = gate
        self._workers = workers

    def routes(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.post("/{dataset}/ingest", self.ingest)]

    async def ingest(self, request: web.Request) -> web.StreamResponse:
        """Ingest the rows of the body through its push source.

        With an ``Idempotency-Key``, rows are ingested once, however often they are sent; another body with the same key
        is rejected with 409.
        """
        name = await self._gate.name(request, Verb.INGEST)
        wanted: InputFormat | None = None
        if "Content-Type" in request.headers and (wanted := _FORMATS.get(request.content_type)) is None:
            return refusal(415, "UnsupportedMediaType", f"{request.content_type}: it takes {', '.join(_FORMATS)}")
        key = request.headers.get("Idempotency-Key")
        if key is not None and not 0 < len(key) <= _LONGEST_KEY:
            raise InputError(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
        event_time = _moment(request.headers.get("odf-event-time"))
        source = request.query.get("sourceName") or DEFAULT_SOURCE
        most = self._gate.limits.ingest_bytes
        async with self._gate.received(request, most) as (file, body), self._workers.place(request[CLIENT]):
            done = await to_its_end(
                partial(
                    self._take,
                    name,
                    file,
                    source,
                    wanted,
                    event_time,
                    None if key is None else f"ingest:{key}",
                    f"{source} {wanted} {event_time} {body.hex()}",
                )
            )
        request[NOTE].update(version=done["version"], records=done["records"])
        if "application/json" not in request.headers.get("Accept", ""):
            return web.Response(status=200)  # like the reference implementation
        return web.Response(body=orjson.dumps(done), content_type="application/json")

    def _take(
        self,
        name: str,
        file: IO[bytes],
        source: str,
        wanted: InputFormat | None,
        event_time: Timestamp | None,
        commit_id: str | None,
        digest: str,
    ) -> dict[str, Any]:
        """Ingest the body in a worker; return the fields of the answer. Raises LakeError."""
        limits = self._gate.limits
        dataset = self._gate.datasets.writable(name)
        expect(dataset.store)
        with TemporaryDirectory(prefix="kubothek-ingest-", ignore_cleanup_errors=True) as room:
            work = limited.run(
                _ingested,
                room,
                dataset,
                source,
                wanted,
                event_time,
                SqlLimits(memory=limits.query_memory, seconds=limits.query_seconds),
                commit_id,
                digest,
                memory=memory_bytes(limits.ingest_memory),
                seconds=limits.ingest_seconds,
                named=partial(_stopped, limits),
                files=[file.fileno()],
                maps_files=True,  # files of a merge, and of rows that preprocess reads twice
            )
            done: dict[str, Any] = orjson.loads(b"".join(work))
        return done


def _ingested(
    ask: Ask,
    descriptor: int,
    room: str,
    dataset: Writable,
    source: str,
    wanted: InputFormat | None,
    event_time: Timestamp | None,
    limits: SqlLimits,
    commit_id: str | None,
    digest: str,
) -> Iterator[bytes]:
    """Commit the body, in a worker. ``room``: directory for its files, which the caller deletes if the worker dies."""
    tempfile.tempdir = room
    log = dataset.log()
    log.settled()
    with os.fdopen(descriptor, "rb") as file:
        done = push_files(
            Root(dataset.store, log, by=_BY, merge_memory=limits.memory),
            [FileContent("the body", file)],
            source,
            wanted=wanted,
            event_time=event_time,
            limits=limits,
            commit_id=commit_id,
            digest=digest,
        )
    yield orjson.dumps(
        {
            "version": done.version,
            "head": str(done.head),
            "records": done.records,
            "upToDate": done.up_to_date,
            "repeated": done.repeated,
        }
    )


def _stopped(limits: Limits, cause: Cause) -> LakeError:
    why = {
        Cause.TIME: f"took longer than {limits.ingest_seconds:g} s",
        Cause.MEMORY: f"needs more than {limits.ingest_memory} of memory",
        Cause.CRASH: f"ended its process: it needs more than {limits.ingest_memory} of memory, or nests too deeply",
    }[cause]
    return IngestStopped(
        f"the ingestion {why} and was stopped; send smaller bodies, or simplify preprocess. A retry with the same "
        "Idempotency-Key never commits twice"
    )


def _moment(text: str | None) -> Timestamp | None:
    try:
        return None if text is None else Timestamp.parse(text)
    except FormatInvalid as error:
        raise InputError(f"odf-event-time: {error}") from None
