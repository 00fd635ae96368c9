"""The server's side of the smart transfer protocol (RFC-008, TP-08 … TP-15)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence, Set
from functools import partial
from http import HTTPMethod
from itertools import chain
from typing import Any, Final

from aiohttp import web

from kubothek.errors import AccessDenied, DatasetNotFound, FormatInvalid, ObjectNotFound
from kubothek.gateway.access import Verb
from kubothek.gateway.answers import refusal
from kubothek.gateway.catalogue import Place
from kubothek.gateway.datasets import Exposed
from kubothek.gateway.gate import CLIENT, NOTE, Gate
from kubothek.gateway.sockets import Conversation, transfer
from kubothek.gateway.workers import to_its_end
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.dataset import Table
from kubothek.odf.named import Named
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.pull import pull
from kubothek.odf.sync.push import PushedRepository
from kubothek.odf.sync.smart.batch import batch_of, blocks_of
from kubothek.odf.sync.smart.messages import (
    Dialect,
    Message,
    Transfer,
    accepted,
    named_of,
    optional_hash,
    reference,
    refused,
    render,
)
from kubothek.odf.sync.smart.plan import plan_of
from kubothek.odf.validation.linked import listed_missing
from kubothek.table.log.model import keys

_NEXT: Final = 3600.0
"""Timeout in seconds between two requests of a pull, as the client fetches objects between them."""
_PING: Final = 10.0
_SILENT: Final = 60.0
_BULK: Final = 10_000
"""Most objects that one message may name."""
_PULLED: Final = 4 << 20
"""Most bytes of a message of a pull, which names up to 10,000 objects."""
_BY: Final = "gateway"


class Smart:
    """The handlers of the smart transfer protocol.

    ``presigned``  lifetime in seconds of presigned URLs of the store; 0: all objects pass through the gateway
    ``url``        URL at which clients reach the gateway, if it is not that of their requests
    """

    def __init__(self, gate: Gate, presigned: int, url: str | None = None) -> None:
        self._gate = gate
        self._presigned = presigned
        self._url = url
        self._sessions = asyncio.Semaphore(gate.limits.sessions)
        self._of_client: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.get("/{dataset}/pull", self.pull), web.get("/{dataset}/push", self.push)]

    async def pull(self, request: web.Request) -> web.StreamResponse:
        """Send a part of a chain, and where its objects are."""
        dataset = await self._gate.dataset(request, Verb.PULL, fresh=True)
        talk = Conversation(request, self._gate, min(_PULLED, self._gate.limits.message_bytes))
        return await self._hold(request, talk, "Pull", partial(self._pull, request, talk, dataset))

    async def push(self, request: web.Request) -> web.StreamResponse:
        """Receive blocks, send where to upload their objects, and commit all blocks."""
        name = await self._gate.name(request, Verb.PUSH)
        talk = Conversation(request, self._gate, self._gate.limits.message_bytes)
        return await self._hold(request, talk, "Push", partial(self._push, request, talk, name))

    async def _hold(self, request: web.Request, talk: Conversation, side: str, what: Any) -> web.StreamResponse:
        if not web.WebSocketResponse().can_prepare(request):
            return refusal(426, "UpgradeRequired", "this is a WebSocket", {"Upgrade": "websocket"})
        client = request[CLIENT]
        if self._of_client[client] >= self._gate.limits.sessions_each:
            return refusal(429, "TooManyTransfers", "too many transfers of yours are under way", {"Retry-After": "5"})
        if self._sessions.locked():
            return refusal(503, "Busy", "too many transfers are under way", {"Retry-After": "5"})
        self._of_client[client] += 1
        try:
            async with self._sessions:
                return await talk.hold(side, what)
        finally:
            self._of_client[client] -= 1
            if not self._of_client[client]:
                del self._of_client[client]

    # --- pull ---

    async def _pull(self, request: web.Request, talk: Conversation, dataset: Exposed) -> None:
        asked = await talk.read(self._gate.limits.patience)
        try:
            blocks = await asyncio.to_thread(self._interval, dataset, asked)
        except BrokenChain as error:
            if error.problem.code not in ("Diverged", "BlockMissing"):
                raise
            tail, head = optional_hash(asked, "begin_after"), optional_hash(asked, "stop_at") or dataset.head
            details = {"head": str(head), "tail": None if tail is None else str(tail)}
            await talk.send(refused("InvalidInterval", details, talk.dialect))
            return
        request[NOTE]["blocks"] = len(blocks)
        plan = await asyncio.to_thread(plan_of, blocks)
        await talk.send(accepted({"transfer_plan": plan.to_json()}, talk.dialect, first=True))
        talk.phase = "MetadataRequest"
        await talk.read(self._gate.limits.patience)
        await talk.send(await asyncio.to_thread(_metadata, blocks, talk.dialect))
        del blocks
        talk.phase = "ObjectsRequest"
        while True:
            try:
                named = _references(await talk.read(_NEXT, large=True))
            except ConnectionResetError:
                return  # the normal end of a pull
            if named is None:
                raise FormatInvalid("a request for objects names them: object_files")
            found = await asyncio.to_thread(self._sources, request, dataset.place, named)
            strategies = [
                {"object_file": reference(each), "pull_strategy": "HttpDownload", "download_from": source.to_json()}
                for each, source in zip(named, found, strict=True)
            ]
            await talk.send(render({"object_transfer_strategies": strategies}, talk.dialect))

    def _interval(self, dataset: Exposed, asked: Message) -> list[Stored]:
        after, stop = optional_hash(asked, "begin_after"), optional_hash(asked, "stop_at")
        store, layout = dataset.store, dataset.layout
        if stop is not None:
            read_chain(store, layout, dataset.head, stop)  # raises unless ``stop`` is in this chain
        end = stop or dataset.head
        try:
            return read_chain(store, layout, end, after)
        except BrokenChain as error:
            if error.problem.code != "Diverged" or not asked.get("force_update_if_diverged"):
                raise
            return read_chain(store, layout, end)

    def _sources(self, request: web.Request, place: Place, named: Sequence[Named]) -> list[Transfer]:
        store, layout = place.store, place.layout
        return [transfer(request, store, HTTPMethod.GET, layout, each, self._presigned, self._url) for each in named]

    # --- push ---

    async def _push(self, request: web.Request, talk: Conversation, name: str) -> None:
        asked = await talk.read(self._gate.limits.patience)
        if force := asked.get("force_update_if_diverged") is True:
            request[NOTE]["forced"] = True
            principal = self._gate.principal(request)
            if principal is None or not await self._gate.access.may(principal, Verb.FORCE, name):
                raise AccessDenied(f"push to {name!r} with force refused: it needs the right {Verb.FORCE}")
        claimed = optional_hash(asked, "current_head")
        head = await asyncio.to_thread(self._head, name)
        if claimed != head:
            details = {"actual_head": _text(head), "expected_head": _text(claimed)}
            await talk.send(refused("InvalidHead", details, talk.dialect))
            return
        await talk.send(accepted({}, talk.dialect, first=True))
        talk.phase = "MetadataRequest"
        message = await talk.read(self._gate.limits.patience, large=True)
        blocks = await asyncio.to_thread(blocks_of, message.get("new_blocks"))
        request[NOTE]["blocks"] = len(blocks)
        await talk.send(accepted({}, talk.dialect))
        place = self._gate.datasets.catalogue.place(name)
        if not await self._objects(request, talk, place, links_only=not blocks):
            talk.phase = "CompleteRequest"
            await talk.read(_SILENT)
            if not blocks and head is not None:
                await to_its_end(partial(self._complete, name, head))
        if blocks:
            version = await to_its_end(partial(self._commit, name, blocks, force=force))
            request[NOTE]["version"] = version
        await talk.send(render({}, talk.dialect))

    async def _objects(self, request: web.Request, talk: Conversation, place: Place, *, links_only: bool) -> bool:
        """Send where to upload objects until all are there; return whether the client has already completed.

        ``links_only``  of linked objects that the dataset lacks: a push without blocks brings no others
        """
        more, only = True, None
        if links_only:
            only = await asyncio.to_thread(lambda: {*chain.from_iterable(listed_missing(place.store, place.layout))})
        while more:
            talk.phase = "ObjectsRequest"
            message = await talk.read(_SILENT if talk.dialect is not Dialect.SPEC else _NEXT, large=True)
            if (named := _references(message)) is None:
                return True
            found = await asyncio.to_thread(self._targets, request, place, named, only)
            strategies = [
                {
                    "object_file": reference(each),
                    "push_strategy": "SkipUpload" if target is None else "HttpUpload",
                    "upload_to": None if target is None else target.to_json(),
                }
                for each, target in zip(named, found, strict=True)
            ]
            await talk.send(accepted({"object_transfer_strategies": strategies}, talk.dialect))
            if talk.dialect is not Dialect.SPEC:
                talk.phase = "ObjectsUploadProgress"
                await _uploaded(talk)
                more = bool(message.get("is_truncated"))
        return False

    def _head(self, name: str) -> Multihash | None:
        try:
            return self._gate.datasets.find(name, fresh=True).head
        except DatasetNotFound:
            return None

    def _targets(
        self, request: web.Request, place: Place, named: Sequence[Named], only: Set[Multihash] | None
    ) -> list[Transfer | None]:
        store, layout = place.store, place.layout
        found: list[Transfer | None] = []
        for each in named:
            try:
                there = store.stat(each.key(layout)).size == each.size or not each.size
            except ObjectNotFound:
                there = False
            if there or (only is not None and each.hash not in only):
                found.append(None)
                continue
            found.append(transfer(request, store, HTTPMethod.PUT, layout, each, self._presigned, self._url))
        return found

    def _commit(self, name: str, blocks: Sequence[Stored], *, force: bool) -> int:
        dataset = self._gate.datasets.writable(name)
        store, log = dataset.store, dataset.log()
        theirs = PushedRepository(blocks, store, Layout(keys.chain(log.uuid)))
        return pull(store, log, theirs, table=Table(), force=force, rows=True, by=_BY).version

    def _complete(self, name: str, head: Multihash) -> None:
        """Verify the linked objects of a push without blocks, and list what is still missing."""
        dataset = self._gate.datasets.writable(name)
        store, log = dataset.store, dataset.log()
        pull(store, log, PushedRepository((), store, Layout(keys.chain(log.uuid)), head), by=_BY)


def _metadata(blocks: Sequence[Stored], dialect: Dialect) -> bytes:
    return render({"blocks": batch_of(blocks, dialect)}, dialect)


async def _uploaded(talk: Conversation) -> None:
    """Request the client's progress periodically, until it is done. Raises TimeoutError without an answer."""
    asked = 0
    while asked * _PING < _SILENT:
        try:
            message = await talk.read(_PING)
        except TimeoutError:
            asked += 1
            await talk.send(render({}, talk.dialect))
            continue
        asked = 0
        if message.get("details") == "Complete":
            return
    raise TimeoutError("the client does not say how far it is")


def _references(message: Message) -> list[Named] | None:
    """Return the objects that a message names; None if it has no such list. Raises FormatInvalid."""
    if "object_files" not in message:
        return None
    found = message["object_files"]
    if not isinstance(found, list) or len(found) > _BULK:
        raise FormatInvalid(f"object_files is a list of at most {_BULK:,} objects")
    return [named_of(each) for each in found]


def _text(block: Multihash | None) -> str | None:
    return None if block is None else str(block)
