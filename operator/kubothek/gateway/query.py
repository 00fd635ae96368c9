"""Questions by HTTP: one SELECT over what whoever asks may query, and the last records of a ledger."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa
from aiohttp import web

from kubothek.gateway.access import Principal, Verb
from kubothek.gateway.catalogue import Place
from kubothek.gateway.gate import NOTE, STARTED, Gate
from kubothek.gateway.workers import Workers
from kubothek.lake.commits import DatasetLog, Snapshot, Version
from kubothek.lake.door import Lake
from kubothek.lake.errors import DatasetNotFound, QueryInvalid
from kubothek.lake.ledger.root import Root
from kubothek.lake.sql import Limits as SqlLimits
from kubothek.lake.sql import Query, prepare
from kubothek.lake.sql.lines import json_lines

_ARROW: Final = "application/vnd.apache.arrow.stream"
_JSON: Final = "application/json"
_LONGEST: Final = 64 << 10
_USUAL: Final = 100


class Queries:
    """The handlers."""

    def __init__(self, gate: Gate, workers: Workers) -> None:
        self._gate = gate
        self._workers = workers

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get("/query", self.query),
            web.post("/query", self.query),
            web.get("/{dataset}/tail", self.tail),
        ]

    async def query(self, request: web.Request) -> web.StreamResponse:
        """The rows of ``query``, ``limit`` of them after ``skip``, as JSON, or as Arrow where that is accepted."""
        principal = self._gate.principal(request)
        asked: Any = request.query
        if request.method == "POST":
            try:
                asked = orjson.loads(await request.read()) if (request.content_length or 0) <= _LONGEST else None
            except orjson.JSONDecodeError:
                asked = None
            if not isinstance(asked, dict):
                raise QueryInvalid('a JSON object is expected, such as {"query": "SELECT …", "limit": 100}')
        text = asked.get("query")
        if not isinstance(text, str) or not text or len(text) > _LONGEST:
            raise QueryInvalid(f"query is one SELECT of at most {_LONGEST:,} characters")
        limit, skip = self._number(asked, "limit", _USUAL), self._number(asked, "skip", 0)
        may = partial(self._may, principal, asyncio.get_running_loop())
        async with self._workers.place():
            query = await asyncio.to_thread(self._prepared, text, may)
            request[NOTE]["reads"] = [scan.name for scan in query.scans]
            arrow = _ARROW in request.headers.get("Accept", "")
            rows = await asyncio.to_thread(query.rows if arrow else query.lines)
            return await self._answer(request, rows, limit, skip, arrow=arrow)

    async def tail(self, request: web.Request) -> web.StreamResponse:
        """The last records of a ledger, as slices hold them."""
        dataset = await self._gate.dataset(request, Verb.QUERY, fresh=True)
        limit, skip = self._number(request.query, "limit", _USUAL), self._number(request.query, "skip", 0)
        async with self._workers.place():
            rows = await asyncio.to_thread(self._last, dataset.place, limit, skip)
            return await self._answer(request, rows, limit, 0, arrow=False)

    def _last(self, place: Place, limit: int, skip: int) -> pa.RecordBatchReader:
        root = Root(place.store, DatasetLog(place.store, place.uuid))
        if root.state.schema is None:
            return json_lines(pa.RecordBatchReader.from_batches(pa.schema([("offset", pa.int64())]), []))
        return json_lines(root.latest(limit + skip).last(limit, skip))

    def _prepared(self, text: str, may: Callable[[str], bool]) -> Query:
        limits, catalogue = self._gate.limits, self._gate.datasets.catalogue
        places: dict[str, Place] = {}

        def looked(name: str, version: Version | None) -> Snapshot:
            dataset, slash, table = name.partition("/")
            if not may(dataset):
                raise DatasetNotFound(f"there is no dataset {name!r} that may be queried")
            places[name] = place = catalogue.place(dataset)
            return Lake(place.store).look()(f"{place.uuid}{slash}{table}", version)

        return prepare(
            lambda name: places[name].store,
            text,
            looked,
            lambda: [name for name in catalogue.names() if catalogue.public(name)],
            SqlLimits(memory=limits.query_memory, seconds=limits.query_seconds),
            plain=False,
        )

    def _may(self, principal: Principal | None, loop: asyncio.AbstractEventLoop, name: str) -> bool:
        """Asked from a thread that plans."""
        if self._gate.datasets.catalogue.public(name):
            return True
        if principal is None:
            return False
        return asyncio.run_coroutine_threadsafe(self._gate.access.may(principal, Verb.QUERY, name), loop).result()

    def _number(self, asked: Any, name: str, usual: int) -> int:
        """Raises QueryInvalid."""
        try:
            found = int(asked.get(name, usual))
        except (TypeError, ValueError):
            found = -1
        if not 0 <= found <= self._gate.limits.query_rows:
            raise QueryInvalid(f"{name} is a number up to {self._gate.limits.query_rows:,}")
        return found

    async def _answer(
        self, request: web.Request, rows: pa.RecordBatchReader, limit: int, skip: int, *, arrow: bool
    ) -> web.StreamResponse:
        batches = _part(rows, limit, skip)
        pieces = _as_arrow(rows.schema, batches) if arrow else _as_json(batches)
        try:
            first = await asyncio.to_thread(next, pieces, b"")  # what is wrong with a query mostly shows here
            response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
            response.content_type = _ARROW if arrow else _JSON
            request[STARTED] = True
            await response.prepare(request)
            piece: bytes | None = first
            while piece is not None:
                async with asyncio.timeout(self._gate.limits.seconds_for(len(piece))):
                    await response.write(piece)
                piece = await asyncio.to_thread(next, pieces, None)
            await response.write_eof()
            return response
        finally:
            await asyncio.to_thread(_closed, pieces, batches)


def _part(rows: pa.RecordBatchReader, limit: int, skip: int) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        part = batch.slice(skip, limit)
        skip, limit = 0, limit - part.num_rows
        yield part
        if not limit:
            return


def _as_json(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """``{"data":[…]}``; each row is there as JSON already."""
    lead = '{"data":['
    for batch in batches:
        lines = batch.column(0)
        for start in range(0, len(lines), 4096):
            yield (lead + ",".join(map(str, lines.slice(start, 4096).to_pylist()))).encode()
            lead = ","
    yield b'{"data":[]}' if lead != "," else b"]}"


def _as_arrow(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _closed(*streams: Any) -> None:
    """Give back what half-read streams hold, unless one is still being read: then that ends it."""
    with suppress(ValueError):
        for stream in streams:
            stream.close()
