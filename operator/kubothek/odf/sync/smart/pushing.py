"""Push by the smart protocol: blocks in one message, objects to the targets that the server names, one commit there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import Any, Final

from kubothek.errors import ChainCorrupt, Diverged, FormatInvalid, ObjectNotFound, PreconditionFailed, StoreUnavailable
from kubothek.odf.chain import ADVICE, Stored
from kubothek.odf.named import KEPT, Kind, Named, named_by
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.needed_version import needed_by_block
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync.smart.batch import batch_of
from kubothek.odf.sync.smart.client import Conversation
from kubothek.odf.sync.smart.messages import Dialect, Message, Refused, Transfer, named_of, reference, render
from kubothek.odf.sync.smart.plan import plan_of
from kubothek.odf.sync.transfer import Brought, Progress, Told, each_of
from kubothek.odf.sync.web import Web, WebRepository
from kubothek.storage import Store
from kubothek.table.log.records import parallel

_BULK: Final = 500
_D: Final = Dialect.VERSIONED


def push_smart(
    web: Web,
    store: Store,
    layout: Layout,
    blocks: Sequence[Stored],
    before: Multihash | None,
    linked: Iterable[Sequence[Multihash]] = (),
    *,
    force: bool,
    told: Told,
) -> Brought:
    """Push blocks on top of the server's head, and all that they name or link to. Without blocks, only linked objects,
    if there are any; a server that takes none without blocks ends that, which is no error.

    ``before``  the last known head of the server; None: the dataset does not exist there
    ``linked``  linked objects, in portions. The protocol has no type for them: they travel as slices, whose directory
                they share (RFC-017)

    Raises Diverged if its head has changed, Refused, ChainCorrupt for an object of ours that is gone.
    """
    named, head = named_by(blocks), blocks[-1].hash if blocks else before
    sender = _Sender(web, store, layout, blocks=len(blocks), named=named, told=told)
    objects = chain(named, sender.linked(linked))
    if not blocks:
        if (first := next(objects, None)) is None:
            return sender.sent()
        objects = chain([first], objects)
    with Conversation(web, "push") as talk:
        asked = {
            "current_head": None if before is None else str(before),
            "transfer_plan": plan_of(blocks).to_json(),
            "force_update_if_diverged": force,
            "visibility_for_created_dataset": "private",
        }
        try:
            talk.ask(render(asked, _D))
        except Refused as error:
            if error.code == "InvalidHead":
                raise Diverged(f"{web.url} was moved meanwhile; push again: {error}") from error
            raise
        with _explained(web.url, blocks):
            talk.ask(render({"new_blocks": batch_of(blocks, _D)}, _D))
        for bulk, more in _bulks(objects):
            request = {"object_files": [reference(each) for each in bulk], "is_truncated": more}
            try:
                answer = talk.ask(render(request, _D), "object_transfer_strategies")
            except (Refused, StoreUnavailable):
                if blocks:
                    raise
                return sender.sent()
            targets = targets_of(bulk, answer["object_transfer_strategies"])
            sender.skip([each for each in bulk if each not in targets])
            send = partial(sender.send, targets)
            talk.while_asked(partial(each_of, send, [*targets], web.reach.objects_at_once), sender.progress)
            talk.tell(render({"details": "Complete"}, _D))
        confirmed: Message | None = talk.ask(render({}, _D))
        # a late request for the progress looks like the confirmation
        while confirmed is not None and WebRepository(web).head() != head:
            confirmed = talk.read()
    if WebRepository(web).head() != head:
        raise StoreUnavailable(f"{web.url} has not taken the push; push again")
    return sender.sent()


@contextmanager
def _explained(url: str, blocks: Sequence[Stored]) -> Iterator[None]:
    """Add the version that blocks need to the error of a server that ends a push when they arrive.

    A server of an earlier version does not name the reason.
    """
    try:
        yield
    except (Refused, StoreUnavailable) as error:
        needed = max(needed_by_block(each.decode()) for each in blocks)
        if needed is SpecVersion.V0_34:
            raise
        said = (
            f"{error}. The blocks need Open Data Fabric {needed}: if {url} has an earlier version, update it, or push "
            "a dataset that was created with the specVersion of that server"
        )
        if isinstance(error, Refused):
            raise Refused(error.code, {"error_message": said.removeprefix(f"{error.code}: ")}) from error
        raise StoreUnavailable(said) from error


def _bulks(objects: Iterator[Named]) -> Iterator[tuple[list[Named], bool]]:
    """Yield the objects in bulks, at least one, and whether more follow."""
    bulk = [*islice(objects, _BULK)]
    while following := [*islice(objects, _BULK)]:
        yield bulk, True
        bulk = following
    yield bulk, False


def targets_of(offered: Sequence[Named], strategies: Any) -> dict[Named, Transfer]:
    """Return the upload targets of objects that the server lacks. Raises FormatInvalid."""
    try:
        targets = {
            named_of(each["object_file"]): Transfer.of_json(each["upload_to"])
            for each in strategies
            if each["push_strategy"] != "SkipUpload"
        }
    except (KeyError, TypeError) as error:
        raise FormatInvalid(f"no answer where objects go: {error!r}") from None
    if unasked := [*targets.keys() - set(offered)]:
        raise FormatInvalid(f"the server asks for {unasked[0]}, which it was not offered; nothing was sent of it")
    return targets


class _Sender:
    """Sender of objects from several threads, with counters."""

    def __init__(
        self, web: Web, store: Store, layout: Layout, *, blocks: int, named: Sequence[Named], told: Told
    ) -> None:
        self._web = web
        self._store = store
        self._layout = layout
        self._blocks = blocks
        self._objects_total = len(named)
        self._bytes_total = sum(each.size for each in named)
        self._told = told
        self._lock = Lock()
        self._there = self._bytes_there = 0
        self.objects = self.bytes = 0
        self._missing: list[Multihash] = []

    def linked(self, linked: Iterable[Sequence[Multihash]]) -> Iterator[Named]:
        """Yield linked objects of ours, and count them."""
        for links in linked:
            for link, named in zip(links, parallel(self._of_link, [*links]), strict=True):
                if named is None:
                    self._missing = [*self._missing, link][:KEPT]
                else:
                    self._objects_total += 1
                    self._bytes_total += named.size
                    yield named

    def _of_link(self, link: Multihash) -> Named | None:
        try:
            size = self._store.stat(self._layout.data(link)).size
        except ObjectNotFound:
            return None
        return Named(Kind.DATA, link, size) if link.codec == Codec.SHA3_256 else None

    def sent(self) -> Brought:
        """Return the result."""
        return Brought(
            objects=self._objects_total,
            bytes=self._bytes_total,
            fetched_objects=self.objects,
            fetched_bytes=self.bytes,
            missing=tuple(self._missing),
        )

    def skip(self, named: Sequence[Named]) -> None:
        """Count objects that the server has already."""
        self._there += len(named)
        self._bytes_there += sum(each.size for each in named)

    def progress(self) -> bytes:
        """Return the progress message for the server."""
        return render({"details": {"Running": {"uploaded_objects_count": self.objects}}}, _D)

    def send(self, targets: Mapping[Named, Transfer], named: Named) -> None:
        """Upload one object to its target."""
        target = targets[named]
        assert target.url is not None, "it is not to be skipped"
        self._web.patiently(partial(self._put, target.url, dict(target.headers), named))
        with self._lock:
            self.objects += 1
            self.bytes += named.size
            self._told(
                Progress(
                    blocks=self._blocks,
                    blocks_total=self._blocks,
                    objects=self._there + self.objects,
                    objects_total=self._objects_total,
                    bytes=self._bytes_there + self.bytes,
                    bytes_total=self._bytes_total,
                    fetched=self.bytes,
                )
            )

    def _put(self, url: str, headers: dict[str, str], named: Named) -> None:
        try:
            source = self._store.open(named.key(self._layout))
        except ObjectNotFound as error:
            raise ChainCorrupt(f"our own {named} no longer exists; {ADVICE}") from error
        headers = {**headers, "Content-Length": str(named.size), "Content-Type": "application/octet-stream"}
        with (
            source,
            suppress(PreconditionFailed),  # another client uploaded it first
            self._web.ask("PUT", url, str(named), headers, source) as answer,
        ):
            answer.read()
